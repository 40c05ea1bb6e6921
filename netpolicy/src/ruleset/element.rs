//! Members of the source sets: an interface and an address that belong together.
//!
//! Interface names are checked here, once: no text of a policy or a run ever becomes part of a kernel name.

use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::SetName;
use crate::ids::{checked_text, is_plain};

/// A kernel interface name: 1 to 15 characters of `a-z 0-9 -`, starting with a letter.
///
/// Narrower than the kernel's own rule on purpose: nothing that means something to a shell, to nft or in a path.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceName(Box<str>);

/// Why a text is no interface name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an interface name has 1 to 15 characters of a-z, 0-9 and '-', and starts with a letter")]
pub struct ElementError;

impl InterfaceName {
    /// As the kernel compares it: 16 bytes, padded with zeros.
    pub fn padded(&self) -> [u8; 16] {
        let mut out = [0; 16];
        for (to, from) in out.iter_mut().zip(self.0.bytes()) {
            *to = from;
        }
        out
    }
}

impl FromStr for InterfaceName {
    type Err = ElementError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=15).contains(&text.len())
            && text.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
            && text.bytes().all(is_plain);
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(ElementError)
        }
    }
}

checked_text!(InterfaceName);

/// One member of a source set.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Element {
    /// The interface in the gateway namespace.
    pub interface: InterfaceName,
    /// The only address that may come in there (a multi-member link has one element for each member).
    pub address: IpAddr,
}

impl Element {
    /// The set it belongs to.
    pub const fn set(&self) -> SetName {
        match self.address {
            IpAddr::V4(_) => SetName::Source4,
            IpAddr::V6(_) => SetName::Source6,
        }
    }

    /// The key as the kernel holds it: padded interface name, then the address in network order.
    pub fn key(&self) -> Vec<u8> {
        let mut key = self.interface.padded().to_vec();
        match self.address {
            IpAddr::V4(address) => key.extend(address.octets()),
            IpAddr::V6(address) => key.extend(address.octets()),
        }
        key
    }
}
