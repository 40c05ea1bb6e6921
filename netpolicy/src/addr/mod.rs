//! Addresses: strict text forms, and the class of every address.

use std::net::IpAddr;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// What kind of place an address is (architecture: destination classes).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
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

/// A class together with the block that gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Classified {
    /// The class.
    pub class: Class,
    /// Label of the table row or input that decided (`private-use`, `on-link prefix`, ...).
    pub label: &'static str,
    /// The IPv4 address that was unwrapped, if any.
    pub embedded: Option<std::net::Ipv4Addr>,
}

/// Inputs to classification that are not constants: pools, host addresses, prefixes, learnt NAT64 prefixes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AddressBook {
    /// The gateway's service addresses and pools.
    pub gateway: Vec<IpNet>,
    /// Addresses of the uplink namespace, `gateway.host_addresses`, learnt public ones.
    pub host: Vec<IpAddr>,
    /// On-link and non-default routed prefixes (shorter than /8 or /20 for IPv6 count as default and are left out by `set_local`), and `gateway.local_networks`.
    pub local: Vec<IpNet>,
    /// Learnt NAT64 prefixes (RFC 6052 lengths 32, 40, 48, 56, 64, 96).
    pub nat64: Vec<ipnet::Ipv6Net>,
    /// Further metadata addresses from configuration.
    pub metadata: Vec<IpNet>,
}
impl AddressBook {
    /// The class of an address. Total; longest prefix first; metadata beats all, gateway pools next.
    pub fn classify(&self, _address: IpAddr) -> Classified { todo!() }
    /// Whether a name is one of the cloud metadata names.
    pub fn is_metadata_name(_name: &crate::name::Name) -> bool { todo!() }
}

/// Why a text is no address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("stub")]
pub struct AddressError;
/// Strict dotted-quad or RFC 4291 text only (no octal, hex, short, decimal forms, zone ids, brackets).
pub fn parse_ip(_text: &str) -> Result<IpAddr, AddressError> { todo!() }
/// `address/len` with no host bits set; a bare address is a single-address prefix.
pub fn parse_net(_text: &str) -> Result<IpNet, AddressError> { todo!() }
