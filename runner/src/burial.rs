//! Burials: what an engine has not removed when its run is over is removed beside everything else.
//!
//! An engine may take minutes to bury what it has killed (a kernel in user space leaves hundreds of processes), and one
//! that hangs takes for ever; a run's end waits for neither. Until the burial is done the run keeps its place, because
//! what it spends is still spent. A burial that ends early (the runner stops, or dies) leaves what there is to the next
//! sweep of the [`reaper`](crate::reaper): by then it is nobody's. Nothing here reaches the network, which is gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::Runner;
use crate::pod::Pods;
use crate::run::RunId;
use crate::sandbox::SandboxId;

/// A burial waits so long for each part before it asks again.
const ASKING: Duration = Duration::from_mins(2);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What of a run an engine still has.
#[derive(Debug)]
pub struct Remains {
    run: RunId,
    workload: Option<SandboxId>,
    holder: Option<SandboxId>,
    folder: bool,
}

impl Remains {
    /// Everything that a wired pod with this workload has.
    pub const fn new(run: RunId, workload: Option<SandboxId>, holder: SandboxId) -> Self {
        Self {
            run,
            workload,
            holder: Some(holder),
            folder: true,
        }
    }

    /// Whether everything is gone.
    pub const fn is_nothing(&self) -> bool {
        self.workload.is_none() && self.holder.is_none() && !self.folder
    }

    /// Removes what can be removed, waiting so long for each part, and returns why the rest is still there. Cancel-safe:
    /// what is gone is not asked for again.
    pub async fn remove(&mut self, pods: &Pods, each: Duration) -> Vec<String> {
        // In this order: Podman removes no holder before what is in its namespaces. The second one also if the engine
        // hangs on the first: Docker does.
        let mut failed = Vec::new();
        failed.extend(gone("workload", &mut self.workload, pods, each).await);
        failed.extend(gone("holder", &mut self.holder, pods, each).await);
        if failed.is_empty() {
            let left = pods.remove_folder(&self.run);
            self.folder = left.is_some();
            failed.extend(left);
        }
        failed
    }
}

/// Removes one part; says why it is still there.
async fn gone(
    part: &str,
    place: &mut Option<SandboxId>,
    pods: &Pods,
    limit: Duration,
) -> Option<String> {
    let id = place.clone()?;
    let late = || format!("the engine has not removed it within {limit:?}, and is asked again");
    let why = match tokio::time::timeout(limit, pods.backend.remove(&id)).await {
        Ok(Ok(())) => {
            *place = None;
            return None;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => late(),
    };
    Some(format!("{part} {}: {why}", id.0))
}

/// A run's place while it is being buried; given back on drop, whatever ends the burial.
struct Grave {
    runner: Arc<Runner>,
    run: RunId,
}

impl Drop for Grave {
    fn drop(&mut self) {
        self.runner.runs.buried(&self.run);
    }
}

/// Removes the rest beside everything else, as often as it takes.
pub fn bury(runner: &Arc<Runner>, mut remains: Remains) {
    let run = remains.run.clone();
    runner.runs.bury(&run);
    let grave = Grave {
        runner: runner.clone(),
        run,
    };
    let burial = async move {
        let Grave { runner, run } = &grave;
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        tracing::warn!(run.id = %run, ?remains, "the run is over and the engine has not removed it; removing it goes on");
        loop {
            let failed = remains.remove(&runner.pods, ASKING).await;
            if failed.is_empty() {
                break;
            }
            tracing::warn!(run.id = %run, ?failed, "removing what is left of a run");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        let seconds = begun.elapsed().as_secs();
        tracing::info!(run.id = %run, seconds, "nothing is left of the run");
    };
    runner.tasks.spawn("burial", burial);
}
