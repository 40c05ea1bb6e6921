//! Networks that outlive their gateway, or that somebody else takes away: adopted, dropped, evicted.
//!
//! Owns the comparison of what the kernel holds with what the state says. A network is whole (state, link, addresses)
//! or it is removed: half a network is worse than none.

use std::collections::HashSet;
use std::sync::Arc;

use netpolicy::ids::NetworkId;
use netpolicy::ruleset::InterfaceName;

use super::allot::AllotError;
use super::join::may_join;
use super::registry::{ChangeError, Registry, Stage};
use super::state::{State, StateDir};
use crate::control::api::Via;

impl Registry {
    /// Adopts the networks of an earlier gateway whose links are still there; called before any door opens.
    ///
    /// What has state and no link, or a link and no state, is removed: half a network is worse than none.
    pub fn adopt(&self) -> Result<usize, ChangeError> {
        // without a kernel part there are no links, and a socket ended with the gateway that served it
        let links = match self.parts.firewall.get() {
            Some(enforcer) => enforcer.live_links()?,
            None => Vec::new(),
        };
        let (found, damaged) = self.parts.states.load()?;
        for (folder, error) in damaged {
            tracing::error!(folder = %folder.display(), %error, "the state of a network is damaged; the network is removed");
            StateDir::discard(&folder)?;
        }
        let mut adopted = Vec::new();
        for state in found {
            let link = links
                .iter()
                .find(|l| l.network.as_ref() == Some(&state.id) && l.link.as_str() == state.link);
            let id = state.id.clone();
            if link.is_none() {
                tracing::info!(sandbox.id = %id, "the namespace of a network has ended and its link with it; the network is removed");
                self.parts.states.remove(&id)?;
                continue;
            }
            let whole = link.filter(|l| l.v4 == Some(state.v4) && l.v6 == Some(state.v6));
            let outcome = whole
                .ok_or(ChangeError::Unknown(id.clone()))
                .and_then(|link| self.adopt_one(state, link));
            match outcome {
                Ok(()) => adopted.push(id),
                Err(error) => {
                    tracing::error!(sandbox.id = %id, error = &error as &dyn std::error::Error, "a network could not be adopted; it is removed");
                    self.parts.states.remove(&id)?;
                }
            }
        }
        for link in links
            .iter()
            .filter(|l| l.network.as_ref().is_none_or(|id| !adopted.contains(id)))
        {
            self.unwire(&link.link);
        }
        Ok(adopted.len())
    }

    fn adopt_one(&self, state: State, link: &crate::kernel::LiveLink) -> Result<(), ChangeError> {
        if !self.allotments().adopt(&state.allotted()) {
            return Err(AllotError::InUse(state.id).into());
        }
        let taken = state.allotted();
        let adopted = self.adopt_allotted(state, link);
        if adopted.is_err() {
            self.allotments().release(&taken);
        }
        adopted
    }

    fn adopt_allotted(
        &self,
        state: State,
        link: &crate::kernel::LiveLink,
    ) -> Result<(), ChangeError> {
        let (composed, mut states) = self.composed(|composer, book| {
            let before = state.resolved.as_ref();
            composer.compose_with(&state.workspace, &state.source, before, book)
        })?;
        let state = State {
            policy: composed.snapshot.hash(),
            resolved: composed.resolved.clone(),
            ..state
        };
        may_join(states.values().map(|entered| &entered.state), &state)?;
        let network = self.enter(&mut states, state, &composed)?;
        drop(states);
        let _ = network.adopted.set(std::time::Instant::now());
        // A flow of before that has no close in the record was reset by the restart; this entry says so.
        let adopted = self.parts.firewall.require();
        let outcome = adopted
            .and_then(|enforcer| enforcer.adopt(link, network.member.clone()))
            .map_err(ChangeError::from)
            .and_then(|()| Ok(self.record(&network, "adopted")?));
        if outcome.is_ok() {
            self.settle(&network);
        } else {
            self.leave(&network);
            self.unwire(&link.link);
            self.forget(&network.id);
        }
        outcome
    }

