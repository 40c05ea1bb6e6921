//! What a policy's `host:` means: one name, or every name below one.
//!
//! The only pattern is a whole first label `*`. It matches at any depth and never the apex, so `*.example.com` and
//! `example.com` are two statements. A `*` anywhere else is refused: no pattern may match by part of a label, or
//! `www*.com` would match a stranger's domain.

use serde::{Deserialize, Serialize};

use super::{Name, NameError};

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
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.contains('*') && text.trim_end_matches('.') == "*" {
            return Err(NameError::WildcardAlone);
        }
        match text.strip_prefix("*.") {
            Some(apex) => Name::parse(apex).map(Self::Below),
            None => Name::parse(text).map(Self::Exact),
        }
    }

    /// The one matcher.
    pub fn matches(&self, name: &Name) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Below(apex) => name.is_below(apex),
        }
    }

    /// The name that is written in the pattern.
    pub fn name(&self) -> &Name {
        match self {
            Self::Exact(name) | Self::Below(name) => name,
        }
    }

    /// Whether everything that `other` matches is matched by `self` too.
    pub fn covers(&self, other: &Pattern) -> bool {
        match (self, other) {
            (_, Self::Exact(name)) => self.matches(name),
            (Self::Exact(_), Self::Below(_)) => false,
            (Self::Below(wide), Self::Below(narrow)) => wide == narrow || narrow.is_below(wide),
        }
    }
}

impl std::str::FromStr for Pattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(name) => write!(f, "{name}"),
            Self::Below(apex) => write!(f, "*.{apex}"),
        }
    }
}
