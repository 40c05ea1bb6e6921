//! A network goes: its flows are cut, the kernel shuts it out, its link is deleted.
//!
//! Invariant: the kernel lets nothing in after the flows are cut, before anybody is told that the network is gone.
//! Failure stance: a detach runs to its end; what could not be deleted is logged, and verification finds it.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use netpolicy::ids::NetworkId;
use netpolicy::reason::Reason;
use netpolicy::ruleset::InterfaceName;

use super::Network;
use super::allot::Allotted;
use super::registry::{ChangeError, Registry, Stage, changeable};
use crate::control::api::Via;
use crate::kernel::{KernelError, Removal};
use crate::limits::Used;

/// An attach that takes longer than this is not waited for; the slowest wait within one ends after 3 s.
const WIRING: Duration = Duration::from_secs(10);
/// How long the resets of cut flows may take before the kernel shuts a detached network out.
const RESETS: Duration = Duration::from_millis(20);

impl Registry {
    /// Takes a network from the doors and cuts its flows; returns how many.
    pub(super) fn leave(&self, network: &Network) -> usize {
        network.ended.cancel();
        let cut = network.flows.all().len();
        network.flows.end_all(Reason::RunEnded);
        self.parts.ctx.networks.remove(network);
        cut
    }

    /// Forgets a network that left and that the kernel has shut out.
    pub(super) fn forget(&self, id: &NetworkId) {
        self.states().remove(id);
        self.settled.notify_all();
    }

    /// Takes a network for detaching: of two who wish it gone one gets it. What is being wired is waited for, or its link
    /// would come after its network has gone.
    fn claim(&self, id: &NetworkId) -> Result<Allotted, ChangeError> {
        let due = Instant::now() + WIRING;
        let mut states = self.states();
        loop {
            let entered = changeable(&mut states, id);
            let entered = entered.ok_or_else(|| ChangeError::Unknown(id.clone()))?;
            if entered.stage == Stage::Attached {
                entered.stage = Stage::Leaving;
                return Ok(entered.state.allotted());
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ChangeError::Wiring(id.clone()));
            }
            let waited = self.settled.wait_timeout(states, left);
            states = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Shuts a link out now and deletes it; a failure is logged, verification finds what is left.
    pub(super) fn unwire(&self, link: &InterfaceName) {
        let Some(enforcer) = self.parts.firewall.get() else {
            return;
        };
        let removed = enforcer.detach(link).and_then(Removal::finish);
        if let Err(error) = removed {
            tracing::error!(error = &error as &dyn std::error::Error, %link, "a link could not be removed");
        }
    }

    /// Detaches: flows are cut and the kernel shuts the network out before this returns; the link goes afterwards.
    pub fn detach(
        self: &Arc<Self>,
        id: &NetworkId,
        change: &str,
    ) -> Result<(usize, Used), ChangeError> {
        let unknown = || ChangeError::Unknown(id.clone());
        let network = self.parts.ctx.networks.by_id(id).ok_or_else(unknown)?;
        let link: InterfaceName = network
            .link
            .parse()
            .map_err(|_| KernelError::Unusable("the link's name"))?;
        let taken = self.claim(id)?;
        let cut = self.leave(&network);
        // The resets of the cut flows are let through first, or a program in the sandbox would wait for ever. A flow gives
        // its place back after its last packet.
        let due = Instant::now() + RESETS;
        while network.ledger.flows() > 0 && Instant::now() < due {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let removal = match (network.via, self.parts.firewall.get()) {
            (Via::Link, Some(enforcer)) => enforcer.detach(&link).map(Some),
            (Via::Socket, _) | (Via::Link, None) => Ok(None),
        };
        // if that failed, the kernel part has a member that nobody owns: the next look shuts it out
        self.forget(id);
        if let Err(error) = self.record(&network, change) {
            tracing::error!(sandbox.id = %id, %error, "a detach was not recorded");
        }
        if let Err(error) = self.names().note(id, network.owner, self.believed_ms()) {
            tracing::error!(sandbox.id = %id, %error, "the end of a name was not kept; its beginning was");
        }
        self.parts.states.remove(id)?;
        let (registry, used) = (self.clone(), network.ledger.used());
        let removal = removal?;
        // Off the caller's path: deleting a veth pair costs 20 to 30 ms. The names are free again only afterwards.
        let finish = move || {
            if let Some(Err(error)) = removal.map(Removal::finish) {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a detached link could not be deleted"
                );
            }
            registry.allotments().release(&taken);
        };
        std::thread::Builder::new()
            .name("detach".into())
            .spawn(finish)?;
        Ok((cut, used))
    }
}
