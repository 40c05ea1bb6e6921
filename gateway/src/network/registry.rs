//! The one writer of live networks: what it holds, and what it tells.
//!
//! Owns: what a network is made of (allotment, state, leases, budgets, the kernel's part). The changes are beside it, one
//! file each: attach, detach, replace, adopt, recompose. Every change is written to the record and to the state before
//! it is acknowledged.
//! Refuses to own: who may ask ([`crate::control`]) and whether anything may pass ([`crate::posture`]).
//!
//! Calls block for milliseconds (netlink, files): they belong on blocking threads.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use netpolicy::addr::AddressBook;
use netpolicy::ids::{NetworkId, PolicyHash};

use super::Network;
use super::allot::{AllotError, Allotments, Pools};
use super::join::JoinError;
use super::names::{NameError, Names};
use super::state::{State, StateDir};
use crate::config::EgressFilter;
use crate::context::Context;
use crate::kernel::{Firewall, KernelError, Ns};
use crate::policy::{ComposeError, Composed, Composer, Stamp};
use crate::record::Unwritable;
use crate::record::entry::{Entry, NetworkChange};
use crate::resolve::{LeaseError, LeasePools};

/// Why a change to the networks was refused. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no such network.
    #[error("there is no network {0}")]
    Unknown(NetworkId),
    /// It is being wired, and that takes long.
    #[error("the network {0} is still being attached")]
    Wiring(NetworkId),
    /// It cannot be a member of its group.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The wished name is not to be had.
    #[error(transparent)]
    Name(#[from] NameError),
    /// No identity or address is free.
    #[error(transparent)]
    Allot(#[from] AllotError),
    /// The policy has no effective form.
    #[error(transparent)]
    Compose(#[from] ComposeError),
    /// The kernel part failed.
    #[error("wiring the network")]
    Kernel(#[from] KernelError),
    /// State cannot be kept.
    #[error("keeping the network's state")]
    State(#[from] std::io::Error),
    /// Leases cannot be kept.
    #[error("keeping the network's leases")]
    Leases(#[from] LeaseError),
    /// The record cannot be written.
    #[error(transparent)]
    Record(#[from] Unwritable),
}

/// What the registry is made from.
#[derive(Debug)]
pub struct Parts {
    /// Shared handles.
    pub ctx: Context,
    /// The kernel part.
    pub firewall: Firewall,
    /// What runs where there is none.
    pub filter: EgressFilter,
    /// Composition.
    pub composer: Composer,
    /// Address pools.
    pub pools: Pools,
    /// Pools and key of lease addresses.
    pub leases: LeasePools,
    /// Where state is kept.
    pub states: StateDir,
    /// Names that are used up.
    pub names: Mutex<Names>,
    /// Address classes at the start.
    pub book: Arc<AddressBook>,
}

/// The one writer.
#[derive(Debug)]
pub struct Registry {
    pub(super) parts: Parts,
    pub(super) book: ArcSwap<AddressBook>,
    allotments: Mutex<Allotments>,
    /// Held while a network changes: one writer.
    states: Mutex<HashMap<NetworkId, Entered>>,
    /// Told when a network is wired, or gone.
    pub(super) settled: Condvar,
}

/// The writer's lock.
pub(super) type States<'a> = MutexGuard<'a, HashMap<NetworkId, Entered>>;

/// A live network as the writer knows it.
#[derive(Clone, Debug)]
pub(super) struct Entered {
    pub(super) state: State,
    pub(super) job: PolicyHash,
    pub(super) name: String,
    pub(super) stamp: Stamp,
    pub(super) stage: Stage,
}

/// Where a network is in its life. Whoever moves it on owns what comes next: one attach completes or undoes it, one
/// detach takes it away and gives its allotment back.
///
/// The kernel part knows a link only while its network is here: it is entered before it is wired, and forgotten after it
/// was shut out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The doors know it, its link is being made.
    Wiring,
    /// Acknowledged.
    Attached,
    /// Being taken away.
    Leaving,
}

/// A network with what only its writer knows, for views.
#[derive(Clone, Debug)]
pub struct Described {
    /// The network.
    pub network: Arc<Network>,
    /// Its state.
    pub state: State,
    /// Hash of its job policy alone.
    pub job: PolicyHash,
    /// Name of its job policy.
    pub policy_name: String,
    /// Whose word that is.
    pub stamp: Stamp,
}

impl Entered {
    pub(super) fn described(self, network: Arc<Network>) -> Described {
        Described {
            network,
            state: self.state,
            job: self.job,
            policy_name: self.name,
            stamp: self.stamp,
        }
    }
}

/// A network whose policy and budgets may be changed: not one that is being taken away.
pub(super) fn changeable<'a>(
    states: &'a mut HashMap<NetworkId, Entered>,
    id: &NetworkId,
) -> Option<&'a mut Entered> {
    states
        .get_mut(id)
        .filter(|entered| entered.stage != Stage::Leaving)
}

impl Registry {
    /// No network yet.
    pub fn new(parts: Parts) -> Self {
        let allotments = Mutex::new(Allotments::new(parts.pools.clone()));
        Self {
            book: ArcSwap::new(parts.book.clone()),
            allotments,
            states: Mutex::default(),
            settled: Condvar::new(),
            parts,
        }
    }

    /// Composes without the writer's lock, which is held afterwards: a large policy holds nobody else up. Composes again if
    /// what it was composed of has changed meanwhile, so that whoever changes it finds every network that does not have it.
    pub(super) fn composed(
        &self,
        compose: impl Fn(&Composer, Arc<AddressBook>) -> Result<Composed, ComposeError>,
    ) -> Result<(Composed, States<'_>), ComposeError> {
        loop {
            let (ingredients, book) = (self.parts.composer.ingredients(), self.book());
            let mut composed = compose(&self.parts.composer, book.clone())?;
            let states = self.states();
            if !self.parts.composer.is_current(&ingredients) {
                continue;
            }
            let now = self.book();
            if !Arc::ptr_eq(&book, &now) {
                composed.snapshot = Arc::new(composed.snapshot.with_book(now));
            }
            return Ok((composed, states));
        }
    }

    /// Reads the floors again; whether they changed.
    pub fn reload_floors(&self) -> Result<bool, crate::policy::FloorError> {
        self.parts.composer.reload()
    }

    /// Whether a workspace has a floor, where workspaces have floors.
    pub fn has_floor(&self, workspace: &str) -> bool {
        self.parts.composer.has_floor(workspace)
    }

    /// How many networks of users there can be.
    pub fn places(&self) -> usize {
        let descriptors = self.parts.ctx.ceilings.descriptors().networks;
        let addresses = self.parts.pools.places();
        descriptors
            .saturating_sub(super::allot::PROBES as usize)
            .min(addresses as usize)
    }

    /// Whether connects are accepted before they are decided: the kernel has no packet queue.
    pub fn accepts_first(&self) -> bool {
        let enforcer = self.parts.firewall.get();
        enforcer.is_some_and(|e| e.queue() == netpolicy::ruleset::Queue::None)
    }

    /// Where the gateway keeps sockets of its own.
    pub fn run_dir(&self) -> &std::path::Path {
        self.parts.states.run_dir()
    }

    /// Where the links of sandboxes end; none without a kernel part.
    pub fn namespace(&self) -> Result<Option<Ns>, KernelError> {
        let enforcer = self.parts.firewall.get();
        enforcer.map(|e| e.ns().duplicate()).transpose()
    }

    /// Why there is none.
    pub fn why_no_links(&self) -> &str {
        self.parts.firewall.why()
    }

    /// Has the gateway's own probes decided while it denies everybody else's flows: one selftest at a time, so these are
    /// all.
    pub fn try_out(&self, probes: &[&Network]) {
        let ids = probes.iter().map(|probe| probe.id.clone()).collect();
        self.parts.ctx.networks.try_out(ids);
    }

    /// Who of a watched listener's peers is the gateway.
    pub fn own_dials(&self) -> Arc<crate::uplink::own::OwnDials> {
        self.parts.ctx.dialer.own.clone()
    }

    /// Whether an operator opened private networks and the machine itself to `internet` policies.
    pub fn opens_private(&self) -> bool {
        self.parts.composer.filter() == crate::config::EgressFilter::Off
    }

    /// Address pools.
    pub fn pools(&self) -> &Pools {
        &self.parts.pools
    }

    /// Address classes now.
    pub fn book(&self) -> Arc<AddressBook> {
        self.book.load_full()
    }

    /// Writes down budgets used since the last time.
    pub fn persist(&self) {
        for network in self.parts.ctx.networks.all() {
            // taken anew for each: who changes a network waits for one file, not for all
            let mut states = self.states();
            let Some(entered) = changeable(&mut states, &network.id) else {
                continue;
            };
            let used = network.ledger.used();
            let recorded = self.parts.ctx.journal.recorded(&network.id);
            if (entered.state.used, entered.state.recorded) == (used, recorded) {
                continue;
            }
            entered.state.used = used;
            entered.state.recorded = recorded;
            if let Err(error) = self.parts.states.save(&entered.state) {
                tracing::error!(sandbox.id = %network.id, %error, "budgets used could not be kept");
            }
        }
    }

    /// One network as views show it.
    pub fn describe(&self, id: &NetworkId) -> Option<Described> {
        let network = self.parts.ctx.networks.by_id(id)?;
        let entered = self.states().get(id)?.clone();
        Some(entered.described(network))
    }

    /// All networks, by id.
    pub fn describe_all(&self) -> Vec<Described> {
        self.parts
            .ctx
            .networks
            .all()
            .iter()
            .filter_map(|n| self.describe(&n.id))
            .collect()
    }

    pub(super) fn record(&self, network: &Network, change: &str) -> Result<(), Unwritable> {
        let live = network.live.load();
        self.parts.ctx.journal.append(Entry::Network(NetworkChange {
            network: network.id.clone(),
            run: network.run.clone(),
            change: change.to_owned(),
            policy: live.snapshot.hash(),
            generation: live.generation,
        }))
    }

    /// The time by which names are called old, as the record is.
    pub(super) fn believed_ms(&self) -> i64 {
        self.parts.ctx.journal.believed_ms()
    }

    pub(super) fn names(&self) -> MutexGuard<'_, Names> {
        self.parts
            .names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn allotments(&self) -> MutexGuard<'_, Allotments> {
        self.allotments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn states(&self) -> States<'_> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
