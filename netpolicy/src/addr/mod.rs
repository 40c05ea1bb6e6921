//! Addresses: strict text forms, and the class of every address.
//!
//! Owns: the tables of special blocks and of cloud metadata (`special.tsv`, `metadata.tsv`), the unwrapping of IPv4
//! addresses inside IPv6 ones, [`AddressBook::classify`], and the text forms that count as an address at all
//! ([`parse_ip`], [`parse_net`]). Refuses to own: whether a policy opens a class (`decide`), and how prefixes and host
//! addresses are learnt (the gateway hands them in).
//!
//! Classification works on bits, never on spelling, and is total. It fails towards "never": a block that nobody listed
//! is special, and a table that cannot be read would make every address unreachable.

mod book;
mod embedding;
mod table;
mod text;

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

pub use book::AddressBook;
pub use text::{AddressError, parse_ip, parse_net};

/// What kind of place an address is (architecture: destination classes).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Globally reachable.
    Public,
    /// Private-use, shared, unique-local, on-link or routed prefixes, `gateway.local_networks`.
    Private,
    /// An address of the machine itself.
    Host,
    /// Benchmarking, documentation, reserved, translated, link-local that is not metadata.
    Special,
    /// Cloud metadata.
    Metadata,
    /// Loopback and unspecified.
    Loopback,
    /// Multicast and broadcast.
    Multicast,
    /// The gateway's service addresses and pools.
    Gateway,
}

impl Class {
    /// How far a policy may open the class.
    pub const fn reach(self) -> Reach {
        match self {
            Self::Public => Reach::Policy,
            Self::Private | Self::Host => Reach::Private,
            Self::Special => Reach::PrivateByCidr,
            Self::Metadata | Self::Loopback | Self::Multicast | Self::Gateway => Reach::Never,
        }
    }
}

/// What it takes to reach an address; a greater value takes less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// No policy opens it.
    Never,
    /// A `cidr` rule that names it, and `private: true`.
    PrivateByCidr,
    /// `private: true`.
    Private,
    /// The policy says so.
    Policy,
}

/// A class together with the block that gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Classified {
    /// The class.
    pub class: Class,
    /// That of the class, except that the NAT64 well-known prefix around an address that is not public is never
    /// reachable (RFC 6052 section 3.1 forbids such addresses).
    pub reach: Reach,
    /// Label of the table row or input that decided (`private-use`, `on-link or routed prefix`, ...).
    pub label: &'static str,
    /// The IPv4 address that was unwrapped, if any.
    pub embedded: Option<Ipv4Addr>,
}

impl Classified {
    const fn new(class: Class, label: &'static str) -> Self {
        Self {
            class,
            reach: class.reach(),
            label,
            embedded: None,
        }
    }

    const fn unwrapped(self, embedded: Ipv4Addr) -> Self {
        Self {
            embedded: Some(embedded),
            ..self
        }
    }
}
