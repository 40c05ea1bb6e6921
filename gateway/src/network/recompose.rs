//! Networks composed again when what they are composed of changed: floors, or policies of a source.
//!
//! A network whose policy has no form any more (it asks for what is not enforced, or a floor cannot be read) is detached:
//! less network, never the policy of before with a newer name.

use std::sync::Arc;

use netpolicy::ids::NetworkId;

use super::registry::{ChangeError, Entered, Registry, changeable};
use crate::control::PolicySource;

/// Which networks are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Concerned {
    /// All: a floor changed.
    All,
    /// Those whose policy is a source's.
    Sourced,
}

impl Concerned {
    fn is(self, entered: &Entered) -> bool {
        self == Self::All || matches!(entered.state.source, PolicySource::Git { .. })
    }
}

impl Registry {
    /// Composes networks again; those that come out the same are left alone. Called after the change: who enters a network
    /// later composes with it, and who entered one before is listed here, because both hold the writer's lock.
    pub fn recompose(self: &Arc<Self>, concerned: Concerned) {
        let ids: Vec<NetworkId> = {
            let states = self.states();
            let concerned = states.values().filter(|entered| concerned.is(entered));
            concerned.map(|entered| entered.state.id.clone()).collect()
        };
        for id in ids {
            if let Err(error) = self.recompose_one(&id, concerned) {
                tracing::error!(sandbox.id = %id, %error, "a network cannot be put under what changed");
                if let Err(error) = self.detach(&id, "superseded") {
                    tracing::error!(sandbox.id = %id, %error, "a network without a policy could not be detached");
                }
            }
        }
    }

    fn recompose_one(&self, id: &NetworkId, concerned: Concerned) -> Result<(), ChangeError> {
        loop {
            let Some(seen) = changeable(&mut self.states(), id).map(|entered| entered.clone())
            else {
                return Ok(());
            };
            if !concerned.is(&seen) {
                return Ok(());
            }
            let state = seen.state;
            let (composed, mut states) = self.composed(|composer, book| {
                let before = state.resolved.as_ref();
                composer.compose_with(&state.workspace, &state.source, before, book)
            })?;
            let network = self.parts.ctx.networks.by_id(id);
            let Some((entered, network)) = changeable(&mut states, id).zip(network) else {
                return Ok(());
            };
            // replaced meanwhile: what was composed is of the policy before
            if entered.state.generation != state.generation {
                continue;
            }
            self.may_run(network.via, &composed)?;
            if composed.snapshot.hash() != entered.state.policy {
                let state = entered.state.clone();
                self.enforce(&network, entered, state, &composed)?;
            }
            return Ok(());
        }
    }
}
