//! The class of an address, from the tables and from what the gateway knows about its surroundings.
//!
//! Precedence: metadata; the gateway's pools; loopback and multicast (each also when embedded); the host's own
//! addresses; special blocks and embeddings; on-link and routed prefixes; the rest of the table. A local prefix turns
//! public into private and nothing else; a learnt NAT64 prefix gives an address the class of the one inside it. Every
//! input applies to the embedded address as well.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

use super::embedding::{self, Embedding};
use super::table::{Row, TABLES};
use super::{Class, Classified, Reach};
use crate::name::Name;

/// A route shorter than this counts as a default route: `0.0.0.0/1` and its twin are how VPNs take everything.
const SHORTEST_LOCAL_V4: u8 = 8;
/// The same for IPv6; providers hold /20 at most, so nothing shorter is a neighbourhood.
const SHORTEST_LOCAL_V6: u8 = 20;

const WELL_KNOWN_NAT64: u8 = 96;

/// Inputs to classification that are not constants: pools, host addresses, prefixes, learnt NAT64 prefixes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AddressBook {
    /// The gateway's service addresses and pools.
    pub gateway: Vec<IpNet>,
    /// Addresses of the uplink namespace, `gateway.host_addresses`, learnt public ones.
    pub host: Vec<IpAddr>,
    /// On-link and non-default routed prefixes (shorter than /8 or /20 for IPv6 count as default and are left out by
    /// `set_local`), and `gateway.local_networks`.
    pub local: Vec<IpNet>,
    /// Learnt NAT64 prefixes (RFC 6052 lengths 32, 40, 48, 56, 64, 96).
    pub nat64: Vec<Ipv6Net>,
    /// Further metadata addresses from configuration.
    pub metadata: Vec<IpNet>,
}

impl AddressBook {
    /// Replaces the local prefixes by those connected or routed, leaving out default routes and what counts as one.
    pub fn set_local(&mut self, routes: impl IntoIterator<Item = IpNet>) {
        let is_local = |net: &IpNet| match net {
            IpNet::V4(net) => net.prefix_len() >= SHORTEST_LOCAL_V4,
            IpNet::V6(net) => net.prefix_len() >= SHORTEST_LOCAL_V6,
        };
        self.local = routes.into_iter().filter(is_local).collect();
    }

    /// Adds `gateway.local_networks`: an operator's word, of any length.
    pub fn add_local(&mut self, networks: impl IntoIterator<Item = IpNet>) {
        self.local.extend(networks);
    }

    /// The class of an address. Total; longest prefix first; metadata beats all, gateway pools next.
    pub fn classify(&self, address: IpAddr) -> Classified {
        match address.to_canonical() {
            IpAddr::V4(inner) if address.is_ipv6() => self.classify_v4(inner).unwrapped(inner),
            IpAddr::V4(address) => self.classify_v4(address),
            IpAddr::V6(address) => self.classify_v6(address),
        }
    }

    /// Whether a name is one of the cloud metadata names, or below one.
    pub fn is_metadata_name(name: &Name) -> bool {
        TABLES.is_metadata_name(name)
    }

    /// Whether a `cidr` rule with this prefix names special space: it holds special blocks, and nothing public or
    /// private. `0.0.0.0/0` names nothing; 240.0.0.0/4 does, though the broadcast address in it stays unreachable.
    pub fn names_special(net: &IpNet) -> bool {
        TABLES.is_special_space(net)
    }

    /// Whether no policy opens any address of the prefix, on any machine: metadata, loopback, multicast.
    pub fn is_never_open(net: &IpNet) -> bool {
        TABLES.is_never_open(net)
    }

    /// Whether the prefix could hold a public address on some machine. IPv6 ranges can translate to IPv4 ones, so of
    /// them only those that are never open hold none.
    pub fn may_hold_public(net: &IpNet) -> bool {
        match net {
            IpNet::V4(_) => TABLES.holds(net, |class| class == Class::Public),
            IpNet::V6(_) => !Self::is_never_open(net),
        }
    }

    /// Whether a `cidr` entry with this prefix could open special addresses: both its ends lie in special space.
    pub fn may_name_special(net: &IpNet) -> bool {
        let book = Self::default();
        let is_special = |address| book.classify(address).class == Class::Special;
        is_special(net.network()) && is_special(net.broadcast())
    }

    /// The first address of every stretch of one class, by the tables alone.
    pub fn borders() -> impl Iterator<Item = IpAddr> {
        TABLES.borders()
    }

    /// Every address that a rule denying one of them must also deny: the address itself (IPv4-mapped ones as IPv4),
    /// then the IPv4 addresses it embeds.
    pub fn forms(&self, address: IpAddr) -> Vec<IpAddr> {
        let address = address.to_canonical();
        let mut forms = vec![address];
        if let IpAddr::V6(v6) = address {
            forms.extend(
                self.nat64
                    .iter()
                    .filter_map(|prefix| embedding::in_nat64(prefix, v6))
                    .map(IpAddr::V4),
            );
            match embedding::of(v6) {
                Some(Embedding::WellKnown(inner)) => forms.push(inner.into()),
                Some(Embedding::Other { inner, .. }) => {
                    forms.extend(inner.into_iter().map(IpAddr::V4));
                }
                None => {}
            }
        }
        forms
    }

