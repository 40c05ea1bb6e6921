//! A network comes: allotted, composed, known to the doors, wired, recorded, acknowledged.
//!
//! Invariant: the doors know a network before its first packet can arrive.
//! Failure stance: whatever was made for a network that cannot be completed is taken away again.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use ipnet::IpNet;
use netpolicy::ids::Generation;
use netpolicy::ruleset::InterfaceName;
use tokio_util::sync::CancellationToken;

use super::Network;
use super::allot::{AllotError, Allotted, PROBES, Whose};
use super::ended::EndedConnections;
use super::flows::FlowTable;
use super::join::may_join;
use super::recent::Recent;
use super::registry::{ChangeError, Described, Entered, Registry, Stage, States};
use super::replace::live;
use super::state::State;
use crate::context::now_ms;
use crate::control::AttachRequest;
use crate::control::api::Via;
use crate::kernel::{AttachPlan, KernelError};
use crate::limits::{Ledger, Used};
use crate::policy::Composed;
use crate::record::Recorded;
use crate::resolve::Leases;
use crate::resolve::upstream::Scope;

impl Registry {
    /// Attaches a namespace. The doors know the network before the kernel lets its first packet in.
    pub fn attach(
        &self,
        request: &AttachRequest,
        namespace: OwnedFd,
        owner: u32,
    ) -> Result<Described, ChangeError> {
        self.attach_whose(request, namespace, (owner, Whose::User))
    }

    /// Attaches a namespace of the gateway's own, under a name that nobody else can have and in a place that is kept for it.
    pub fn attach_probe(
        &self,
        request: &AttachRequest,
        namespace: OwnedFd,
        owner: u32,
    ) -> Result<Described, ChangeError> {
        self.attach_whose(request, namespace, (owner, Whose::Probe))
    }

    fn attach_whose(
        &self,
        request: &AttachRequest,
        namespace: OwnedFd,
        (owner, whose): (u32, Whose),
    ) -> Result<Described, ChangeError> {
        self.fits(request.via)?;
        let avoid = self.routed_elsewhere();
        let taken = self.allotments().allot(request.id.clone(), whose, &avoid)?;
        // after allotting: of two that wish the same name at once the second has been refused by now
        if let Some(wished) = &request.id
            && whose == Whose::User
            && let Err(error) = self.names().may_have(wished, owner, self.believed_ms())
        {
            self.allotments().release(&taken);
            return Err(error.into());
        }
        let attached = self.attach_allotted(request, namespace, (owner, whose), &taken);
        if attached.is_err() {
            self.allotments().release(&taken);
        }
        attached
    }

    fn attach_allotted(
        &self,
        request: &AttachRequest,
        namespace: OwnedFd,
        (owner, whose): (u32, Whose),
        taken: &Allotted,
    ) -> Result<Described, ChangeError> {
        let link: InterfaceName = taken
            .link
            .parse()
            .map_err(|_| KernelError::Unusable("the link's name"))?;
        let (composed, mut states) = self.composed(|composer, book| {
            composer.compose(&request.workspace, &request.policy, book)
        })?;
        self.may_run(request.via, &composed)?;
        let state = State {
            id: taken.id.clone(),
            run: request.run.clone(),
            workspace: request.workspace.clone(),
            v4: taken.v4,
            v6: taken.v6,
            link: taken.link.clone(),
            via: request.via,
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
        if states.len() >= self.most_networks(whose) {
            return Err(AllotError::Crowded(states.len()).into());
        }
        may_join(states.values().map(|entered| &entered.state), &state)?;
        self.parts.states.begin(&state.id)?;
        let network = self.enter(&mut states, state, &composed)?;
        // The writer's lock is not needed for the kernel's part: what is being wired nobody can detach, and attaches may
        // run side by side.
        drop(states);
        let connected = match request.via {
            Via::Socket => self.open_socket(&network, namespace),
            Via::Link => self.parts.firewall.require().and_then(|enforcer| {
                let plan = AttachPlan {
                    network: taken.id.clone(),
                    link: link.clone(),
                    sandbox: namespace,
                    v4: taken.v4,
                    v6: taken.v6,
                    membership: request.member.clone(),
                };
                enforcer.attach(plan).map(drop)
            }),
        };
        let wired = connected
            .map_err(ChangeError::from)
            .and_then(|()| Ok(self.names().note(&taken.id, owner, self.believed_ms())?))
            .and_then(|()| Ok(self.record(&network, "attached")?));
        let settled = wired.and_then(|()| {
            let unknown = || ChangeError::Unknown(taken.id.clone());
            self.settle(&network).ok_or_else(unknown)
        });
        if settled.is_err() {
            self.leave(&network);
            self.unwire(&link);
            self.forget(&taken.id);
            self.parts.states.remove(&taken.id)?;
        }
        settled
    }

    /// How many networks there may be for one more of this kind: the last places are the probes'.
    fn most_networks(&self, whose: Whose) -> usize {
        let most = self.parts.ctx.ceilings.descriptors().networks;
        match whose {
            Whose::User => most.saturating_sub(PROBES as usize),
            Whose::Probe => most,
        }
    }

    /// The network is wired: from here on it can be detached.
    pub(super) fn settle(&self, network: &Arc<Network>) -> Option<Described> {
        let mut states = self.states();
        let entered = states.get_mut(&network.id)?;
        entered.stage = Stage::Attached;
        self.settled.notify_all();
        Some(entered.clone().described(network.clone()))
    }

    /// Makes a network from its state and lets the doors know it. It is still to be wired and settled.
    pub(super) fn enter(
        &self,
        states: &mut States<'_>,
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
            via: state.via,
            owner: state.owner,
            scope: Scope::fresh(),
            broker: state.broker.clone(),
            member: state.member.clone(),
            live: ArcSwap::from_pointee(live(composed, state.generation)),
            leases,
            ledger: Ledger::new(&composed.snapshot.limits(), state.used),
            flows: FlowTable::default(),
            connections: EndedConnections::default(),
            recent: Recent::default(),
            adopted: OnceLock::new(),
            ended: CancellationToken::new(),
        });
        let entered = Entered {
            job: composed.job,
            name: composed.name.clone(),
            stamp: composed.stamp.clone(),
            stage: Stage::Wiring,
            state,
        };
        states.insert(network.id.clone(), entered);
        self.parts.ctx.networks.insert(&network);
        Ok(network)
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
}
