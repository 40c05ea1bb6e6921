//! The `network` section: whom the console itself calls.

use std::path::PathBuf;

use ipnet::IpNet;
use netpolicy::document::Mistakes;
use netpolicy::document::shape::{Bond, Field, Format, Kind, Lexis, Need, Shape, flag};
use netpolicy::document::tree::Node;
use netpolicy::name::{Authority, Host};

/// Whom the console calls, beside public addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutboundSettings {
    /// Whether members' calls may go to private addresses.
    pub allow_private: bool,
    /// What members' calls may go to, whatever it is, cloud metadata apart.
    pub allowed: Vec<Allowed>,
    /// Certificate authorities beside the public ones, as PEM.
    pub ca_file: Option<PathBuf>,
}

impl Default for OutboundSettings {
    fn default() -> Self {
        Self {
            allow_private: true,
            allowed: Vec::new(),
            ca_file: None,
        }
    }
}

/// What an operator lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// A host, perhaps at one port.
    Host(Host, Option<u16>),
    /// Addresses.
    Net(IpNet),
}

impl Allowed {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(net) = text.parse() {
            return Some(Self::Net(net));
        }
        let authority = Authority::parse(text.as_bytes()).ok()?;
        Some(match (authority.host, authority.port) {
            (Host::Address(address), None) => Self::Net(address.into()),
            (host, port) => Self::Host(host, port),
        })
    }
}

static ALLOWED: Format = Format {
    expected: "a host, HOST:PORT, an address or a prefix",
    pattern: None,
    fits: |text| Allowed::parse(text).is_some(),
    lexis: Lexis::Words,
};
static FILE: Format = Format {
    expected: "an absolute path",
    pattern: Some("^/."),
    fits: |text| text.len() > 1 && text.starts_with('/'),
    lexis: Lexis::Words,
};
static NO_BONDS: [Bond; 0] = [];

/// The `network` section.
pub static NETWORK: Shape = Shape {
    what: "the network section",
    fields: &[
        Field {
            key: "allow_private_targets",
            kind: Kind::Flag,
            need: Need::Optional,
            help: "Whether webhooks and the like may go to private addresses; never to cloud metadata. Sandboxes are not \
                   concerned. Default true.",
        },
        Field {
            key: "allowed_targets",
            kind: Kind::List {
                of: &Kind::Text(&ALLOWED),
                min: 0,
            },
            need: Need::Optional,
            help: "Hosts and addresses that may be called though they are private, of this machine or loopback.",
        },
        Field {
            key: "ca_file",
            kind: Kind::Text(&FILE),
            need: Need::Optional,
            help: "Certificate authorities (PEM) that the console trusts beside the public ones.",
        },
    ],
    bonds: &NO_BONDS,
};

/// From a section whose shape was checked.
pub fn read(section: Option<&Node>, mistakes: &mut Mistakes) -> OutboundSettings {
    let mut settings = OutboundSettings::default();
    let Some(section) = section else {
        return settings;
    };
    if let Some(allow) = section.field("allow_private_targets").and_then(flag) {
        settings.allow_private = allow;
    }
    let listed = section
        .field("allowed_targets")
        .map_or(&[][..], Node::items);
    settings.allowed = listed
        .iter()
        .filter_map(|node| Allowed::parse(node.scalar()?))
        .collect();
    let file = section.field("ca_file");
    settings.ca_file = file.and_then(Node::scalar).map(PathBuf::from);
    if let (Some(node), Some(path)) = (file, &settings.ca_file)
        && !path.is_file()
    {
        mistakes.add(&node.at, "`ca_file` is not there");
    }
    settings
}
