//! The one writer of live networks: attach, detach, replace a policy, adopt after a restart.
//!
//! Owns: what a network is made of (allotment, state, leases, budgets, the kernel's part) and the order in which it
//! comes and goes. A network is known to the doors before its first packet can arrive, and the kernel lets nothing in
//! after its flows are cut. Every change is written to the record and to the state before it is acknowledged.
//! Refuses to own: who may ask ([`crate::control`]) and whether anything may pass ([`crate::posture`]).
//! Failure stance: whatever was made for a network that cannot be completed is taken away again.
//!
//! Calls block for milliseconds (netlink, files): they belong on blocking threads.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use ipnet::IpNet;
use netpolicy::addr::AddressBook;
use netpolicy::ids::{Generation, NetworkId, PolicyHash};
use netpolicy::reason::Reason;
use netpolicy::ruleset::InterfaceName;
use tokio_util::sync::CancellationToken;

use super::allot::{AllotError, Allotments, Allotted, Pools};
use super::flows::FlowTable;
use super::join::{JoinError, may_join};
use super::names::{NameError, Names};
use super::state::{State, StateDir};
use super::{Live, Network, redecide};
use crate::context::{Context, now, now_ms};
use crate::control::{AttachRequest, PolicySource};
use crate::kernel::{AttachPlan, Enforcer, KernelError};
use crate::limits::{Ledger, Used};
use crate::policy::{ComposeError, Composed, Composer, Stamp};
use crate::record::entry::{Entry, NetworkChange};
use crate::record::{Recorded, Unwritable};
use crate::resolve::{LeaseError, LeasePools, Leases};

/// How long the resets of cut flows may take before the kernel shuts a detached network out.
const RESETS: Duration = Duration::from_millis(20);

/// Why a change to the networks was refused. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no such network.
    #[error("there is no network {0}")]
    Unknown(NetworkId),
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
    pub enforcer: Enforcer,
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
    book: ArcSwap<AddressBook>,
    allotments: Mutex<Allotments>,
    /// Held while a network changes: one writer.
    states: Mutex<HashMap<NetworkId, Entered>>,
}

/// A live network as the writer knows it.
#[derive(Clone, Debug)]
pub(super) struct Entered {
    pub(super) state: State,
    job: PolicyHash,
    name: String,
    stamp: Stamp,
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

impl Registry {
    /// No network yet.
    pub fn new(parts: Parts) -> Self {
        let allotments = Mutex::new(Allotments::new(parts.pools.clone()));
        Self {
            book: ArcSwap::new(parts.book.clone()),
            allotments,
            states: Mutex::default(),
            parts,
        }
    }

    /// Reads the floors again; whether they changed.
    pub fn reload_floors(&self) -> Result<bool, crate::policy::FloorError> {
        self.parts.composer.reload()
    }

    /// Where the gateway keeps sockets of its own.
    pub fn run_dir(&self) -> &std::path::Path {
        self.parts.states.run_dir()
    }

    /// Address pools.
    pub fn pools(&self) -> &Pools {
        &self.parts.pools
    }

    /// Address classes now.
    pub fn book(&self) -> Arc<AddressBook> {
        self.book.load_full()
    }

    /// Attaches a namespace. The doors know the network before the kernel lets its first packet in.
    pub fn attach(
        &self,
        request: &AttachRequest,
        namespace: OwnedFd,
        owner: u32,
    ) -> Result<Described, ChangeError> {
        let avoid = self.routed_elsewhere();
        let taken = self.allotments().allot(request.id.clone(), &avoid)?;
        // after allotting: of two that wish the same name at once the second has been refused by now
        if let Some(wished) = &request.id
            && let Err(error) = self.names().may_have(wished)
        {
            self.allotments().release(&taken);
            return Err(error.into());
        }
        let attached = self.attach_allotted(request, namespace, owner, &taken);
        if attached.is_err() {
            self.allotments().release(&taken);
        }
        attached
    }

