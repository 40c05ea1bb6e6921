//! The console's sections of `config.yml`: `console`, `app`, `auth`, `workspaces`.
//!
//! One table per section gives the checker and the JSON Schema; what tables cannot say is noted by [`ConsoleConfig::read`],
//! every mistake at once. Refuses to own: the file (its permissions and other sections are the command line's).

mod mail;
mod outbound;
mod providers;
mod read;
mod retention;
mod values;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use netpolicy::document::Mistakes;
use netpolicy::document::shape::{Field, Format, Kind, Lexis, Need, Shape};
use netpolicy::document::tree::Node;

pub use mail::{MailSettings, MailTls};
pub use outbound::{Allowed, OutboundSettings};
pub use providers::{GitHubSettings, OidcSettings, Providers};
pub use retention::Retention;
pub use values::{AppUrl, Database, Redacted, Scheme};

/// Where people and programs ask.
pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8420);

/// What the console is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsoleConfig {
    /// The file that this was read from; `None`: built-in defaults.
    pub file: Option<PathBuf>,
    /// The people port.
    pub listen: SocketAddr,
    /// The store.
    pub database: Database,
    /// Folder of the SQLite file and of keys.
    pub state_dir: PathBuf,
    /// The file of the instance key.
    pub key_file: PathBuf,
    /// Health, readiness and metrics, on loopback; `None`: nobody can ask.
    pub management: Option<SocketAddr>,
    /// Reverse proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Its own certificate; `None`: a reverse proxy has one, or nobody comes from elsewhere.
    pub tls: Option<TlsFiles>,
    /// How long the store keeps what only grows.
    pub retention: Retention,
    /// What people type; `None`: only loopback names are answered.
    pub url: Option<AppUrl>,
    /// Whether people sign in with email and password.
    pub email_password: bool,
    /// Who else says who somebody is.
    pub providers: Providers,
    /// How mail is sent; `None`: it is not.
    pub mail: Option<MailSettings>,
    /// Whether there are workspaces; without, everybody is in one.
    pub workspaces: bool,
    /// Whom the console itself calls.
    pub outbound: OutboundSettings,
    /// The gateway of the same file.
    pub gateway: GatewaySide,
}

/// A certificate of the operator's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificate, and those between it and its authority (PEM).
    pub certificate: PathBuf,
    /// Its private key (PEM).
    pub key: PathBuf,
}

/// What the console knows of the gateway of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewaySide {
    /// Its control socket.
    pub control: PathBuf,
    /// Addresses that only sandboxes have.
    pub pools: Vec<IpNet>,
}

impl GatewaySide {
    /// Of a gateway's section.
    pub fn of(gateway: &gateway::config::GatewayConfig) -> Self {
        let pools = &gateway.pools;
        let mut nets: Vec<IpNet> = vec![pools.sandboxes.into(), pools.leases.into()];
        nets.extend(pools.ula.map(IpNet::from));
        Self {
            control: gateway.control.clone(),
            pools: nets,
        }
    }
}

impl Default for ConsoleConfig {
    fn default() -> Self {
        Self::beside(&gateway::config::GatewayConfig::default())
    }
}

impl ConsoleConfig {
    /// The defaults of a console whose gateway has this section.
    pub fn beside(gateway: &gateway::config::GatewayConfig) -> Self {
        let state_dir = gateway.state_dir.join("console");
        Self {
            file: None,
            listen: LISTEN,
            database: Database::Sqlite(state_dir.join("console.db")),
            key_file: state_dir.join("instance.key"),
            state_dir,
            management: None,
            trusted_proxies: Vec::new(),
            tls: None,
            retention: Retention::default(),
            url: None,
            email_password: true,
            providers: Providers::default(),
            mail: None,
            workspaces: true,
            outbound: OutboundSettings::default(),
            gateway: GatewaySide::of(gateway),
        }
    }

    /// Reads the sections of a file whose gateway is known.
    pub fn read(
        root: &Node,
        gateway: &gateway::config::GatewayConfig,
        mistakes: &mut Mistakes,
    ) -> Self {
        read::config(root, gateway, mistakes)
    }

    /// What nobody but the file's owner may read.
    pub fn holds_secret(&self) -> bool {
        !self.providers.is_empty()
            || self
                .mail
                .as_ref()
                .is_some_and(|mail| mail.credentials.is_some())
            || matches!(&self.database, Database::Postgres(url) if url.has_password())
    }

    /// Ports that no sandbox reaches on any address of this machine.
    pub fn ports(&self) -> Vec<u16> {
        let management = self.management.map(|address| address.port());
        let people = self.url.as_ref().map(|url| url.port);
        [self.listen.port()]
            .into_iter()
            .chain(management)
            .chain(people)
            .collect()
    }
}

const fn field(key: &'static str, kind: Kind, help: &'static str) -> Field {
    Field {
        key,
        kind,
        need: Need::Optional,
        help,
    }
}

const fn anything(expected: &'static str) -> Format {
    Format {
        expected,
        pattern: None,
        fits: |_| true,
        lexis: Lexis::Words,
    }
}

