//! A network goes: its flows are cut, the kernel shuts it out, its link is deleted.
//!
//! Invariant: the kernel lets nothing in after the flows are cut, before anybody is told that the network is gone.
//! Failure stance: a detach runs to its end; what could not be deleted is logged, and verification finds it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use netpolicy::ids::NetworkId;
use netpolicy::reason::Reason;
use netpolicy::ruleset::InterfaceName;

use super::Network;
use super::registry::{ChangeError, Registry};
use crate::context::now_ms;
use crate::control::api::Via;
use crate::kernel::{KernelError, Removal};
use crate::limits::Used;

/// How long the resets of cut flows may take before the kernel shuts a detached network out.
const RESETS: Duration = Duration::from_millis(20);

impl Registry {
    /// Takes a network from the doors and cuts its flows; returns how many.
    pub(super) fn leave(&self, network: &Network) -> usize {
        network.ended.cancel();
        let cut = network.flows.all().len();
        network.flows.end_all(Reason::RunEnded);
        self.parts.ctx.networks.remove(network);
        self.states().remove(&network.id);
        cut
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
        let network = self
            .parts
            .ctx
            .networks
            .by_id(id)
            .ok_or_else(|| ChangeError::Unknown(id.clone()))?;
        let Some(taken) = self.states().get(id).map(|e| e.state.allotted()) else {
            return Err(ChangeError::Unknown(id.clone()));
        };
        let link: InterfaceName = network
            .link
            .parse()
            .map_err(|_| KernelError::Unusable("the link's name"))?;
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
        if let Err(error) = self.record(&network, change) {
            tracing::error!(sandbox.id = %id, %error, "a detach was not recorded");
        }
        if let Err(error) = self.names().note(id, now_ms()) {
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
