//! Host names in one canonical form, and the one matcher.
//!
//! Policy text, DNS questions, server names, Host fields and CONNECT targets all become a [`Name`] here and are
//! compared nowhere else. Owns: the canonical form, [`Pattern`], the [`PatternIndex`] over many patterns, and the
//! strict [`Authority`]. Refuses to own: what a name may do (`decide`), and whether a pattern is wise (lints).
//!
//! A [`Name`] is lower-case ASCII (only ASCII is lower-cased; other letters go through IDNA, UTS 46
//! non-transitional), has 1 to 253 octets without a trailing dot, labels of 1 to 63 octets of letters, digits, `-`
//! and `_`, valid A-labels, and never a last label that some program would read as a number. Whatever is malformed is
//! refused with its own [`NameError`]; nothing is repaired.

mod authority;
mod error;
mod index;
mod parse;
mod pattern;

use serde::{Deserialize, Serialize};

pub use authority::{Authority, Host};
pub use error::NameError;
pub use index::PatternIndex;
pub use pattern::Pattern;

/// A host name in canonical form: lower-case ASCII, A-labels, no trailing dot, 1 to 253 octets.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Box<str>);

impl Name {
    /// Parses presentation text (policy, command line, configuration): IDNA to A-labels, one optional trailing dot.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        parse::presentation(text).map(Self)
    }

    /// From a server name or other wire text that must already be ASCII: no IDNA mapping, one optional trailing dot.
    pub fn parse_ascii(text: &[u8]) -> Result<Self, NameError> {
        parse::wire(text).map(Self)
    }

    /// From DNS labels without the root (a label that holds a dot or NUL is an error, never two labels).
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, NameError> {
        parse::labels(labels).map(Self)
    }

    /// Canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Labels, leftmost first.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }

    /// The name without its leftmost label; `None` for a single label.
    pub fn parent(&self) -> Option<Name> {
        self.0.split_once('.').map(|(_, rest)| Self(rest.into()))
    }

    /// Whether `self` lies strictly below `apex`, on a label border.
    pub fn is_below(&self, apex: &Name) -> bool {
        self.0
            .strip_suffix(apex.as_str())
            .is_some_and(|head| head.ends_with('.'))
    }

    /// The name whose permission a service question inherits: NAME of `_service._proto.NAME` (RFC 2782, and
    /// `_port._proto.NAME` of RFC 6698) and of `_port._https.NAME` (RFC 9460). Other underscore names inherit nothing.
    pub fn service_base(&self) -> Option<Name> {
        let (service, rest) = self.0.split_once('.')?;
        let (protocol, base) = rest.split_once('.')?;
        let service = service.strip_prefix('_')?;
        let fits = match protocol {
            "_tcp" | "_udp" | "_sctp" | "_dccp" => !service.is_empty() && !service.contains('_'),
            "_https" => !service.starts_with('0') && service.parse::<u16>().is_ok(),
            _ => false,
        };
        (fits && !base.starts_with('_')).then(|| Self(base.into()))
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0.into()
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
