//! The keys of the `gateway` section, as tables.

use netpolicy::document::shape::{Bond, Field, Format, Kind, Lexis, Need, Shape};
use netpolicy::document::values::SIZE;

use Need::Optional;

const fn field(key: &'static str, kind: Kind, help: &'static str) -> Field {
    Field {
        key,
        kind,
        need: Optional,
        help,
    }
}

/// The `gateway` section.
pub static GATEWAY: Shape = Shape {
    what: "the gateway section",
    fields: &[
        field(
            "namespace",
            Kind::Text(&NAMESPACE),
            "Name of the gateway's own network namespace. Default sallyport.",
        ),
        field(
            "control",
            Kind::Text(&SOCKET),
            "The control socket. Default /run/sallyport/control.sock.",
        ),
        field(
            "control_users",
            Kind::Object(&USERS),
            "Users of the control socket beside root, by what they may do.",
        ),
        field(
            "networks_per_user",
            Kind::Whole {
                min: 1,
                max: 65_536,
            },
            "Networks that one user beside root may have at once. Default 1024.",
        ),
        field(
            "state_dir",
            Kind::Text(&FOLDER),
            "Journal, keys and the instance's prefix. Default /var/lib/sallyport.",
        ),
        field(
            "run_dir",
            Kind::Text(&FOLDER),
            "State of live networks; a tmpfs. Default /run/sallyport.",
        ),
        field("pools", Kind::Object(&POOLS), "Address pools."),
        field(
            "resolvers",
            RESOLVERS,
            "Upstream DNS servers: a list, or default and domains. Without it the system's.",
        ),
        field(
            "host_addresses",
            Kind::List {
                of: &Kind::Text(&ADDRESS),
                min: 0,
            },
            "Further addresses of this machine, such as those behind 1:1 NAT.",
        ),
        field(
            "local_networks",
            Kind::List {
                of: &Kind::Text(&PREFIX),
                min: 0,
            },
            "Further private networks; those on link or routed are found by themselves.",
        ),
        field(
            "metadata",
            Kind::List {
                of: &Kind::Text(&PREFIX),
                min: 0,
            },
            "Further metadata services, which nothing reaches.",
        ),
        field(
            "egress_filter",
            Kind::Word(&["required", "auto", "off"]),
            "What runs on a host without enforcement, through a socket to the proxy: all but internet policies (required), all (auto). off: as auto, and private networks and the machine are open to internet policies; needs --i-accept-open-networks too. Default required.",
        ),
        field(
            "enforcement",
            Kind::Word(&["auto", "nftables", "iptables"]),
            "Which kernel rules: nf_tables, or the legacy tables of iptables (no groups there). auto: nf_tables where the kernel has it, else iptables. Default auto.",
        ),
        field(
            "uplink",
            Kind::Word(&["host", "this"]),
            "host: refuse to enforce outside the machine's network namespace; this: the namespace it is started in is meant. Default host.",
        ),
        field(
            "instance_floor",
            Kind::Text(&PATH),
            "A policy that narrows every network.",
        ),
        field(
            "workspace_floors",
            Kind::Text(&PATH),
            "Folder of policies, WORKSPACE.yaml each, that narrow the networks of one workspace.",
        ),
        field(
            "sources",
            crate::source::config::SOURCES,
            "Policies in git: repositories that are followed, by name.",
        ),
        field(
            "floods",
            Kind::Object(&FLOODS),
            "What one sandbox may start a second before its packets are dropped, whatever its policy's limits say.",
        ),
        field(
            "own_listeners",
            Kind::Object(&OWN),
            "Sallyport's own ports and names, which no policy opens.",
        ),
        field(
            "journal",
            Kind::Object(&JOURNAL),
            "How much of the record is kept, and where its head is anchored.",
        ),
        field(
            "management",
            Kind::Object(&MANAGEMENT),
            "Metrics for the collectors of this machine. Without it nobody can ask.",
        ),
        field(
            "telemetry",
            Kind::Object(&TELEMETRY),
            "Flows and denials as OpenTelemetry logs and spans. Without it nothing is sent.",
        ),
        field(
            "selftest",
            Kind::Object(&SELFTEST),
            "The escape suite, which the gateway runs before it enforces, and on a schedule.",
        ),
    ],
    bonds: &[],
};