    fn attach_allotted(
        &self,
        request: &AttachRequest,
        namespace: OwnedFd,
        owner: u32,
        taken: &Allotted,
    ) -> Result<Described, ChangeError> {
        let link: InterfaceName = taken
            .link
            .parse()
            .map_err(|_| KernelError::Unusable("the link's name"))?;
        let mut states = self.states();
        let composed =
            self.parts
                .composer
                .compose(&request.workspace, &request.policy, self.book())?;
        let state = State {
            id: taken.id.clone(),
            run: request.run.clone(),
            workspace: request.workspace.clone(),
            v4: taken.v4,
            v6: taken.v6,
            link: taken.link.clone(),
            broker: request.broker.clone(),
            member: request.member.clone(),
            owner,
            labels: request.labels.clone(),
            source: request.policy.settled(),
            resolved: composed.resolved.clone(),
            policy: composed.snapshot.hash(),
            generation: Generation(1),
            attached_ms: now_ms(),
            used: Used::default(),
            recorded: Recorded::default(),
        };
        may_join(states.values().map(|entered| &entered.state), &state)?;
        self.parts.states.begin(&state.id)?;
        let network = self.enter(&mut states, state, &composed)?;
        // The writer's lock is not needed for the kernel's part: nobody else can change what is not acknowledged yet,
        // and attaches may run side by side.
        drop(states);
        let plan = AttachPlan {
            network: taken.id.clone(),
            link: link.clone(),
            sandbox: namespace,
            v4: taken.v4,
            v6: taken.v6,
            membership: request.member.clone(),
        };
        let wired = self
            .parts
            .enforcer
            .attach(plan)
            .map_err(ChangeError::from)
            .and_then(|_| Ok(self.names().note(&taken.id, now_ms())?))
            .and_then(|()| Ok(self.record(&network, "attached")?));
        if let Err(error) = wired {
            self.leave(&network);
            self.unwire(&link);
            self.parts.states.remove(&taken.id)?;
            return Err(error);
        }
        self.describe(&taken.id)
            .ok_or_else(|| ChangeError::Unknown(taken.id.clone()))
    }

    /// Makes a network from its state and lets the doors know it.
    pub(super) fn enter(
        &self,
        states: &mut MutexGuard<'_, HashMap<NetworkId, Entered>>,
        state: State,
        composed: &Composed,
    ) -> Result<Arc<Network>, ChangeError> {
        let leases = Leases::open(
            &self.parts.states.leases(&state.id),
            self.parts.leases.clone(),
            &state.workspace,
        )?;
        self.parts.states.save(&state)?;
        self.parts.ctx.journal.restore(&state.id, state.recorded);
        let network = Arc::new(Network {
            id: state.id.clone(),
            run: state.run.clone(),
            workspace: state.workspace.clone(),
            v4: state.v4,
            v6: state.v6,
            link: state.link.clone(),
            owner: state.owner,
            scope: crate::resolve::upstream::Scope::fresh(),
            broker: state.broker.clone(),
            member: state.member.clone(),
            live: ArcSwap::from_pointee(live(composed, state.generation)),
            leases,
            ledger: Ledger::new(&composed.snapshot.limits(), state.used),
            flows: FlowTable::default(),
            ended: CancellationToken::new(),
        });
        let entered = Entered {
            job: composed.job,
            name: composed.name.clone(),
            stamp: composed.stamp.clone(),
            state,
        };
        states.insert(network.id.clone(), entered);
        self.parts.ctx.networks.insert(&network);
        Ok(network)
    }

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
        let removed = self
            .parts
            .enforcer
            .detach(link)
            .and_then(crate::kernel::Removal::finish);
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
        let removal = self.parts.enforcer.detach(&link);
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
            if let Err(error) = removal.finish() {
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

    /// Replaces the job policy: new flows are decided by it at once, old ones are decided again and cut if it does not
    /// permit them any more. Returns the network and how many were cut.
    pub fn replace(
        &self,
        id: &NetworkId,
        source: &PolicySource,
    ) -> Result<(Described, usize), ChangeError> {
        let mut states = self.states();
        let network = self
            .parts
            .ctx
            .networks
            .by_id(id)
            .ok_or_else(|| ChangeError::Unknown(id.clone()))?;
        let entered = states
            .get_mut(id)
            .ok_or_else(|| ChangeError::Unknown(id.clone()))?;
        let composed = self
            .parts
            .composer
            .compose(&network.workspace, source, self.book())?;
        let state = State {
            source: source.settled(),
            ..entered.state.clone()
        };
        let cut = self.enforce(&network, entered, state, &composed)?;
        drop(states);
        let described = self
            .describe(id)
            .ok_or_else(|| ChangeError::Unknown(id.clone()))?;
        Ok((described, cut))
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

    /// Writes down budgets used since the last time.
    pub fn persist(&self) {
        let mut states = self.states();
        for network in self.parts.ctx.networks.all() {
            let Some(entered) = states.get_mut(&network.id) else {
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
        Some(Described {
            network,
            state: entered.state,
            job: entered.job,
            policy_name: entered.name,
            stamp: entered.stamp,
        })
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

    /// Prefixes inside the sandbox pool that the host routes or owns: their addresses are passed over.
    fn routed_elsewhere(&self) -> Vec<IpNet> {
        let book = self.book.load();
        let pool = IpNet::V4(self.parts.pools.sandboxes);
        let hosts = book.host.iter().map(|a: &IpAddr| IpNet::from(*a));
        book.local
            .iter()
            .copied()
            .chain(hosts)
            .filter(|net| pool.contains(net))
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

    fn names(&self) -> MutexGuard<'_, Names> {
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

    pub(super) fn states(&self) -> MutexGuard<'_, HashMap<NetworkId, Entered>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn live(composed: &Composed, generation: Generation) -> Live {
    let snapshot = composed.snapshot.clone();
    let (names, explain) = (snapshot.names_mode(), snapshot.explains());
    Live {
        snapshot,
        generation,
        names,
        explain,
    }
}
