//! Networks come and go: a link is made, its elements are added last; elements go first, the link later.
//!
//! Owns: the order of these acts and the clean-up of a half-made network. Refuses to own: addresses and names (the
//! caller allots them), the namespace's life (its holder's).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::MutexGuard;

use netpolicy::ids::NetworkId;
use netpolicy::ruleset::xtables::Change;
use netpolicy::ruleset::{Element, InterfaceName};

use super::backend::Backend;
use super::enforcer::Enforcer;
use super::error::KernelError;
use super::links::{self, Pair};
use super::members::{Member, State};
use super::netns::{Ns, NsId, route_here};
use super::{cutting, inside, inspect, sysctl};
use crate::member::Membership;

/// A network to be attached.
#[derive(Debug)]
pub struct AttachPlan {
    /// The network; stands as alias on the link, so that a restarted gateway knows whose it is.
    pub network: NetworkId,
    /// Name of the outer link.
    pub link: InterfaceName,
    /// The sandbox's namespace.
    pub sandbox: OwnedFd,
    /// The sandbox's IPv4 address.
    pub v4: Ipv4Addr,
    /// The sandbox's IPv6 address.
    pub v6: Ipv6Addr,
    /// What it is to its siblings, if it has any.
    pub membership: Option<Membership>,
}

/// What attach made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attached {
    /// The link.
    pub link: InterfaceName,
    /// Identity of the sandbox's namespace.
    pub sandbox: NsId,
    /// Whether packet steering is on.
    pub steered: bool,
}

/// A link that is there, as a restarted gateway finds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveLink {
    /// Its name.
    pub link: InterfaceName,
    /// The network it was made for.
    pub network: Option<NetworkId>,
    /// The sandbox's IPv4 address, from the route over the link.
    pub v4: Option<Ipv4Addr>,
    /// The sandbox's IPv6 address.
    pub v6: Option<Ipv6Addr>,
}

/// Links that exist by our doing, while nobody attaches or detaches.
pub(super) struct KnownLinks<'a> {
    service: [IpAddr; 2],
    state: MutexGuard<'a, State>,
}

impl KnownLinks<'_> {
    pub(super) fn is_attached(&self, name: Option<&str>) -> bool {
        name.and_then(|name| name.parse().ok())
            .is_some_and(|name| self.state.members.contains_key(&name))
    }

    pub(super) fn is_moving(&self, name: Option<&str>) -> bool {
        name.and_then(|name| name.parse().ok())
            .is_some_and(|name| self.state.moving.contains(&name))
    }

    /// Whether a link is or was one that we made.
    pub(super) fn is_ours(&self, index: u32, name: Option<&str>) -> bool {
        self.is_moving(name) || self.state.made.contains(&index)
    }

    pub(super) fn serves(&self, address: IpAddr) -> bool {
        self.service.contains(&address)
    }

    /// Whether what happens on a link matters: it is attached, or it is loopback.
    pub(super) fn is_judged(&self, index: Option<u32>) -> bool {
        let attached = |index| self.state.members.values().any(|m| m.index == index);
        index.is_none_or(|index| index == LOOPBACK || attached(index))
    }
}

/// `LOOPBACK_IFINDEX`: loopback is the first link of every namespace.
const LOOPBACK: u32 = 1;

impl Enforcer {
    /// Wires a sandbox's namespace and lets its packets in. Everything made is taken away again on failure.
    pub fn attach(&self, plan: AttachPlan) -> Result<Attached, KernelError> {
        let sandbox = Ns::from_fd(plan.sandbox)?;
        self.refuse_forbidden(&sandbox)?;
        self.refuse_members(plan.membership.as_ref())?;
        let id = sandbox.id();
        self.state().begin_wiring(id, &plan.link)?;
        let pair = self.pair(plan.v4, plan.v6);
        let made = self.make(&plan.link, &pair, &sandbox);
        if let Ok(index) = &made {
            self.state().remember(*index);
        }
        let result = made.and_then(|index| {
            let wired = (sandbox, plan.membership);
            let finished = self.finish(index, &plan.link, &plan.network, &pair, wired);
            finished.inspect_err(|_| self.clear_away(&plan.link))
        });
        self.state().end_wiring(id, &plan.link);
        result
    }