static FLOODS: Shape = Shape {
    what: "floods",
    fields: &[
        field("connects", PER_SECOND, "New TCP connections. Default 2000."),
        field(
            "questions",
            PER_SECOND,
            "DNS questions over UDP. Default 5000.",
        ),
        field(
            "datagrams",
            PER_SECOND,
            "Other datagrams over UDP that begin something new. Default 5000.",
        ),
        field("echoes", PER_SECOND, "Echo requests. Default 100."),
    ],
    bonds: &[],
};

// The kernel counts tokens in nanoseconds of a 64-bit clock; more than this no single sender reaches.
const PER_SECOND: Kind = Kind::Whole {
    min: 1,
    max: 10_000_000,
};

static USERS: Shape = Shape {
    what: "control_users",
    fields: &[
        field(
            "observe",
            UIDS,
            "May look at networks, flows, records and posture.",
        ),
        field(
            "attach",
            TENANTS,
            "May also attach network namespaces of their own, detach them and replace their policies; with workspaces: in these only.",
        ),
        field(
            "attach_any",
            UIDS,
            "May also attach namespaces of others: a runner whose engine is root's. Such a user is trusted with every namespace that it can open.",
        ),
        field(
            "operate",
            UIDS,
            "May also run the selftest, capture packets, and have policy sources looked at and proposals written.",
        ),
    ],
    bonds: &[],
};

const UID: Kind = Kind::Either {
    of: &[
        Kind::Whole {
            min: 0,
            max: 4_294_967_294,
        },
        Kind::Text(&USER),
    ],
    expected: "a user's number or name",
};

const UIDS: Kind = Kind::List { of: &UID, min: 0 };

const TENANTS: Kind = Kind::List {
    of: &Kind::Either {
        of: &[
            Kind::Whole {
                min: 0,
                max: 4_294_967_294,
            },
            Kind::Text(&USER),
            Kind::Object(&TENANT),
        ],
        expected: "a user's number or name, or a mapping with user and workspaces",
    },
    min: 0,
};

static TENANT: Shape = Shape {
    what: "attach",
    fields: &[
        Field {
            key: "user",
            kind: UID,
            need: Need::Required,
            help: "A user's number or name.",
        },
        Field {
            key: "workspaces",
            kind: Kind::List {
                of: &Kind::Text(&WORKSPACE),
                min: 1,
            },
            need: Need::Required,
            help: "The workspaces whose floors and policies are the user's.",
        },
    ],
    bonds: &[],
};

static POOLS: Shape = Shape {
    what: "pools",
    fields: &[
        field(
            "sandboxes",
            Kind::Text(&PREFIX),
            "IPv4 addresses of sandboxes. Default 198.18.0.0/16.",
        ),
        field(
            "leases",
            Kind::Text(&PREFIX),
            "IPv4 addresses that stand for names. Default 198.19.0.0/16.",
        ),
        field(
            "ula",
            Kind::Text(&PREFIX),
            "IPv6 prefix (/48 of fd00::/8). Default: made at install.",
        ),
    ],
    bonds: &[],
};

const RESOLVERS: Kind = Kind::Either {
    of: &[
        Kind::List {
            of: &Kind::Text(&SERVER),
            min: 1,
        },
        Kind::Object(&SPLIT),
    ],
    expected: "a list of servers, or a mapping with default and domains",
};

static SPLIT: Shape = Shape {
    what: "resolvers",
    fields: &[
        field(
            "default",
            Kind::List {
                of: &Kind::Text(&SERVER),
                min: 1,
            },
            "Servers of every other name.",
        ),
        field(
            "domains",
            Kind::Named {
                keys: &DOMAIN,
                of: &Kind::List {
                    of: &Kind::Text(&SERVER),
                    min: 1,
                },
            },
            "Servers of names at or below a domain; the longest domain wins.",
        ),
    ],
    bonds: &[Bond::Needs("domains", "default")],
};

static OWN: Shape = Shape {
    what: "own_listeners",
    fields: &[
        field(
            "ports",
            Kind::List {
                of: &Kind::Whole {
                    min: 1,
                    max: 65_535,
                },
                min: 0,
            },
            "Closed on every address of this machine.",
        ),
        field(
            "names",
            Kind::List {
                of: &Kind::Text(&DOMAIN),
                min: 0,
            },
            "The console's own name and names of ingresses.",
        ),
    ],
    bonds: &[],
};

