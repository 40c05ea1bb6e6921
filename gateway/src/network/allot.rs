//! Allotment: identities, addresses and link names of new networks.
//!
//! Pure book-keeping over what is in use; nothing here is ever given out twice at once. A link's name comes from the
//! identity by hash, so that no text of a user reaches the kernel.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netpolicy::ids::NetworkId;
use sha2::{Digest, Sha256};

/// Networks of the selftest at once: places and addresses that are never anybody else's, so that the gateway can always
/// try itself, however many sandboxes there are.
pub const PROBES: u32 = 2;

/// Whose network it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// A user's.
    User,
    /// One of the gateway's own, in which it tries itself.
    Probe,
}

/// The address pools of one gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pools {
    /// Sandboxes; the first usable address is the service address.
    pub sandboxes: Ipv4Net,
    /// Synthetic addresses of names.
    pub leases: Ipv4Net,
    /// The instance's own unique local prefix (/48).
    pub ula: Ipv6Net,
}

impl Pools {
    /// Sandboxes that there are addresses for, apart from the probes.
    pub fn places(&self) -> u32 {
        let size = u32::try_from(1_u64 << (32 - self.sandboxes.prefix_len())).unwrap_or(u32::MAX);
        // Neither the network nor the broadcast address, nor the service address behind the former.
        size.saturating_sub(3).saturating_sub(PROBES)
    }

    /// Where DNS, broker and explicit proxy answer.
    pub fn service_v4(&self) -> Ipv4Addr {
        self.sandboxes
            .hosts()
            .next()
            .unwrap_or(self.sandboxes.addr())
    }

    /// Its IPv6 twin: subnet 0 of the prefix.
    pub fn service_v6(&self) -> Ipv6Addr {
        self.subnet_v6(0, 1)
    }

    /// Synthetic IPv6 addresses of names: subnet 2.
    pub fn leases_v6(&self) -> Ipv6Net {
        Ipv6Net::new(self.subnet_v6(2, 0), 64).unwrap_or(self.ula)
    }

    /// Everything that belongs to the gateway, for the address book.
    pub fn all(&self) -> Vec<IpNet> {
        vec![self.sandboxes.into(), self.leases.into(), self.ula.into()]
    }

    /// A sandbox's IPv6 address: subnet 1, with the IPv4 address as interface identifier.
    pub fn twin(&self, v4: Ipv4Addr) -> Ipv6Addr {
        self.subnet_v6(1, u64::from(u32::from(v4)))
    }

    fn subnet_v6(&self, subnet: u16, interface: u64) -> Ipv6Addr {
        let base = u128::from(self.ula.network());
        Ipv6Addr::from(base | (u128::from(subnet) << 64) | u128::from(interface))
    }
}

/// What one network has to itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allotted {
    /// Identity.
    pub id: NetworkId,
    /// IPv4 address.
    pub v4: Ipv4Addr,
    /// IPv6 address.
    pub v6: Ipv6Addr,
    /// Name of the outer link.
    pub link: String,
}

/// No network can be allotted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AllotError {
    /// The wished identity is in use.
    #[error("there is a network {0} already")]
    InUse(NetworkId),
    /// Every address is in use.
    #[error("no sandbox address is free in {0}")]
    Full(Ipv4Net),
    /// Each network holds descriptors, and so many networks have taken their part of them.
    #[error("there are {0} networks, and the process's open files are enough for no more")]
    Crowded(usize),
    /// The system has no randomness to give.
    #[error("no random identity could be made")]
    Random,
}

/// What is in use.
#[derive(Debug)]
pub struct Allotments {
    pools: Pools,
    ids: HashSet<NetworkId>,
    addresses: HashSet<Ipv4Addr>,
    links: HashSet<String>,
    /// Where the search goes on: an address that was just given back is the last to be given out again (NET-04).
    next: u32,
}

impl Allotments {
    /// Nothing is in use yet.
    pub fn new(pools: Pools) -> Self {
        Self {
            pools,
            ids: HashSet::new(),
            addresses: HashSet::new(),
            links: HashSet::new(),
            next: 0,
        }
    }

