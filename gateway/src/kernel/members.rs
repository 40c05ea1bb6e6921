//! What the enforcer remembers between calls: what holds the rules, the posture in force and the attached networks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netpolicy::ruleset::{Element, InterfaceName};

use super::backend::Rules;
use super::enforcer::Posture;
use super::error::KernelError;
use super::netns::{Ns, NsId};
use crate::member::Membership;

/// One lock: rules, elements and what is known of links change together.
#[derive(Debug)]
pub(super) struct State {
    pub(super) firewall: Rules,
    pub(super) posture: Posture,
    pub(super) members: BTreeMap<InterfaceName, Member>,
    /// Links that are being made or deleted: neither missing nor strange.
    pub(super) moving: BTreeSet<InterfaceName>,
    /// Sandboxes that are being wired: each for one network.
    pub(super) wiring: BTreeSet<NsId>,
    /// Links of members that somebody deleted, as last seen: no lane can begin or end there.
    pub(super) gone: BTreeSet<InterfaceName>,
    /// Indices of links that we made: their late notices are not foreign. Indices are not reused soon.
    pub(super) made: VecDeque<u32>,
}

impl State {
    /// Late notices concern links of the last moments.
    const REMEMBERED: usize = 4096;

    pub(super) fn remember(&mut self, index: u32) {
        if self.made.len() == Self::REMEMBERED {
            self.made.pop_front();
        }
        self.made.push_back(index);
    }

    /// Takes a sandbox and a link for one attach.
    pub(super) fn begin_wiring(
        &mut self,
        sandbox: NsId,
        link: &InterfaceName,
    ) -> Result<(), KernelError> {
        let is = |member: &Member| member.sandbox.as_ref().is_some_and(|ns| ns.id() == sandbox);
        if self.members.values().any(is) || self.wiring.contains(&sandbox) {
            return Err(KernelError::TakenNamespace { id: sandbox });
        }
        if self.members.contains_key(link) || !self.set_moving(link) {
            return Err(KernelError::Unusable("the link name is in use"));
        }
        self.wiring.insert(sandbox);
        Ok(())
    }

    pub(super) fn end_wiring(&mut self, sandbox: NsId, link: &InterfaceName) {
        self.wiring.remove(&sandbox);
        self.settle(link);
    }

    pub(super) fn set_moving(&mut self, link: &InterfaceName) -> bool {
        self.moving.insert(link.clone())
    }

    pub(super) fn settle(&mut self, link: &InterfaceName) {
        self.moving.remove(link);
    }
}

/// An attached network.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) index: u32,
    pub(super) v4: Ipv4Addr,
    pub(super) v6: Ipv6Addr,
    /// Absent after a restart, until the holder's namespace is offered again.
    pub(super) sandbox: Option<Ns>,
    /// What it is to its siblings.
    pub(super) membership: Option<Membership>,
    /// The packet size that the routes to it were given last; absent where nobody knows.
    pub(super) fitted: Option<u32>,
}

impl Member {
    pub(super) fn elements(&self, link: &InterfaceName) -> [Element; 2] {
        [IpAddr::V4(self.v4), IpAddr::V6(self.v6)].map(|address| Element {
            interface: link.clone(),
            address,
        })
    }
}
