//! What the verbs do: views over live state, and changes through the registry.
//!
//! A change runs to its end whether or not its client waits; an attach whose client has gone is taken back.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use netpolicy::ids::NetworkId;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::access::{Group, Peer, is_ours, may, may_any, may_in};
use super::api::{
    AttachRequest, ContainerReport, Detached, ExplainRequest, FlowView, FourTuple, Health,
    NetworkView, Owner, PolicyReplaced, PolicySource, PostureView, Problem, SelftestReport, Via,
};
use super::check::{check_attach, check_source};
use super::disposal::Offered;
use super::places::Places;
use super::problems;
use super::readers::Readers;
use crate::config::ControlUsers;
use crate::context::Context;
use crate::kernel::error::Act;
use crate::kernel::{Enforcer, Firewall, KernelError, Ns};
use crate::network::flows::Flow;
use crate::network::registry::{ChangeError, Described, Registry};
use crate::posture::Posture;
use crate::record::Journal;
use crate::selftest::{Selftest, contained};
use crate::source::Following;
use crate::tasks::Tasks;

/// The part of all places for networks that is root's and the gateway's own user's alone.
const OURS: usize = 8;
/// How long an attach waits for a gateway that is repairing itself.
const REPAIR: Duration = Duration::from_secs(3);

/// Everything that verbs need.
#[derive(Debug)]
pub struct Verbs {
    /// Shared handles.
    pub ctx: Context,
    /// The one writer.
    pub registry: Arc<Registry>,
    /// Posture.
    pub posture: Arc<Posture>,
    /// The kernel part.
    pub firewall: Firewall,
    /// Users of the socket.
    pub users: ControlUsers,
    /// Networks that one other user may have at once.
    pub share: usize,
    /// Places of those who read the record.
    pub readers: Readers,
    /// Places of changes, by user.
    pub changes: Places,
    /// Places of packet captures.
    pub captures: Arc<tokio::sync::Semaphore>,
    /// The escape suite.
    pub selftest: Arc<Selftest>,
    /// Policies in git.
    pub following: Following,
}

impl Verbs {
    /// Spawner.
    pub fn tasks(&self) -> &Tasks {
        &self.ctx.tasks
    }

    /// Users of the socket.
    pub fn users(&self) -> &ControlUsers {
        &self.users
    }

