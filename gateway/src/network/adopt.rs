//! Networks that outlive their gateway, or that somebody else takes away: adopted, dropped, evicted.
//!
//! Owns the comparison of what the kernel holds with what the state says. A network is whole (state, link, addresses)
//! or it is removed: half a network is worse than none.

use std::sync::Arc;

use netpolicy::ids::NetworkId;

use super::allot::AllotError;
use super::join::may_join;
use super::registry::{ChangeError, Registry};
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
            let whole = link.filter(|l| l.v4 == Some(state.v4) && l.v6 == Some(state.v6));
            let id = state.id.clone();
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
        let composed = self.parts.composer.compose_with(
            &state.workspace,
            &state.source,
            state.resolved.as_ref(),
            self.book(),
        )?;
        let state = State {
            policy: composed.snapshot.hash(),
            resolved: composed.resolved.clone(),
            ..state
        };
        let mut states = self.states();
        may_join(states.values().map(|entered| &entered.state), &state)?;
        let network = self.enter(&mut states, state, &composed)?;
        drop(states);
        // A flow of before that has no close in the record was reset by the restart; this entry says so.
        let adopted = self.parts.firewall.require();
        let outcome = adopted
            .and_then(|enforcer| enforcer.adopt(link, network.member.clone()))
            .map_err(ChangeError::from)
            .and_then(|()| Ok(self.record(&network, "adopted")?));
        if outcome.is_err() {
            self.leave(&network);
        }
        outcome
    }

    /// Ends networks whose sandbox got a second interface: it may have another way out now.
    pub fn evict_strangers(self: &Arc<Self>) {
        let Some(enforcer) = self.parts.firewall.get() else {
            return;
        };
        let networks = self.parts.ctx.networks.all().into_iter();
        for network in networks.filter(|network| network.via == Via::Link) {
            let Ok(link) = network.link.parse() else {
                continue;
            };
            let name = match enforcer.stranger_in(&link) {
                Ok(None) => continue,
                Ok(Some(name)) => name,
                Err(error) => {
                    tracing::warn!(sandbox.id = %network.id, error = &error as &dyn std::error::Error, "a sandbox could not be looked into");
                    continue;
                }
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
                self.detach(&network.id, "lost")?;
                lost.push(network.id.clone());
            }
        }
        Ok(lost)
    }
}