static JOURNAL: Shape = Shape {
    what: "journal",
    fields: &[
        field(
            "days",
            Kind::Whole {
                min: 1,
                max: 36_500,
            },
            "Older segments are removed. Default 30.",
        ),
        field(
            "size",
            Kind::Text(&SIZE),
            "The oldest segments above this are removed. Default 10GiB.",
        ),
        field(
            "segment",
            Kind::Text(&SIZE),
            "Length of a segment. Default 64MiB.",
        ),
        field(
            "anchors",
            Kind::Text(&PATH),
            "Where the signed head is anchored each minute; best on another disk. Default STATE_DIR/anchors.jsonl.",
        ),
        field(
            "syslog",
            Kind::Text(&SYSLOG),
            "Where each anchor is sent besides: `local`, the socket of a daemon, or the address of a server (UDP).",
        ),
    ],
    bonds: &[],
};

static SELFTEST: Shape = Shape {
    what: "selftest",
    fields: &[field(
        "every",
        Kind::Text(&PAUSE),
        "How often it runs: from 1m to 24h. Default 1h.",
    )],
    bonds: &[],
};

static TELEMETRY: Shape = Shape {
    what: "telemetry",
    fields: &[Field {
        key: "otlp",
        kind: Kind::Text(&COLLECTOR),
        need: Need::Required,
        help: "The collector, such as http://127.0.0.1:4318; gets POST /v1/logs and /v1/traces (OTLP over HTTP, JSON).",
    }],
    bonds: &[],
};

static MANAGEMENT: Shape = Shape {
    what: "management",
    fields: &[Field {
        key: "listen",
        kind: Kind::Text(&LISTEN),
        need: Need::Required,
        help: "A loopback address with a port, such as 127.0.0.1:9466, or the absolute path of a socket. Answers GET /metrics.",
    }],
    bonds: &[],
};

static WORKSPACE: Format = Format {
    expected: "a workspace: 1 to 40 characters of a-z, 0-9 and '-'",
    pattern: Some("^[a-z0-9-]{1,40}$"),
    fits: |text| text.parse::<netpolicy::ids::NetworkId>().is_ok(),
    lexis: Lexis::Words,
};

static NAMESPACE: Format = Format {
    expected: "a name of 1 to 64 letters, digits, '.', '_' and '-' that starts with a letter or digit",
    pattern: Some("^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
    fits: |text| {
        (1..=64).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    },
    lexis: Lexis::Anything,
};

static PATH: Format = Format {
    expected: "an absolute path without '..'",
    pattern: Some("^/"),
    fits: is_path,
    lexis: Lexis::Words,
};

/// A folder that is ours alone.
pub static FOLDER: Format = Format {
    expected: "an absolute folder without '..'",
    pattern: Some("^/."),
    fits: |text| is_path(text) && text != "/",
    lexis: Lexis::Words,
};

static PAUSE: Format = Format {
    expected: "a time from 1m to 24h, such as 30m or 2h",
    pattern: Some("^[1-9][0-9]{0,3}[mh]$"),
    fits: |text| super::read::pause(text).is_some(),
    lexis: Lexis::Words,
};

/// A Unix socket: `sun_path` of unix(7) has 108 bytes, the last one is NUL.
pub static SOCKET: Format = Format {
    expected: "an absolute path of at most 107 bytes",
    pattern: Some("^/.{1,106}$"),
    fits: |text| is_path(text) && text.len() <= 107 && !text.ends_with('/'),
    lexis: Lexis::Words,
};

fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains('\0') && text.split('/').all(|part| part != "..")
}

/// What these leave to the reader is checked there, with the reasons that names and addresses know.
const fn anything(expected: &'static str) -> Format {
    Format {
        expected,
        pattern: None,
        fits: |text| !text.is_empty(),
        lexis: Lexis::Words,
    }
}

static ADDRESS: Format = anything("an address such as 203.0.113.7");
static PREFIX: Format = anything("a prefix such as 10.20.0.0/16");
static SERVER: Format = anything(
    "an address such as 192.0.2.53, or with a port as 192.0.2.53:5353 or [2001:db8::53]:5353",
);
static DOMAIN: Format = anything("a domain such as corp.example");
static USER: Format = anything("a user's name");
static LISTEN: Format =
    anything("a loopback address with a port such as 127.0.0.1:9466, or an absolute path");
static COLLECTOR: Format = anything("a URL such as http://127.0.0.1:4318");
static SYSLOG: Format = anything(
    "`local`, an absolute path of a socket, or an address such as 192.0.2.14 or 192.0.2.14:514",
);