    fn classify_v4(&self, address: Ipv4Addr) -> Classified {
        let row = TABLES.row(address.into());
        let claimed = self
            .never(address.into(), row)
            .or_else(|| self.own(address.into()));
        claimed.unwrap_or_else(|| self.settled(address.into(), row))
    }

    /// A host address stays one in any form (its closed ports depend on that), unless it embeds what is never reachable.
    fn classify_v6(&self, address: Ipv6Addr) -> Classified {
        let row = TABLES.row(address.into());
        if let Some(never) = self.never(address.into(), row) {
            return never;
        }
        match self.carried(address, row) {
            Some(carried) if carried.reach == Reach::Never => carried,
            carried => self
                .own(address.into())
                .or(carried)
                .unwrap_or_else(|| self.settled(address.into(), row)),
        }
    }

    /// The class that an embedded IPv4 address gives, if there is one.
    fn carried(&self, address: Ipv6Addr, row: Row) -> Option<Classified> {
        match (embedding::of(address), self.learnt(address)) {
            (Some(Embedding::WellKnown(inner)), _) => Some(self.well_known(address, inner, row)),
            (_, Some((prefix, inner))) => {
                Some(self.translated(address, prefix.prefix_len(), inner))
            }
            (Some(Embedding::Other { inner, isatap }), None) => {
                Some(self.strictest(&inner, if isatap { "ISATAP" } else { row.label }))
            }
            (None, None) => None,
        }
    }

    /// What no policy opens, by the address itself.
    fn never(&self, address: IpAddr, row: Row) -> Option<Classified> {
        let within = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
        if let Some(label) = TABLES.metadata(address) {
            return Some(Classified::new(Class::Metadata, label));
        }
        if within(&self.metadata) {
            return Some(Classified::new(
                Class::Metadata,
                "configured metadata address",
            ));
        }
        if within(&self.gateway) {
            return Some(Classified::new(Class::Gateway, "gateway pool"));
        }
        let is_never = matches!(row.class, Class::Loopback | Class::Multicast);
        is_never.then(|| Classified::new(row.class, row.label))
    }

    fn own(&self, address: IpAddr) -> Option<Classified> {
        let is_own = self.host.iter().any(|host| host.to_canonical() == address);
        is_own.then(|| Classified::new(Class::Host, "address of the host"))
    }

    /// The table's class, where a local prefix makes public private.
    fn settled(&self, address: IpAddr, row: Row) -> Classified {
        let found = Classified::new(row.class, row.label);
        if row.class == Class::Public && self.local.iter().any(|net| net.contains(&address)) {
            return ON_LINK;
        }
        found
    }

    fn learnt(&self, address: Ipv6Addr) -> Option<(&Ipv6Net, Ipv4Addr)> {
        let inside = self
            .nat64
            .iter()
            .filter_map(|prefix| Some((prefix, embedding::in_nat64(prefix, address)?)));
        inside.max_by_key(|(prefix, _)| prefix.prefix_len())
    }

    /// The class of the embedded address. A local prefix inside the NAT64 prefix, or equal to it, is a network of
    /// its own and stays private; only a /96 equal to it is the route to the translator (no link has that length).
    fn translated(&self, address: Ipv6Addr, length: u8, inner: Ipv4Addr) -> Classified {
        let found = self.classify_v4(inner).unwrapped(inner);
        let shadows = |net: &IpNet| {
            let longer = net.prefix_len() > length
                || (net.prefix_len() == length && length < WELL_KNOWN_NAT64);
            longer && net.contains(&IpAddr::V6(address))
        };
        if found.class == Class::Public && self.local.iter().any(shadows) {
            return ON_LINK.unwrapped(inner);
        }
        found
    }

    fn well_known(&self, address: Ipv6Addr, inner: Ipv4Addr, row: Row) -> Classified {
        let found = self.translated(address, WELL_KNOWN_NAT64, inner);
        match found.class {
            Class::Public
            | Class::Metadata
            | Class::Loopback
            | Class::Multicast
            | Class::Gateway => found,
            Class::Private | Class::Host | Class::Special => Classified {
                class: Class::Special,
                reach: Reach::Never,
                label: row.label,
                embedded: Some(inner),
            },
        }
    }

    /// Special, or what is never reachable when something such is embedded.
    fn strictest(&self, inner: &[Ipv4Addr], label: &'static str) -> Classified {
        let special = Classified {
            embedded: inner.first().copied(),
            ..Classified::new(Class::Special, label)
        };
        let found = inner
            .iter()
            .map(|&inner| self.classify_v4(inner).unwrapped(inner));
        let inside: Vec<_> = found.filter(|found| found.reach == Reach::Never).collect();
        let metadata = inside.iter().find(|found| found.class == Class::Metadata);
        metadata.or(inside.first()).cloned().unwrap_or(special)
    }
}

const ON_LINK: Classified = Classified::new(Class::Private, "on-link or routed prefix");