    /// Notes a network that exists already; `false` if it contradicts another.
    pub fn adopt(&mut self, taken: &Allotted) -> bool {
        let free = self.pools.sandboxes.contains(&taken.v4)
            && taken.v4 != self.pools.service_v4()
            && self.pools.twin(taken.v4) == taken.v6
            && link_name(&taken.id) == taken.link
            && !self.ids.contains(&taken.id)
            && !self.addresses.contains(&taken.v4)
            && !self.links.contains(&taken.link);
        if free {
            self.take(taken);
        }
        free
    }

    /// Allots; addresses inside `avoid` (prefixes that the host routes elsewhere) are passed over.
    pub fn allot(
        &mut self,
        wish: Option<NetworkId>,
        whose: Whose,
        avoid: &[IpNet],
    ) -> Result<Allotted, AllotError> {
        let (id, link) = self.identity(wish)?;
        let v4 = self
            .address(whose, avoid)
            .ok_or(AllotError::Full(self.pools.sandboxes))?;
        let taken = Allotted {
            id,
            v4,
            v6: self.pools.twin(v4),
            link,
        };
        self.take(&taken);
        Ok(taken)
    }

    /// Gives back.
    pub fn release(&mut self, taken: &Allotted) {
        self.ids.remove(&taken.id);
        self.addresses.remove(&taken.v4);
        self.links.remove(&taken.link);
    }

    fn take(&mut self, taken: &Allotted) {
        self.ids.insert(taken.id.clone());
        self.addresses.insert(taken.v4);
        self.links.insert(taken.link.clone());
    }

    fn identity(&self, wish: Option<NetworkId>) -> Result<(NetworkId, String), AllotError> {
        if let Some(id) = wish {
            let link = link_name(&id);
            let free = !self.ids.contains(&id) && !self.links.contains(&link);
            return if free {
                Ok((id, link))
            } else {
                Err(AllotError::InUse(id))
            };
        }
        // 64 random bits; a second try is for the test of this sentence only.
        for _ in 0..4 {
            let mut bytes = [0; 8];
            getrandom::fill(&mut bytes).map_err(|_| AllotError::Random)?;
            let id: NetworkId = format!("n{:016x}", u64::from_be_bytes(bytes))
                .parse()
                .map_err(|_| AllotError::Random)?;
            let link = link_name(&id);
            if !self.ids.contains(&id) && !self.links.contains(&link) {
                return Ok((id, link));
            }
        }
        Err(AllotError::Random)
    }

    fn address(&mut self, whose: Whose, avoid: &[IpNet]) -> Option<Ipv4Addr> {
        let base = u32::from(self.pools.sandboxes.network());
        // behind those of users come the probes'
        let common = Some(self.pools.places()).filter(|n| *n > 0)?;
        let usable = common + PROBES;
        let free = |offset: &u32| {
            let candidate = Ipv4Addr::from(base + 2 + offset);
            let elsewhere = avoid.iter().any(|net| {
                net.contains(&IpAddr::V4(candidate))
                    && !net.contains(&IpNet::V4(self.pools.sandboxes))
            });
            !elsewhere && !self.addresses.contains(&candidate)
        };
        let own = match whose {
            Whose::Probe => (common..usable).find(free),
            Whose::User => None,
        };
        let offset = own.or_else(|| {
            let turns = (0..common).map(|step| (self.next.wrapping_add(step)) % common);
            let offset = { turns }.find(free)?;
            self.next = (offset + 1) % common;
            Some(offset)
        })?;
        Some(Ipv4Addr::from(base + 2 + offset))
    }
}