static ADDRESS: Format = anything("an address with a port such as 127.0.0.1:8420");
static LOOPBACK: Format = anything("a loopback address with a port such as 127.0.0.1:8421");
static PREFIX: Format = anything("an address or a prefix such as 10.20.0.0/16");
static URL: Format = anything("an address such as https://sallyport.example.com");
static DATABASE: Format = anything("an absolute path, or postgres://USER:PASSWORD@HOST/NAME");
static FOLDER: Format = Format {
    expected: "an absolute folder without '..'",
    pattern: Some("^/."),
    fits: is_absolute,
    lexis: Lexis::Words,
};

static FILE: Format = Format {
    expected: "an absolute path without '..'",
    pattern: Some("^/."),
    fits: is_absolute,
    lexis: Lexis::Words,
};

fn is_absolute(text: &str) -> bool {
    text.len() > 1 && text.starts_with('/') && !text.split('/').any(|part| part == "..")
}

static MANAGEMENT: Shape = Shape {
    what: "management",
    fields: &[field(
        "listen",
        Kind::Text(&LOOPBACK),
        "Loopback address with a port that answers /healthz, /readyz and /metrics.",
    )],
    bonds: &[],
};

const fn file(key: &'static str, help: &'static str) -> Field {
    Field {
        key,
        kind: Kind::Text(&FILE),
        need: Need::Required,
        help,
    }
}

/// The `tls` part of the console section.
static TLS: Shape = Shape {
    what: "the console's tls",
    fields: &[
        file(
            "certificate",
            "The certificate with those between it and its authority (PEM).",
        ),
        file("key", "Its private key (PEM), which others may not read."),
    ],
    bonds: &[],
};

/// The `console` section.
pub static CONSOLE: Shape = Shape {
    what: "the console section",
    fields: &[
        field(
            "listen",
            Kind::Text(&ADDRESS),
            "Where people and programs ask. Default 127.0.0.1:8420.",
        ),
        field(
            "database",
            Kind::Text(&DATABASE),
            "The store: path of a SQLite file, or a PostgreSQL URL. Default console.db in state_dir.",
        ),
        field(
            "state_dir",
            Kind::Text(&FOLDER),
            "Folder of the SQLite file. Default the gateway's state_dir with /console.",
        ),
        field(
            "key_file",
            Kind::Text(&FILE),
            "File of the instance key, its owner's alone; every console of one store needs the same. Default instance.key \
             in state_dir.",
        ),
        field(
            "management",
            Kind::Object(&MANAGEMENT),
            "Health and metrics for this machine. Without it nobody can ask.",
        ),
        field(
            "trusted_proxies",
            Kind::List {
                of: &Kind::Text(&PREFIX),
                min: 0,
            },
            "Reverse proxies whose X-Forwarded-For is believed. Default none.",
        ),
        field(
            "tls",
            Kind::Object(&TLS),
            "HTTPS by a certificate of your own; only this machine itself may speak plain HTTP then. Read at the start.",
        ),
        field(
            "retention",
            Kind::Object(&retention::RETENTION),
            "Days that runs, their output and flows, deliveries and events are kept.",
        ),
    ],
    bonds: &[],
};

/// The `app` section.
pub static APP: Shape = Shape {
    what: "the app section",
    fields: &[field(
        "url",
        Kind::Text(&URL),
        "What people type to reach the console. Without it only localhost and loopback addresses are answered.",
    )],
    bonds: &[],
};

/// The `auth` section.
pub static AUTH: Shape = Shape {
    what: "the auth section",
    fields: &[
        field(
            "email_password",
            Kind::Flag,
            "Whether people sign in with email and password. Default true.",
        ),
        field(
            "providers",
            Kind::Object(&providers::PROVIDERS),
            "Who else says who somebody is: oidc, github. Needs app.url.",
        ),
    ],
    bonds: &[],
};

/// The `workspaces` section.
pub static WORKSPACES: Shape = Shape {
    what: "the workspaces section",
    fields: &[field(
        "enabled",
        Kind::Flag,
        "Whether there are several workspaces; false puts everybody in one. Default true.",
    )],
    bonds: &[],
};

/// The sections with their names.
pub static SECTIONS: [(&str, &Shape); 6] = [
    ("console", &CONSOLE),
    ("app", &APP),
    ("auth", &AUTH),
    ("mail", &mail::MAIL),
    ("network", &outbound::NETWORK),
    ("workspaces", &WORKSPACES),
];

/// The JSON Schema of each section.
pub fn schemas() -> impl Iterator<Item = (&'static str, serde_json::Value)> {
    SECTIONS.iter().map(|(name, shape)| {
        let mut schema = netpolicy::document::json_schema(
            shape,
            &format!("Sallyport {name}"),
            &format!("The `{name}` section of Sallyport's configuration."),
        );
        if let Some(schema) = schema.as_object_mut() {
            schema.remove("$schema");
        }
        (*name, schema)
    })
}
