//! Where synthetic addresses come from: a keyed hash of workspace and name, with probing.
//!
//! Keyed, so that nobody outside can tell names from addresses or make two names meet; by workspace, so that the same
//! name tends to get the same address in later runs (tools that cache by address keep working) and two workspaces
//! learn nothing about each other.

use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use netpolicy::name::Name;
use siphasher::sip::SipHasher13;

/// The pools of one gateway; the same for all its networks.
#[derive(Clone, Debug)]
pub struct LeasePools {
    /// IPv4 pool; its first and last address are never handed out.
    pub v4: Ipv4Net,
    /// IPv6 pool; its first 2^64 or fewer addresses are used.
    pub v6: Ipv6Net,
    /// Key of the hash, made at install.
    pub key: [u8; 16],
}

impl LeasePools {
    /// The first free pair in probing order; `None` when a pool is full.
    pub(super) fn pick(
        &self,
        workspace: &str,
        name: &Name,
        taken: impl Fn(IpAddr) -> bool,
    ) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let hash = self.hash(workspace, name);
        Some((self.pick_v4(hash, &taken)?, self.pick_v6(hash, &taken)?))
    }

    fn hash(&self, workspace: &str, name: &Name) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write_u64(workspace.len() as u64);
        hasher.write(workspace.as_bytes());
        hasher.write(name.as_str().as_bytes());
        hasher.finish()
    }

    fn pick_v4(&self, hash: u64, taken: &impl Fn(IpAddr) -> bool) -> Option<Ipv4Addr> {
        // without the first and the last: some programs take them for network and broadcast
        let usable = (1_u64 << (32 - self.v4.prefix_len()))
            .checked_sub(2)
            .filter(|n| *n > 0)?;
        let base = u64::from(u32::from(self.v4.network()));
        (0..usable).find_map(|step| {
            let offset = (hash % usable + step) % usable + 1;
            let address = Ipv4Addr::from(u32::try_from(base + offset).ok()?);
            (!taken(address.into())).then_some(address)
        })
    }

    fn pick_v6(&self, hash: u64, taken: &impl Fn(IpAddr) -> bool) -> Option<Ipv6Addr> {
        let bits = 128 - u32::from(self.v6.prefix_len()).max(64);
        let mask = if bits == 64 {
            u64::MAX
        } else {
            (1 << bits) - 1
        };
        let base = u128::from(self.v6.network());
        (0..mask).find_map(|step| {
            // zero is the subnet-router anycast address (RFC 4291 2.6.1)
            let offset = Some(hash.wrapping_add(step) & mask).filter(|offset| *offset != 0)?;
            let address = Ipv6Addr::from(base | u128::from(offset));
            (!taken(address.into())).then_some(address)
        })
    }
}