    /// Lets the packets of a link in that an earlier gateway made and [`Enforcer::live_links`] reported.
    pub fn adopt(
        &self,
        live: &LiveLink,
        membership: Option<Membership>,
    ) -> Result<(), KernelError> {
        self.refuse_members(membership.as_ref())?;
        let (Some(v4), Some(v6)) = (live.v4, live.v6) else {
            return Err(KernelError::Unusable(
                "a live link without both addresses cannot be adopted",
            ));
        };
        let name = live.link.to_string();
        let index = self
            .inner
            .ns
            .route(|handle| async move { links::index_of(&handle, &name).await })?;
        self.admit(
            &live.link,
            Member {
                index,
                v4,
                v6,
                sandbox: None,
                membership,
                fitted: None,
            },
        )
    }

    /// Shuts a network out: its elements go now, its link when the removal is finished.
    pub fn detach(&self, link: &InterfaceName) -> Result<Removal, KernelError> {
        let mut state = self.state();
        if let Some(member) = state.members.remove(link) {
            let elements = member.elements(link);
            let had_lanes = member.membership.is_some();
            if let Err(error) = self.change(&state, &elements, Change::Remove) {
                state.members.insert(link.clone(), member);
                return Err(error);
            }
            state.gone.remove(link);
            if had_lanes {
                state.close_lanes()?;
            }
        }
        state.set_moving(link);
        Ok(Removal {
            enforcer: self.clone(),
            link: link.clone(),
        })
    }

    /// Links in the namespace, attached or left by an earlier gateway.
    pub fn live_links(&self) -> Result<Vec<LiveLink>, KernelError> {
        let seen = self.look()?;
        let live = |link: &super::survey::LinkSeen| {
            let name = link.name.parse().ok()?;
            let over = |address: IpAddr, index| (index == Some(link.index)).then_some(address);
            let mut live = LiveLink {
                link: name,
                network: link.alias.as_ref().and_then(|alias| alias.parse().ok()),
                v4: None,
                v6: None,
            };
            for route in seen.routes.iter().filter(|r| r.table == inspect::MAIN) {
                match route.to.and_then(|to| over(to, route.link)) {
                    Some(IpAddr::V4(to)) if route.prefix == 32 => live.v4 = Some(to),
                    Some(IpAddr::V6(to))
                        if route.prefix == 128 && to != self.inner.config.service6 =>
                    {
                        live.v6 = Some(to);
                    }
                    _ => {}
                }
            }
            // the name comes with the link, the alias a moment later: a gateway may have been killed between them
            (live.network.is_some() || links::is_ours(&link.name)).then_some(live)
        };
        Ok(seen.links.iter().filter_map(live).collect())
    }

    /// Links whose packets are let in: neither those that are being made nor those that are being taken away.
    pub fn attached(&self) -> BTreeSet<InterfaceName> {
        self.state().members.keys().cloned().collect()
    }

