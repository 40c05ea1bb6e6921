//! Identifiers that the crates share: networks, runs, flows, policy hashes, generations.
//!
//! All are opaque outside; none is ever interpolated into a shell, a kernel name or a path without its own check.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a type around a checked text offers: the text itself, and the way back through its check for serde.
macro_rules! checked_text {
    ($name:ident) => {
        impl $name {
            /// The text form.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = <Self as ::std::str::FromStr>::Err;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0.into()
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}
pub(crate) use checked_text;

/// A network's identity for its whole life: 1 to 40 characters of `a-z 0-9 -`, starting with a letter or digit.
///
/// Two networks never share one, also across restarts: the gateway allots it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NetworkId(Box<str>);

/// Why a text is not a [`NetworkId`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "a network name has 1 to 40 characters of a-z, 0-9 and '-', and starts with a letter or digit"
)]
pub struct NetworkIdError;

impl FromStr for NetworkId {
    type Err = NetworkIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits =
            (1..=40).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(is_plain);
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(NetworkIdError)
        }
    }
}

checked_text!(NetworkId);

/// `a-z 0-9 -`: nothing that means something to a shell, to nft or in a path.
pub(crate) fn is_plain(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

/// SHA-256 over everything that a network's effective policy is composed of; shown as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicyHash(pub [u8; 32]);

impl fmt::Display for PolicyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for PolicyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for PolicyHash {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err("a policy hash has 64 hex digits");
        }
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| "a policy hash has 64 hex digits")?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| "a policy hash has 64 hex digits")?;
        }
        Ok(Self(out))
    }
}

impl TryFrom<String> for PolicyHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PolicyHash> for String {
    fn from(hash: PolicyHash) -> Self {
        hash.to_string()
    }
}

/// Counts replacements of one network's policy; 1 is the policy it was attached with.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
)]
pub struct Generation(pub u64);

/// Seconds since the Unix epoch, handed in by whoever owns a clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct UnixSeconds(pub i64);