/// Name of a network's outer link: 14 characters (the kernel takes 15), of which 12 are a hash.
pub fn link_name(id: &NetworkId) -> String {
    let hash = Sha256::digest(id.as_str());
    hash.iter()
        .take(6)
        .fold("sp".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(prefix: &str) -> Pools {
        Pools {
            sandboxes: prefix.parse().unwrap(),
            leases: "198.19.0.0/16".parse().unwrap(),
            ula: "fd12:3456:789a::/48".parse().unwrap(),
        }
    }

    #[test]
    fn addresses_lie_in_the_pools_and_never_meet_the_service_address() {
        let mut allotments = Allotments::new(pools("198.18.0.0/29"));
        let taken: Vec<_> =
            std::iter::from_fn(|| allotments.allot(None, Whose::User, &[]).ok()).collect();
        let addresses: Vec<String> = taken.iter().map(|t| t.v4.to_string()).collect();
        assert_eq!(addresses, ["198.18.0.2", "198.18.0.3", "198.18.0.4"]);
        assert_eq!(taken[0].v6.to_string(), "fd12:3456:789a:1::c612:2");
        assert_eq!(
            pools("198.18.0.0/16").service_v6().to_string(),
            "fd12:3456:789a::1"
        );
        assert!(matches!(
            allotments.allot(None, Whose::User, &[]),
            Err(AllotError::Full(_))
        ));
    }

    #[test]
    fn a_full_pool_has_room_for_the_gateways_own_probes_and_they_take_nobody_elses() {
        let mut allotments = Allotments::new(pools("198.18.0.0/29"));
        let mut probe = || {
            let taken = allotments.allot(None, Whose::Probe, &[]).ok()?;
            Some((taken.v4.to_string(), taken))
        };
        let (first, second) = (probe().unwrap(), probe().unwrap());
        assert_eq!((&*first.0, &*second.0), ("198.18.0.5", "198.18.0.6"));
        allotments.release(&first.1);
        allotments.release(&second.1);
        while allotments.allot(None, Whose::User, &[]).is_ok() {}
        for _ in 0..PROBES {
            assert!(allotments.allot(None, Whose::Probe, &[]).is_ok());
        }
        assert!(allotments.allot(None, Whose::Probe, &[]).is_err());
    }

    #[test]
    fn an_address_given_back_is_the_last_to_be_given_out_again() {
        let mut allotments = Allotments::new(pools("198.18.0.0/29"));
        let first = allotments.allot(None, Whose::User, &[]).unwrap();
        allotments.release(&first);
        let next: Vec<_> = (0..3)
            .map(|_| allotments.allot(None, Whose::User, &[]).unwrap().v4)
            .collect();
        assert_eq!(next.last(), Some(&first.v4));
        assert_ne!(next.first(), Some(&first.v4));
    }

    #[test]
    fn prefixes_that_the_host_routes_are_passed_over_and_a_route_over_the_whole_pool_is_not_believed_to_be_one()
     {
        let mut allotments = Allotments::new(pools("198.18.0.0/24"));
        let avoid = [
            "198.18.0.0/25".parse().unwrap(),
            "198.18.0.0/15".parse().unwrap(),
        ];
        assert_eq!(
            allotments.allot(None, Whose::User, &avoid).unwrap().v4,
            Ipv4Addr::new(198, 18, 0, 128)
        );
    }

    #[test]
    fn a_wished_identity_is_refused_while_it_is_in_use() {
        let mut allotments = Allotments::new(pools("198.18.0.0/16"));
        let id: NetworkId = "dev".parse().unwrap();
        let taken = allotments
            .allot(Some(id.clone()), Whose::User, &[])
            .unwrap();
        assert_eq!(
            allotments.allot(Some(id.clone()), Whose::User, &[]),
            Err(AllotError::InUse(id.clone()))
        );
        allotments.release(&taken);
        assert!(allotments.allot(Some(id), Whose::User, &[]).is_ok());
    }

    #[test]
    fn link_names_fit_the_kernel_and_hold_nothing_of_the_identity() {
        for id in ["a", "flush-ruleset", &"x".repeat(40)] {
            let name = link_name(&id.parse().unwrap());
            assert!(
                name.len() <= 15
                    && name.starts_with("sp")
                    && name.bytes().all(|b| b.is_ascii_alphanumeric())
                    && crate::kernel::is_our_link(&name),
                "{name}"
            );
        }
    }

    #[test]
    fn state_that_contradicts_a_live_network_is_not_adopted() {
        let mut allotments = Allotments::new(pools("198.18.0.0/16"));
        let taken = allotments.allot(None, Whose::User, &[]).unwrap();
        assert!(!allotments.adopt(&taken));
        allotments.release(&taken);
        let forged = [
            Allotted {
                v4: Ipv4Addr::new(198, 18, 0, 1),
                ..taken.clone()
            },
            Allotted {
                v4: Ipv4Addr::new(10, 0, 0, 1),
                ..taken.clone()
            },
            Allotted {
                v6: Ipv6Addr::LOCALHOST,
                ..taken.clone()
            },
            Allotted {
                link: "lo".to_owned(),
                ..taken.clone()
            },
        ];
        assert!(forged.iter().all(|f| !allotments.adopt(f)));
        assert!(allotments.adopt(&taken));
    }
}