    /// The links that exist by our doing.
    pub(super) fn known_links(&self) -> KnownLinks<'_> {
        let config = &self.inner.config;
        KnownLinks {
            service: [config.service4.into(), config.service6.into()],
            state: self.state(),
        }
    }

    /// Checks the sandbox's namespace and makes the pair. Nothing is left on failure.
    fn make(&self, link: &InterfaceName, pair: &Pair, sandbox: &Ns) -> Result<u32, KernelError> {
        sandbox.run(|| {
            match route_here(|handle| async move { inside::occupant(&handle).await })? {
                Some(name) => Err(KernelError::OccupiedNamespace { name }),
                None => sysctl::open_sandbox(),
            }
        })?;
        let (name, ends, mtu) = (link.clone(), *pair, self.inner.config.mtu);
        let inner = sandbox.duplicate()?;
        self.inner.ns.route(move |handle| async move {
            links::create(&handle, &name, &ends, mtu, inner.fd()).await
        })
    }

    /// Sets up both ends, and lets packets in as the last act.
    fn finish(
        &self,
        index: u32,
        link: &InterfaceName,
        network: &NetworkId,
        pair: &Pair,
        (sandbox, membership): (Ns, Option<Membership>),
    ) -> Result<Attached, KernelError> {
        let (alias, ends) = (network.to_string(), *pair);
        self.inner.ns.route(move |handle| async move {
            links::label(&handle, index, &alias).await?;
            links::furnish_outer(&handle, index, &ends).await
        })?;
        let steered = self.inner.steering.as_ref().is_some_and(|steering| {
            let result = steering.spread(link.as_str());
            result
                .inspect_err(|error| tracing::warn!(%error, %link, "packet steering is off"))
                .is_ok()
        });
        sandbox.route(move |handle| async move { links::furnish(&handle, &ends).await })?;
        self.inner
            .ns
            .route(move |handle| async move { links::settle(&handle, index).await })?;
        let id = sandbox.id();
        self.admit(
            link,
            Member {
                index,
                v4: pair.v4,
                v6: pair.v6,
                sandbox: Some(sandbox),
                membership,
                fitted: Some(self.inner.config.mtu),
            },
        )?;
        Ok(Attached {
            link: link.clone(),
            sandbox: id,
            steered,
        })
    }

    /// Deletes the link of an attach that failed half-way.
    fn clear_away(&self, link: &InterfaceName) {
        let name = link.to_string();
        let deleted = self
            .inner
            .ns
            .route(|handle| async move { links::delete(&handle, &name).await });
        if let Err(error) = deleted {
            tracing::warn!(%error, %link, "a link of a failed attach could not be deleted");
        }
    }

    fn admit(&self, link: &InterfaceName, member: Member) -> Result<(), KernelError> {
        cutting::cut_before(self.inner.cutter.as_ref(), member.index);
        let mut state = self.state();
        self.change(&state, &member.elements(link), Change::Add)?;
        state.remember(member.index);
        let (elements, has_lanes) = (member.elements(link), member.membership.is_some());
        state.members.insert(link.clone(), member);
        if has_lanes && let Err(error) = state.write_lanes() {
            state.members.remove(link);
            self.change(&state, &elements, Change::Remove)?;
            return Err(error);
        }
        Ok(())
    }

    /// Changes the source sets; a change that fails half-way leaves the rules of the members that `state` has.
    fn change(&self, state: &State, elements: &[Element], way: Change) -> Result<(), KernelError> {
        let whole = || self.rules(state, state.posture);
        state.firewall.change(elements, way, whole)
    }

    /// Members of a group reach each other over rules on their own links, which only nf_tables has.
    fn refuse_members(&self, membership: Option<&Membership>) -> Result<(), KernelError> {
        match (self.backend(), membership) {
            (Backend::Iptables, Some(_)) => Err(KernelError::NeedsNftables),
            _ => Ok(()),
        }
    }

    fn refuse_forbidden(&self, sandbox: &Ns) -> Result<(), KernelError> {
        let id = sandbox.id();
        let refuse = |what| Err(KernelError::ForbiddenNamespace { id, what });
        if id == self.inner.uplink {
            return refuse("the uplink's");
        }
        if id == self.inner.ns.id() {
            return refuse("the gateway's own");
        }
        if NsId::of_init().is_ok_and(|init| init == id) {
            return refuse("the machine's");
        }
        Ok(())
    }

    pub(super) fn pair(&self, v4: Ipv4Addr, v6: Ipv6Addr) -> Pair {
        Pair {
            service4: self.inner.config.service4,
            service6: self.inner.config.service6,
            v4,
            v6,
        }
    }
}

/// The second half of a detach: deleting the link, which costs 20 to 30 ms and is done in the background.
#[derive(Debug)]
#[must_use = "the link stays until the removal is finished"]
pub struct Removal {
    enforcer: Enforcer,
    link: InterfaceName,
}

impl Removal {
    /// Deletes the link. The network has been shut out already.
    pub fn finish(self) -> Result<(), KernelError> {
        let name = self.link.to_string();
        let deleted = self
            .enforcer
            .inner
            .ns
            .route(|handle| async move { links::delete(&handle, &name).await });
        // a link that could not be deleted is judged again from here on
        self.enforcer.state().settle(&self.link);
        deleted
    }
}
