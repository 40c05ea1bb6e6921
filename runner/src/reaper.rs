//! Removes what nobody owns: after a kill -9 of the runner, the gateway or the engine.
//!
//! Compares this installation's containers, networks and folders with the runs and pooled pods that this process knows.
//! Trusts no guard's Drop and no earlier clean-up. Never runs anything again: a run that was live when its runner died is
//! lost, and ended. Also ends live runs whose network the gateway no longer has, because nothing may run unwatched.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::time::Duration;

use futures_util::{StreamExt, stream};

use crate::Runner;
use crate::pod::{INSTANCE_LABEL, network_id};
use crate::run::{EndReason, RunId};
use crate::sandbox::SandboxId;

/// Between two rounds; the promise is a minute.
const INTERVAL: Duration = Duration::from_secs(20);

/// A gateway that is started together with this runner answers within this.
const GATEWAY_START: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(50);
/// An engine that obeys has removed what an earlier runner left within this.
const FIRST_ROUND: Duration = Duration::from_secs(10);
/// Runs whose sandboxes an engine is asked to remove at the same time: one that hangs must not keep the others.
const AT_ONCE: usize = 8;

/// What a round found and removed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Round {
    /// Removed things, for the log.
    pub removed: Vec<String>,
    /// What could not be removed; the next round tries again.
    pub failed: Vec<String>,
}

impl Round {
    fn tell(&self) {
        for thing in &self.removed {
            tracing::info!(thing, "removed what nobody owns");
        }
        for thing in &self.failed {
            tracing::warn!(thing, "could not remove what nobody owns");
        }
    }
}

/// Reaps until dropped. Networks go beside everything else: while an engine hangs on the removal of a sandbox, what
/// nobody owns must reach nobody, and live runs without a network must end.
pub async fn reap(runner: &Runner) {
    let mut removing: Option<Pin<Box<dyn Future<Output = Round> + Send + '_>>> = None;
    loop {
        networks(runner).await.tell();
        let removal = removing.get_or_insert_with(|| Box::pin(sandboxes(runner)));
        let next = async {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = runner.ownerless.notified() => {}
            }
        };
        tokio::pin!(next);
        let removed = tokio::select! {
            biased;
            removed = removal => removed,
            () = &mut next => continue,
        };
        removing = None;
        removed.tell();
        next.await;
    }
}

/// The round before the first run: what an earlier runner left goes before anything new comes. The gateway may be
/// starting as well, so it is waited for; neither it nor an engine that takes its time keeps a runner from starting.
pub async fn first_round(runner: &Runner) {
    let awaited = async {
        while runner.pods.gateway.health().await.is_err() {
            tokio::time::sleep(STEP).await;
        }
    };
    if tokio::time::timeout(GATEWAY_START, awaited).await.is_err() {
        let gateway = runner.config.control.display();
        tracing::warn!(%gateway, "no gateway answers; no run can start before one does");
    }
    if let Ok(swept) = tokio::time::timeout(FIRST_ROUND, round(runner)).await {
        let (removed, failed) = (swept.removed.len(), swept.failed.len());
        tracing::info!(removed, failed, "swept what an earlier runner left");
    } else {
        tracing::warn!(
            "the engine takes its time to remove what an earlier runner left; removing it goes on"
        );
    }
}

/// One round.
pub async fn round(runner: &Runner) -> Round {
    let (mut round, of_networks) = tokio::join!(sandboxes(runner), networks(runner));
    round.removed.extend(of_networks.removed);
    round.failed.extend(of_networks.failed);
    round
}

/// The engine's part, and files. Each list is taken before it is asked who owns what is on it: what comes into being in
/// between is not on it.
async fn sandboxes(runner: &Runner) -> Round {
    let mut round = Round::default();
    match runner.pods.backend.owned().await {
        Ok(owned) => {
            let mut ownerless = HashMap::<RunId, Vec<SandboxId>>::new();
            for sandbox in owned.into_iter().filter(|s| !is_owned(runner, &s.run)) {
                ownerless.entry(sandbox.run).or_default().push(sandbox.id);
            }
            let mut removing = stream::iter(ownerless)
                .map(|(run, sandboxes)| remove_all(runner, run, sandboxes))
                .buffer_unordered(AT_ONCE);
            while let Some(of_one) = removing.next().await {
                round.removed.extend(of_one.removed);
                round.failed.extend(of_one.failed);
            }
        }
        Err(error) => round.failed.push(error.to_string()),
    }
    folders(runner, &mut round);
    round
}

/// Removes what is left of one run, one after the other: some engines remove no holder before what is in its namespaces,
/// so what failed is tried again after the others.
async fn remove_all(runner: &Runner, run: RunId, sandboxes: Vec<SandboxId>) -> Round {
    let mut round = Round::default();
    let mut failed = Vec::new();
    for id in sandboxes {
        match runner.pods.backend.remove(&id).await {
            Ok(()) => round.removed.push(format!("sandbox {} of run {run}", id.0)),
            Err(_) => failed.push(id),
        }
    }
    for id in failed {
        let thing = format!("sandbox {} of run {run}", id.0);
        match runner.pods.backend.remove(&id).await {
            Ok(()) => round.removed.push(thing),
            Err(error) => round.failed.push(format!("{thing}: {error}")),
        }
    }
    round
}

fn is_owned(runner: &Runner, run: &RunId) -> bool {
    runner.pool.runs().contains(run) || runner.runs.knows(run)
}

/// The gateway's part.
async fn networks(runner: &Runner) -> Round {
    let mut round = Round::default();
    let expected: Vec<_> = runner.wired_runs();
    let networks = match runner.pods.gateway.networks().await {
        Ok(networks) => networks,
        Err(error) => {
            round
                .failed
                .push(format!("asking the gateway for its networks: {error}"));
            return round;
        }
    };
    let mut present = HashSet::new();
    for network in networks {
        if network.labels.get(INSTANCE_LABEL) != Some(&runner.pods.instance) {
            continue;
        }
        let run = network
            .run
            .as_deref()
            .and_then(|run| run.parse::<RunId>().ok());
        if run.as_ref().is_some_and(|run| is_owned(runner, run)) {
            present.insert(network.id);
            continue;
        }
        match runner.pods.detach(&network.id).await {
            None => round.removed.push(format!("network {}", network.id)),
            Some(failed) => round.failed.push(failed),
        }
    }
    for run in expected {
        if network_id(&run).is_some_and(|id| !present.contains(&id)) {
            lost(runner, &run, &mut round).await;
        }
    }
    round
}

/// The gateway no longer has the network of something wired.
async fn lost(runner: &Runner, run: &RunId, round: &mut Round) {
    if let Some(pod) = runner.pool.take_out(run) {
        round
            .removed
            .push(format!("pooled run {run}, whose network is gone"));
        round.failed.extend(runner.pods.discard(pod).await);
    } else if runner.runs.end(run, EndReason::NetworkLost) {
        round
            .removed
            .push(format!("run {run}, whose network is gone"));
    }
}

fn folders(runner: &Runner, round: &mut Round) {
    let Ok(entries) = std::fs::read_dir(&runner.pods.folder) else {
        return;
    };
    for entry in entries.flatten() {
        let Some(run) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<RunId>().ok())
        else {
            continue;
        };
        if !is_owned(runner, &run) {
            match runner.pods.remove_folder(&run) {
                None => round.removed.push(format!("files of run {run}")),
                Some(failed) => round.failed.push(failed),
            }
        }
    }
}
