//! The checked meaning of one policy document.
//!
//! Owns: the types that decisions read ([`Policy`], [`Rule`] and their parts), sets of ports ([`ports`]), budgets and
//! how layers narrow them ([`limits`]) and the matching of methods and paths ([`http`]).
//!
//! Refuses to own: text. A [`Policy`] is made by [`crate::document`], which has checked every value in it.

pub mod http;
pub mod limits;
pub mod ports;

use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::ids::{PolicyHash, UnixSeconds};
use crate::name::Pattern;

pub use http::HttpRule;
pub use limits::Limits;
pub use ports::Ports;

/// How much network a policy gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode {
    /// Nothing.
    None,
    /// Listed destinations.
    Domains,
    /// Every public destination that nothing denies.
    Internet,
}

/// What the gateway's DNS answers for a permitted name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamesMode {
    /// Synthetic addresses.
    Leased,
    /// The checked upstream addresses.
    Real,
}

/// Transport protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP echo, of either family; nothing else of ICMP ever passes. It has no ports: intents and records say 0.
    Icmp,
}

/// How the bytes of a flow are judged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaks {
    /// TLS with the server name of the lease (default on 443).
    Tls,
    /// HTTP/1 heads, each checked (default on 80).
    Http,
    /// Anything; a ClientHello or HTTP head must agree with the lease.
    Any,
}

impl Speaks {
    /// What a rule without `speaks` means on a port.
    pub fn default_for(port: u16, protocol: Protocol) -> Self {
        match (protocol, port) {
            // over UDP that is QUIC, whose first packets carry the server name
            (Protocol::Tcp | Protocol::Udp, 443) => Self::Tls,
            (Protocol::Tcp, 80) => Self::Http,
            _ => Self::Any,
        }
    }

    /// The word in policy files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Http => "http",
            Self::Any => "any",
        }
    }
}

impl Protocol {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Icmp];

    /// Whether flows of it have ports. What has none is covered only by entries that cover every port.
    pub const fn has_ports(self) -> bool {
        match self {
            Self::Tcp | Self::Udp => true,
            Self::Icmp => false,
        }
    }

    /// The word in policy files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
        }
    }
}

/// Where in which file something stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Place {
    /// File as the author knows it; presets are `preset:NAME`.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// The commit that the file was read from, by whoever read it from the repository itself. Nothing else sets it: what
    /// a client sends has no commit, so its place is unverified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Arc<str>>,
}

/// As many digits of a commit as people compare.
const COMMIT_DIGITS: usize = 12;

impl Place {
    /// File and line for people, with the commit where one is known.
    pub fn line(&self) -> String {
        format!("{}{}:{}", self.prefix(), self.file, self.line)
    }

    fn prefix(&self) -> String {
        let short = |commit: &str| format!("{}:", commit.get(..COMMIT_DIGITS).unwrap_or(commit));
        self.commit.as_deref().map(short).unwrap_or_default()
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = self.prefix();
        write!(f, "{prefix}{}:{}:{}", self.file, self.line, self.column)
    }
}

/// What a rule names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selector {
    /// `host:`
    Host(Pattern),
    /// `cidr:`
    Cidr(IpNet),
}

/// One `allow` or `deny` entry (entries of used sets are expanded, with their own place).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What it names.
    pub to: Selector,
    /// Ports; for an allowed host 80 and 443 unless written; for a deny all unless written.
    pub ports: Ports,
    /// Transport; a deny without one covers all (`None`).
    pub protocol: Option<Protocol>,
    /// Written `speaks`; `None` is the port's default.
    pub speaks: Option<Speaks>,
    /// Not in force after the end of this day (UTC): first second that is too late.
    pub until: Option<UnixSeconds>,
    /// Method and path rules; not empty implies inspection.
    pub http: Vec<HttpRule>,
    /// The author's reason (deny).
    pub reason: Option<String>,
    /// Where it stands.
    pub at: Place,
}

impl Rule {
    /// Whether the rule exists at this moment.
    pub fn in_force(&self, now: UnixSeconds) -> bool {
        self.until.is_none_or(|end| now < end)
    }

    /// Whether the rule speaks of this transport.
    pub fn covers_protocol(&self, protocol: Protocol) -> bool {
        self.protocol.is_none_or(|own| own == protocol)
    }

    /// Whether the rule speaks of this port of this transport; where that has none, whether it speaks of all.
    pub fn covers_port(&self, port: u16, protocol: Protocol) -> bool {
        if protocol.has_ports() {
            self.ports.contains(port)
        } else {
            Ports::any().minus(&self.ports).is_empty()
        }
    }

    /// Whether the rule is in force for this port and transport.
    pub fn applies(&self, port: u16, protocol: Protocol, now: UnixSeconds) -> bool {
        self.covers_protocol(protocol) && self.covers_port(port, protocol) && self.in_force(now)
    }

    /// How the bytes of a flow to this port are judged when this rule permits it.
    pub fn speaks_on(&self, port: u16, protocol: Protocol) -> Speaks {
        self.speaks
            .unwrap_or_else(|| Speaks::default_for(port, protocol))
    }
}

