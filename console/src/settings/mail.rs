//! The `mail` section: the server by which mail is sent.

use netpolicy::document::Mistakes;
use netpolicy::document::shape::{Field, Format, Kind, Lexis, Need, Shape};
use netpolicy::document::tree::Node;
use netpolicy::name::{Authority, Host};

use super::Redacted;

/// How mail is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MailSettings {
    /// The server.
    pub host: Host,
    /// Its port.
    pub port: u16,
    /// How it is kept from others' eyes.
    pub tls: MailTls,
    /// User and password, if the server asks for them.
    pub credentials: Option<(String, Redacted)>,
    /// Whom it is from.
    pub from: String,
}

/// How a connection to a mail server is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MailTls {
    /// From the first byte (port 465).
    Implicit,
    /// After a word in the clear, and not at all without it (port 587).
    StartTls,
    /// Not: for a server on this machine.
    None,
}

static SERVER: Format = Format {
    expected: "HOST or HOST:PORT",
    pattern: None,
    fits: |text| Authority::parse(text.as_bytes()).is_ok(),
    lexis: Lexis::Words,
};
static FROM: Format = Format {
    expected: "an address such as sallyport@example.com",
    pattern: None,
    fits: |text| text.contains('@') && !text.chars().any(char::is_control),
    lexis: Lexis::Words,
};
static LINE: Format = Format {
    expected: "a text on one line",
    pattern: None,
    fits: |text| !text.is_empty() && !text.chars().any(char::is_control),
    lexis: Lexis::Anything,
};

const fn field(key: &'static str, kind: Kind, need: Need, help: &'static str) -> Field {
    Field {
        key,
        kind,
        need,
        help,
    }
}

/// The `mail` section.
pub static MAIL: Shape = Shape {
    what: "the mail section",
    fields: &[
        field(
            "server",
            Kind::Text(&SERVER),
            Need::Required,
            "The mail server, perhaps with a port.",
        ),
        field(
            "from",
            Kind::Text(&FROM),
            Need::Required,
            "Whom mail is from.",
        ),
        field(
            "tls",
            Kind::Word(&["starttls", "implicit", "none"]),
            Need::Optional,
            "How it is encrypted: starttls (587, default), implicit (465), none (25, for a server on this machine).",
        ),
        field(
            "user",
            Kind::Text(&LINE),
            Need::Optional,
            "Who signs in at the server.",
        ),
        field(
            "password",
            Kind::Text(&LINE),
            Need::Optional,
            "With this password; the file must be its owner's alone.",
        ),
    ],
    bonds: &[],
};

/// From a section whose shape was checked.
pub fn read(section: &Node, mistakes: &mut Mistakes) -> Option<MailSettings> {
    let text = |key: &str| section.field(key).and_then(Node::scalar).map(str::to_owned);
    let server = Authority::parse(text("server")?.as_bytes()).ok()?;
    let (tls, usual) = match text("tls").as_deref() {
        Some("implicit") => (MailTls::Implicit, 465),
        Some("none") => (MailTls::None, 25),
        _ => (MailTls::StartTls, 587),
    };
    let credentials = match (text("user"), text("password")) {
        (Some(user), Some(password)) => Some((user, Redacted::new(password))),
        (None, None) => None,
        _ => {
            mistakes.add(&section.at, "`user` and `password` go together");
            None
        }
    };
    if credentials.is_some() && tls == MailTls::None {
        mistakes.add(&section.at, "a password is not sent without `tls`");
    }
    Some(MailSettings {
        host: server.host,
        port: server.port.unwrap_or(usual),
        tls,
        credentials,
        from: text("from")?,
    })
}