    /// The record.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.ctx.journal
    }

    /// Attaches. No answer before the kernel part was read back and the record has it.
    pub async fn attach(
        &self,
        request: AttachRequest,
        namespace: Offered,
        peer: Peer,
        place: OwnedSemaphorePermit,
    ) -> Result<NetworkView, Problem> {
        check_attach(&request, peer)?;
        self.may_work_in(&request.workspace, peer)?;
        self.may_have_more(peer)?;
        self.wait_open().await?;
        self.wait_source(&request.policy).await;
        self.has_floor(&request.workspace, peer)?;
        let registry = self.registry.clone();
        let only_own = !may_any(&self.users, peer);
        let (sender, receiver) = oneshot::channel();
        let work = move || {
            let offered = match request.via {
                Via::Link => judge(&namespace, peer, only_own),
                // a listener, which is judged where it is served
                Via::Socket => namespace
                    .duplicate()
                    .act("duplicating a listener's descriptor"),
            };
            let attached = offered
                .map_err(ChangeError::from)
                .and_then(|namespace| registry.attach(&request, namespace, peer.uid));
            drop(place);
            let id = attached.as_ref().ok().map(|d| d.network.id.clone());
            let nobody_waits = sender.is_closed() || sender.send(attached).is_err();
            if let (true, Some(id)) = (nobody_waits, id)
                && let Err(error) = registry.detach(&id, "detached")
            {
                tracing::error!(sandbox.id = %id, %error, "an attach that nobody waited for could not be taken back");
            }
        };
        // A plain blocking task: it ends by itself, whatever becomes of the connection.
        drop(tokio::task::spawn_blocking(work));
        let described = receiver
            .await
            .map_err(|_| problems::stopping())?
            .map_err(|e| problems::change(&e))?;
        Ok(self.view(&described))
    }

    /// Refuses a workspace that a user is not bound to: who chooses the workspace chooses its floor.
    pub(super) fn may_work_in(&self, workspace: &str, peer: Peer) -> Result<(), Problem> {
        if may_in(&self.users, peer, workspace) {
            return Ok(());
        }
        let text = format!("this user may not work in the workspace {workspace:?}");
        Err(Problem::new(403, "not_allowed", text)
            .hint("`gateway.control_users.attach` names a user's workspaces"))
    }

    /// Refuses others a workspace without a floor where `workspace_floors` says that workspaces have floors.
    fn has_floor(&self, workspace: &str, peer: Peer) -> Result<(), Problem> {
        if is_ours(peer.uid) || self.registry.has_floor(workspace) {
            return Ok(());
        }
        let text = format!("the workspace {workspace:?} has no floor");
        Err(Problem::new(403, "not_allowed", text)
            .hint("root adds WORKSPACE.yaml to `gateway.workspace_floors`"))
    }

    /// Refuses a user who has its share of networks: addresses, links and rules are everybody's.
    fn may_have_more(&self, peer: Peer) -> Result<(), Problem> {
        if is_ours(peer.uid) {
            return Ok(());
        }
        let all = self.ctx.networks.all();
        let own = all.iter().filter(|n| n.owner == peer.uid).count();
        let others = all.iter().filter(|n| !is_ours(n.owner)).count();
        // however few a small pool or few descriptors leave, one user finds no end of them, nor do all of them
        let places = self.registry.places();
        if others >= places - places / OURS {
            let text = format!(
                "all users together have {others} networks, and there are places for no more"
            );
            return Err(Problem::new(503, "full", text)
                .hint("detach some, widen `gateway.pools.sandboxes`, or raise the gateway's limit of open files"));
        }
        if own < self.share.min((places / 2).max(1)) {
            return Ok(());
        }
        let text = format!("this user has {own} networks, which is its share");
        Err(Problem::new(429, "full", text)
            .hint("detach some, or raise `gateway.networks_per_user`"))
    }

    /// Whether a user may change a network: who attached it, or somebody who may do everything. Who may not even look at
    /// networks is not told that there is one.
    pub fn owned(&self, id: &NetworkId, peer: Peer) -> Result<(), Problem> {
        let owner = self.ctx.networks.by_id(id).map(|network| network.owner);
        if is_ours(peer.uid) || owner == Some(peer.uid) {
            Ok(())
        } else if owner.is_some() && may(&self.users, peer, Group::Observe) {
            Err(problems::not_yours(id))
        } else {
            Err(problems::unknown(id))
        }
    }

    /// Detaches.
    pub async fn detach(&self, id: NetworkId) -> Result<Detached, Problem> {
        let (registry, of) = (self.registry.clone(), id.clone());
        let (cut, used) = blocking(move || registry.detach(&of, "detached"))
            .await?
            .map_err(|e| problems::change(&e))?;
        Ok(Detached { id, cut, used })
    }

    /// Replaces a job policy.
    pub async fn replace(
        &self,
        id: NetworkId,
        source: PolicySource,
        place: OwnedSemaphorePermit,
    ) -> Result<PolicyReplaced, Problem> {
        check_source(&source)?;
        let asked = std::time::Instant::now();
        self.wait_open().await?;
        self.wait_source(&source).await;
        let registry = self.registry.clone();
        let work = move || {
            let replaced = registry.replace(&id, &source);
            drop(place);
            replaced
        };
        let replaced = blocking(work).await?;
        let (described, cut) = replaced.map_err(|e| problems::change(&e))?;
        self.journal().meters().policy_changed(asked.elapsed());
        let state = described.state;
        Ok(PolicyReplaced {
            policy: state.policy,
            job_policy: described.job,
            generation: state.generation,
            cut,
        })
    }

    /// Nothing is acknowledged while the gateway is sealed; a repair takes milliseconds, so a short wait is fair.
    async fn wait_open(&self) -> Result<(), Problem> {
        let mut open = self.ctx.open.clone();
        match tokio::time::timeout(REPAIR, open.wait_for(|open| *open)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(problems::stopping()),
            Err(_) => Err(problems::sealed(&self.posture.view())),
        }
    }

    /// All networks. The writer's lock is waited for off the runtime's threads, which carry everybody's flows.
    pub async fn networks(&self) -> Result<Vec<NetworkView>, Problem> {
        let registry = self.registry.clone();
        let described = blocking(move || registry.describe_all()).await?;
        Ok(described.iter().map(|d| self.view(d)).collect())
    }

    /// One network.
    pub async fn network(&self, id: &NetworkId) -> Result<NetworkView, Problem> {
        let (registry, of) = (self.registry.clone(), id.clone());
        let described = blocking(move || registry.describe(&of)).await?;
        described
            .map(|d| self.view(&d))
            .ok_or_else(|| problems::unknown(id))
    }

    fn view(&self, described: &Described) -> NetworkView {
        let Described {
            network,
            state,
            job,
            policy_name,
            stamp,
        } = described;
        let live = network.live.load();
        NetworkView {
            id: network.id.clone(),
            run: network.run.clone(),
            workspace: network.workspace.clone(),
            v4: network.v4,
            v6: network.v6,
            service_v4: self.registry.pools().service_v4(),
            service_v6: self.registry.pools().service_v6(),
            policy: live.snapshot.hash(),
            job_policy: *job,
            policy_name: policy_name.clone(),
            stamp: stamp.clone(),
            generation: live.generation,
            names: live.names,
            attached_ms: state.attached_ms,
            flows: network.flows.all().len(),
            used: network.ledger.used(),
            member: network.member.clone(),
            via: network.via,
            remark: self.remark(),
            labels: state.labels.clone(),
        }
    }

    fn remark(&self) -> Option<String> {
        let PostureView { label, cause, .. } = self.posture.view();
        let cause = cause?;
        (label != crate::posture::BLOCKED).then(|| format!("{label}: {cause}"))
    }

    /// Live flows of one network or of all.
    pub fn flows(&self, of: Option<&NetworkId>) -> Result<Vec<FlowView>, Problem> {
        let networks = match of {
            Some(id) => vec![
                self.ctx
                    .networks
                    .by_id(id)
                    .ok_or_else(|| problems::unknown(id))?,
            ],
            None => self.ctx.networks.all(),
        };
        Ok(networks
            .iter()
            .flat_map(|n| n.flows.all().into_iter().map(|f| flow_view(&n.id, &f)))
            .collect())
    }

    /// Whether a 4-tuple is one of our upstream sockets.
    pub fn owner(&self, tuple: &FourTuple) -> Owner {
        let ours = |flow: &Arc<Flow>| {
            let Some(local) = flow.local.get() else {
                return false;
            };
            let (local, upstream) = (*local, flow.upstream);
            // Whoever asks may stand at either end.
            (tuple.local, tuple.remote) == (local, upstream)
                || (tuple.local, tuple.remote) == (upstream, local)
        };
        for network in self.ctx.networks.all() {
            if let Some(flow) = network.flows.all().iter().find(|f| ours(f)) {
                return Owner {
                    ours: true,
                    network: Some(network.id.clone()),
                    flow: Some(flow.id),
                };
            }
        }
        Owner {
            ours: false,
            network: None,
            flow: None,
        }
    }

    /// Liveness.
    pub fn health(&self) -> Health {
        Health {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            open: *self.ctx.open.borrow(),
            journal: self.ctx.journal.writable(),
            networks: self.ctx.networks.all().len(),
            pid: std::process::id(),
        }
    }

    /// Posture.
    pub fn posture(&self) -> PostureView {
        PostureView {
            selftest: self.selftest.newest(),
            ..self.posture.view()
        }
    }

    /// The kernel rules in force, as text.
    pub async fn rules(&self) -> Result<String, Problem> {
        let enforcer = self.enforcer()?;
        blocking(move || enforcer.rules_text()).await
    }

    /// The kernel part, or the words for that there is none.
    pub fn enforcer(&self) -> Result<Enforcer, Problem> {
        let enforcer = self.firewall.require();
        enforcer.cloned().map_err(|e| problems::kernel(&e))
    }

    /// Counters by name.
    pub async fn counters(&self) -> Result<serde_json::Value, Problem> {
        let kernel = match self.firewall.get().cloned() {
            Some(enforcer) => blocking(move || enforcer.counters())
                .await?
                .map_err(|e| problems::kernel(&e))?,
            None => Vec::new(),
        };
        let kernel: serde_json::Map<String, serde_json::Value> = kernel
            .into_iter()
            .map(|(name, counter)| {
                (
                    name,
                    serde_json::json!({ "packets": counter.packets, "bytes": counter.bytes }),
                )
            })
            .collect();
        let (flows, most) = self.ctx.ceilings.flows();
        Ok(serde_json::json!({
            "kernel": kernel,
            "networks": self.ctx.networks.all().len(),
            "flows": flows,
            "flows_most": most,
            "records": self.ctx.journal.last(),
            "panics": self.ctx.tasks.panics(),
        }))
    }

    /// Runs the escape suite, also of a gateway that stays sealed; one that is starting or repairing itself is about to be
    /// open.
    pub async fn selftest(&self) -> Result<SelftestReport, Problem> {
        let _ = self.wait_open().await;
        self.selftest
            .run(&self.posture, "asked")
            .await
            .map_err(|e| Problem::new(500, "kernel", format!("the selftest could not run: {e}")))
    }

    /// Takes what a runner saw in containers: it is recorded, and seals when a row failed.
    pub async fn contained(
        &self,
        report: ContainerReport,
        place: OwnedSemaphorePermit,
    ) -> Result<PostureView, Problem> {
        if let Some(mistake) = contained::mistake(&report) {
            return Err(Problem::new(400, "bad_request", mistake));
        }
        let (selftest, posture) = (self.selftest.clone(), self.posture.clone());
        let work = move || {
            let taken = contained::take(&selftest, &posture, &report);
            drop(place);
            taken
        };
        blocking(work).await?.map_err(|error| {
            let text = format!("the rows could not be recorded: {error}");
            Problem::new(503, "journal", text).hint("free space for the journal")
        })?;
        Ok(self.posture())
    }

    /// Lets go of what rows of containers sealed for, so that a runner can try again.
    pub async fn try_containers_again(&self) -> Result<PostureView, Problem> {
        let (selftest, posture) = (self.selftest.clone(), self.posture.clone());
        blocking(move || contained::try_again(&selftest, &posture)).await?;
        Ok(self.posture())
    }

    /// What would become of a destination.
    pub fn explain(
        &self,
        id: &NetworkId,
        request: &ExplainRequest,
    ) -> Result<serde_json::Value, Problem> {
        let network = self
            .ctx
            .networks
            .by_id(id)
            .ok_or_else(|| problems::unknown(id))?;
        super::explain::explain(&self.ctx, &network, request)
    }
}

/// Lets a peer attach only what is its own, and nobody what a gateway works in.
fn judge(namespace: &Offered, peer: Peer, only_own: bool) -> Result<OwnedFd, KernelError> {
    let again = namespace.duplicate();
    let ns = Ns::from_fd(again.act("duplicating a namespace descriptor")?)?;
    if only_own {
        ns.refuse_foreign(peer.uid)?;
    }
    ns.refuse_gateways()?;
    Ok(ns.into())
}

/// One live flow.
fn flow_view(network: &NetworkId, flow: &Flow) -> FlowView {
    FlowView {
        id: flow.id,
        network: network.clone(),
        door: flow.door,
        source: flow.source,
        destination: flow.destination,
        upstream: flow.upstream,
        name: flow.ground.name().map(ToString::to_string),
        class: flow.ground.class(),
        rule: flow.ground.rules().last().map(|(_, _, at)| at.clone()),
        opened_ms: flow.opened_ms,
        up: flow.up.load(Ordering::Relaxed),
        down: flow.down.load(Ordering::Relaxed),
    }
}

/// Runs netlink and file work off the runtime's threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|_| {
        Problem::new(
            500,
            "internal",
            "the gateway failed at this; its log says how",
        )
    })
}