    /// Ends networks whose sandbox got a second interface: it may have another way out now. What is sent to the others is
    /// made to fit their end of the link.
    pub fn look_inside(self: &Arc<Self>) {
        let Some(enforcer) = self.parts.firewall.get() else {
            return;
        };
        let networks = self.parts.ctx.networks.all().into_iter();
        for network in networks.filter(|network| network.via == Via::Link) {
            let Ok(link) = network.link.parse() else {
                continue;
            };
            let inside = match enforcer.look_inside(&link) {
                Ok(Some(inside)) => inside,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(sandbox.id = %network.id, error = &error as &dyn std::error::Error, "a sandbox could not be looked into");
                    continue;
                }
            };
            let Some(name) = inside.stranger else {
                let fitted = inside.mtu.map_or(Ok(()), |mtu| enforcer.fit(&link, mtu));
                if let Err(error) = fitted {
                    tracing::warn!(sandbox.id = %network.id, error = &error as &dyn std::error::Error, "what is sent to a sandbox could not be fitted to its link");
                }
                continue;
            };
            tracing::error!(sandbox.id = %network.id, interface = %name.escape_debug(), "a sandbox has a second interface; its network is ended");
            if let Err(error) = self.detach(&network.id, "second_interface") {
                tracing::error!(sandbox.id = %network.id, %error, "a network could not be ended");
            }
        }
    }

    /// Removes networks whose link is gone (someone deleted it); returns their identities.
    pub fn drop_lost(self: &Arc<Self>) -> Result<Vec<NetworkId>, ChangeError> {
        // asked before the links are: what is being wired or taken away meanwhile is not lost
        let enforcer = self.parts.firewall.require()?;
        let attached = enforcer.attached();
        let links = enforcer.live_links()?;
        let mut lost = Vec::new();
        for network in self.parts.ctx.networks.all() {
            if !attached.iter().any(|link| link.as_str() == network.link) {
                continue;
            }
            let there = links.iter().any(|l| {
                l.link.as_str() == network.link
                    && l.v4 == Some(network.v4)
                    && l.v6 == Some(network.v6)
            });
            if !there {
                match self.detach(&network.id, "lost") {
                    // somebody else detached it meanwhile
                    Err(ChangeError::Unknown(_)) => {}
                    outcome => {
                        outcome?;
                        lost.push(network.id.clone());
                    }
                }
            }
        }
        Ok(lost)
    }

    /// Makes the kernel part and the networks agree: a member that no network owns is shut out, and an acknowledged network
    /// that is no member is ended. Returns what differed; there is nothing unless something failed before.
    pub fn reconcile(self: &Arc<Self>) -> Vec<String> {
        let Some(enforcer) = self.parts.firewall.get() else {
            return Vec::new();
        };
        let (strays, stranded) = {
            // while this lock is held nobody becomes a member that is not here, or leaves from here as a member
            let states = self.states();
            let members = enforcer.attached();
            let owned: HashSet<&str> = states.values().map(|e| e.state.link.as_str()).collect();
            let strays: Vec<InterfaceName> = members
                .iter()
                .filter(|link| !owned.contains(link.as_str()))
                .cloned()
                .collect();
            let wired: HashSet<&str> = members.iter().map(InterfaceName::as_str).collect();
            let stranded: Vec<NetworkId> = states
                .values()
                .filter(|e| e.stage == Stage::Attached && e.state.via == Via::Link)
                .filter(|e| !wired.contains(e.state.link.as_str()))
                .map(|e| e.state.id.clone())
                .collect();
            (strays, stranded)
        };
        let mut differed = Vec::new();
        for link in strays {
            self.unwire(&link);
            differed.push(format!("the link {link} is no network's"));
        }
        for id in stranded {
            if self.detach(&id, "lost").is_ok() {
                differed.push(format!("the network {id} has no link"));
            }
        }
        differed
    }
}
