//! What decides a network is exchanged: its job policy, or the classes of addresses.
//!
//! Invariants: new flows are decided by the new snapshot at once, and live ones are decided again and cut if it does not
//! permit them any more. The state is kept before the snapshot is put in force, so a restart never goes back.

use std::sync::Arc;

use netpolicy::addr::AddressBook;
use netpolicy::ids::{Generation, NetworkId};

use super::registry::{ChangeError, Described, Entered, Registry, changeable};
use super::state::State;
use super::{Live, Network, redecide};
use crate::context::now;
use crate::control::PolicySource;
use crate::policy::Composed;

impl Registry {
    /// Replaces the job policy: new flows are decided by it at once, old ones are decided again and cut if it does not
    /// permit them any more. Returns the network and how many were cut.
    pub fn replace(
        &self,
        id: &NetworkId,
        source: &PolicySource,
    ) -> Result<(Described, usize), ChangeError> {
        let network = self
            .parts
            .ctx
            .networks
            .by_id(id)
            .ok_or_else(|| ChangeError::Unknown(id.clone()))?;
        let (composed, mut states) =
            self.composed(|composer, book| composer.compose(&network.workspace, source, book))?;
        let entered =
            changeable(&mut states, id).ok_or_else(|| ChangeError::Unknown(id.clone()))?;
        self.may_run(network.via, &composed)?;
        let state = State {
            source: source.settled(),
            ..entered.state.clone()
        };
        let cut = self.enforce(&network, entered, state, &composed)?;
        Ok((entered.clone().described(network), cut))
    }

    /// Puts a composed policy in force as the next generation.
    pub(super) fn enforce(
        &self,
        network: &Network,
        entered: &mut Entered,
        mut state: State,
        composed: &Composed,
    ) -> Result<usize, ChangeError> {
        state.generation = Generation(entered.state.generation.0 + 1);
        state.policy = composed.snapshot.hash();
        state.resolved.clone_from(&composed.resolved);
        state.used = network.ledger.used();
        state.recorded = self.parts.ctx.journal.recorded(&network.id);
        self.parts.states.save(&state)?;
        network
            .live
            .store(Arc::new(live(composed, state.generation)));
        network.ledger.set_limits(&composed.snapshot.limits());
        let cut = redecide::cut_forbidden(network, now());
        *entered = Entered {
            state,
            job: composed.job,
            name: composed.name.clone(),
            stamp: composed.stamp.clone(),
            stage: entered.stage,
        };
        self.record(network, "policy_replaced")?;
        Ok(cut)
    }

    /// Address classes changed: every network is decided under them from now on.
    pub fn rebook(&self, book: &Arc<AddressBook>) {
        let _one_writer = self.states();
        self.book.store(book.clone());
        for network in self.parts.ctx.networks.all() {
            let before = network.live.load();
            let snapshot = Arc::new(before.snapshot.with_book(book.clone()));
            network.live.store(Arc::new(Live {
                snapshot,
                generation: before.generation,
                names: before.names,
                explain: before.explain,
            }));
            redecide::cut_forbidden(&network, now());
        }
    }

    /// Decides live flows again: catches one that was being opened while something changed.
    pub fn sweep(&self) {
        for network in self.parts.ctx.networks.all() {
            redecide::cut_forbidden(&network, now());
        }
    }
}

/// What decides a network under a composed policy.
pub(super) fn live(composed: &Composed, generation: Generation) -> Live {
    let snapshot = composed.snapshot.clone();
    let (names, explain) = (snapshot.names_mode(), snapshot.explains());
    Live {
        snapshot,
        generation,
        names,
        explain,
    }
}
