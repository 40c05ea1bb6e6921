//! Networks composed again when what they are composed of changed: floors, or policies of a source.
//!
//! A network whose policy has no form any more (it asks for what is not enforced, or a floor cannot be read) is detached:
//! less network, never the policy of before with a newer name.

use std::sync::Arc;

use super::Network;
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

impl Registry {
    /// Composes networks again; those that come out the same are left alone.
    pub fn recompose(self: &Arc<Self>, concerned: Concerned) {
        let mut formless = Vec::new();
        for network in self.parts.ctx.networks.all() {
            let mut states = self.states();
            let Some(entered) = changeable(&mut states, &network.id) else {
                continue;
            };
            let sourced = matches!(entered.state.source, PolicySource::Git { .. });
            if concerned == Concerned::Sourced && !sourced {
                continue;
            }
            if let Err(error) = self.recompose_one(&network, entered) {
                tracing::error!(sandbox.id = %network.id, %error, "a network cannot be put under what changed");
                formless.push(network.id.clone());
            }
        }
        for id in formless {
            if let Err(error) = self.detach(&id, "superseded") {
                tracing::error!(sandbox.id = %id, %error, "a network without a policy could not be detached");
            }
        }
    }

    fn recompose_one(&self, network: &Network, entered: &mut Entered) -> Result<(), ChangeError> {
        let (source, before) = (&entered.state.source, entered.state.resolved.as_ref());
        let composed =
            self.parts
                .composer
                .compose_with(&network.workspace, source, before, self.book())?;
        self.may_run(network.via, &composed)?;
        if composed.snapshot.hash() != entered.state.policy {
            let state = entered.state.clone();
            self.enforce(network, entered, state, &composed)?;
        }
        Ok(())
    }
}
