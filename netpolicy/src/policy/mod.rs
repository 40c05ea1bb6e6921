//! The checked meaning of one policy document.

use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::ids::{PolicyHash, UnixSeconds};
use crate::name::Pattern;

/// How much network a policy gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode { /// Nothing.
    None, /// Listed destinations.
    Domains, /// Every public destination that nothing denies.
    Internet }

/// What the gateway's DNS answers for a permitted name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamesMode { /// Synthetic addresses.
    Leased, /// The checked upstream addresses.
    Real }

/// Transport protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol { /// TCP.
    Tcp, /// UDP.
    Udp }

/// How the bytes of a flow are judged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaks { /// TLS with the server name of the lease (default on 443).
    Tls, /// HTTP/1 heads, each checked (default on 80).
    Http, /// Anything; a ClientHello or HTTP head must agree with the lease.
    Any }

/// Where in which file something stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Place { /// File as the author knows it; presets are `preset:NAME`.
    pub file: Arc<str>, /// Line, from 1.
    pub line: u32, /// Column, from 1.
    pub column: u32 }

/// Ports: a set of inclusive ranges; `any` is 1-65535.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ports(pub Vec<std::ops::RangeInclusive<u16>>);
impl Ports { /// Membership.
    pub fn contains(&self, port: u16) -> bool { self.0.iter().any(|r| r.contains(&port)) } }

/// What a rule names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selector { /// `host:`
    Host(Pattern), /// `cidr:`
    Cidr(IpNet) }

/// One `allow` or `deny` entry (entries of used sets are expanded, with their own place).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What it names.
    pub to: Selector,
    /// Ports; for an allowed host 80 and 443 unless written; for a deny all unless written.
    pub ports: Ports,
    /// Transport; a deny without one covers both (`None`).
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

/// `{ methods: [...], paths: [...] }`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpRule { /// Empty: any.
    pub methods: Vec<String>, /// Empty: any.
    pub paths: Vec<String> }

/// `{ secret, host, header }`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecretUse { /// Its name.
    pub secret: String, /// Where it may go.
    pub host: Pattern, /// Header shape with `{}`.
    pub header: String, /// Place.
    pub at: Place }

/// `ingress:` entry: the gateway may open connections to this port of the sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngressRule { /// Sandbox ports.
    pub ports: Ports, /// Place.
    pub at: Place }

/// Budgets; `None` is the gateway's default (256 flows, 50 new a second, 500 names; no byte limits).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Concurrent flows.
    pub flows: Option<u32>,
    /// New flows a second.
    pub rate: Option<u32>,
    /// Bytes up for the whole run.
    pub upload: Option<u64>,
    /// Bytes down for the whole run.
    pub download: Option<u64>,
    /// Bytes a second, each way.
    pub bandwidth: Option<u64>,
    /// Distinct names.
    pub names: Option<u32>,
    /// Record entries.
    pub records: Option<u64>,
}

/// What becomes of a first contact that nothing names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown { /// Denied.
    Deny, /// A person is asked.
    Ask }

/// One checked policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// `policy:`
    pub name: String,
    /// `description:`
    pub description: String,
    /// `network:`
    pub network: NetworkMode,
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
    /// Features that are understood but not enforced yet; running such a policy is refused with "not enforced yet".
    pub unenforced: Vec<(String, Place)>,
    /// Where the document begins.
    pub at: Place,
    /// SHA-256 of the text it came from (preset text for presets).
    pub hash: PolicyHash,
}
