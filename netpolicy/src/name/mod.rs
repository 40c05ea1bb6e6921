//! Host names in one canonical form, and the one matcher.

use serde::{Deserialize, Serialize};

/// A host name in canonical form: lower-case ASCII, A-labels, no trailing dot, 1 to 253 octets.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Box<str>);

/// Why a text or label sequence names no host. Display says what is wrong, lower case.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("stub")]
pub struct NameError;

impl Name {
    /// Parses presentation text (policy, Host, CONNECT): IDNA to A-labels, one optional trailing dot.
    pub fn parse(_text: &str) -> Result<Self, NameError> { todo!() }
    /// From a server name or other wire text that must already be ASCII: no IDNA mapping.
    pub fn parse_ascii(_text: &[u8]) -> Result<Self, NameError> { todo!() }
    /// From DNS labels (a label that holds a dot or NUL is an error, never two labels).
    pub fn from_labels<'a>(_labels: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, NameError> { todo!() }
    /// Canonical text.
    pub fn as_str(&self) -> &str { &self.0 }
    /// Labels, leftmost first.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> { self.0.split('.') }
    /// The name without its leftmost label; `None` for a single label.
    pub fn parent(&self) -> Option<Name> { todo!() }
    /// Whether `self` lies strictly below `apex`.
    pub fn is_below(&self, _apex: &Name) -> bool { todo!() }
}
impl TryFrom<String> for Name { type Error = NameError; fn try_from(t: String) -> Result<Self, NameError> { Self::parse(&t) } }
impl From<Name> for String { fn from(n: Name) -> String { n.0.into() } }
impl std::fmt::Display for Name { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(&self.0) } }

/// What a policy's `host:` means.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Pattern {
    /// Exactly this name.
    Exact(Name),
    /// Every name below this one, any depth, and not this one (`*.example.com`).
    Below(Name),
}
impl Pattern {
    /// Parses `example.com` or `*.example.com`; every other use of `*` is an error.
    pub fn parse(_text: &str) -> Result<Self, NameError> { todo!() }
    /// The one matcher.
    pub fn matches(&self, _name: &Name) -> bool { todo!() }
}

/// The host of an authority (`Host:` header, CONNECT target, URL).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Host {
    /// A name.
    Name(Name),
    /// A literal address (IPv6 was in brackets).
    Address(std::net::IpAddr),
}
/// `host[:port]` as RFC 9110 authority without userinfo.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Authority { /// Host part.
    pub host: Host, /// Port if written.
    pub port: Option<u16> }
impl Authority {
    /// Strict: no userinfo, no blanks, no empty or signed or overlong port, no zone id, no percent coding, only strict addresses; a last label that is numeric is an error.
    pub fn parse(_bytes: &[u8]) -> Result<Self, NameError> { todo!() }
}