/// `{ secret, host, header }`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecretUse {
    /// Its name.
    pub secret: String,
    /// Where it may go.
    pub host: Pattern,
    /// Header shape with `{}`.
    pub header: String,
    /// Place.
    pub at: Place,
}

/// `ingress:` entry: the gateway may open connections to this port of the sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngressRule {
    /// Sandbox ports.
    pub ports: Ports,
    /// Place.
    pub at: Place,
}

/// What becomes of a first contact that nothing names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// Denied.
    Deny,
    /// A person is asked.
    Ask,
}

/// One line of a policy's `tests:` block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expectation {
    /// Destination as written: `host:port` or `ip:port`, checked.
    pub to: crate::name::Authority,
    /// Transport.
    pub protocol: Protocol,
    /// Addresses that the name shall be taken to have.
    pub resolves_to: Vec<std::net::IpAddr>,
    /// Server name or Host that the client sends, if it is not the host of `to`.
    pub sni: Option<crate::name::Name>,
    /// Method of a request.
    pub method: Option<String>,
    /// Path of a request, as the client sends it.
    pub path: Option<String>,
    /// Permitted, or denied (with which reason, if one is written).
    pub expect: Expected,
    /// Place.
    pub at: Place,
}

/// What a line of `tests:` expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// `expect: permit`
    Permit,
    /// `expect: deny`, with `reason` if written.
    Deny(Option<crate::reason::Reason>),
    /// `expect: ask`
    Ask,
}

/// One checked policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// `policy:`
    pub name: String,
    /// `description:`
    pub description: String,
    /// `network:`
    pub network: NetworkMode,
    /// Where `network:` stands: the line that denies what nothing allows.
    pub network_at: Place,
    /// `private:`
    pub private: bool,
    /// `names:`
    pub names: NamesMode,
    /// `allow:` with sets expanded.
    pub allow: Vec<Rule>,
    /// `deny:` with preset denials.
    pub deny: Vec<Rule>,
    /// `ingress:`
    pub ingress: Vec<IngressRule>,
    /// `limits:`
    pub limits: Limits,
    /// `secrets:`
    pub secrets: Vec<SecretUse>,
    /// `unknown:`
    pub unknown: Unknown,
    /// `explain:`
    pub explain: bool,
    /// `tests:`
    pub tests: Vec<Expectation>,
    /// Features that are understood but not enforced yet; running such a policy is refused with "not enforced yet".
    pub unenforced: Vec<(String, Place)>,
    /// `use: [packages]` stands here and the hosts of the image were not given; whoever runs the policy must give them.
    pub needs_packages: Option<Place>,
    /// Where the document begins.
    pub at: Place,
    /// SHA-256 of the text it came from (preset text for presets).
    pub hash: PolicyHash,
}

impl Policy {
    /// Stamps every line of the policy's own file with the commit that it was read from. Lines of shipped sets and
    /// presets are in no commit. Only for whoever read the blob from the repository itself.
    pub fn stamp(&mut self, commit: &Arc<str>) {
        let own = self.at.file.clone();
        let rules = self.allow.iter_mut().chain(&mut self.deny);
        let places = [&mut self.at, &mut self.network_at]
            .into_iter()
            .chain(rules.map(|rule| &mut rule.at))
            .chain(self.ingress.iter_mut().map(|rule| &mut rule.at))
            .chain(self.secrets.iter_mut().map(|secret| &mut secret.at))
            .chain(self.tests.iter_mut().map(|test| &mut test.at))
            .chain(self.unenforced.iter_mut().map(|(_, at)| at))
            .chain(&mut self.needs_packages);
        for place in places.filter(|place| place.file == own) {
            place.commit = Some(commit.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn a_stamp_reaches_every_line_of_the_file_and_none_of_a_shipped_set() {
        let text = "policy: p\nnetwork: domains\nuse: [packages]\nallow:\n  - host: a.example\ndeny:\n  - host: b.example\n";
        let hosts = ["mirror.example".to_owned()];
        let mut policy = document::parse("dir/p.yml", text, Some(&hosts)).unwrap();
        let commit: Arc<str> = "0123456789abcdef0123456789abcdef01234567".into();
        policy.stamp(&commit);
        let stamped = |rule: &Rule| (rule.at.file.to_string(), rule.at.commit.is_some());
        let mut allow: Vec<_> = policy.allow.iter().map(stamped).collect();
        allow.sort();
        assert_eq!(
            allow,
            [
                ("dir/p.yml".to_owned(), true),
                ("set:packages".to_owned(), false)
            ]
        );
        assert_eq!(policy.deny[0].at.line(), "0123456789ab:dir/p.yml:7");
        assert_eq!(policy.network_at.to_string(), "0123456789ab:dir/p.yml:2:1");
    }

    #[test]
    fn a_file_that_is_called_like_a_stamp_is_not_stamped() {
        let policy = document::parse("0123456789ab:dir/p.yml", "policy: p\nnetwork: none\n", None);
        let place = serde_json::to_value(policy.unwrap().network_at).unwrap();
        assert!(place.get("commit").is_none(), "{place}");
    }
}
