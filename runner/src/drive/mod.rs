//! Drives one run: checked job in, exactly one last event out.
//!
//! The journey: image, isolation class, the image's package hosts if the policy uses them, pod (from the pool or wired
//! now), policy acknowledged, workload prepared and inspected, started; then its output, its end, the timeout and the wish
//! to end it, whichever comes first; then everything of it goes: the network at once, workload, holder and files as soon
//! as the engine obeys. Invariants: no workload is made before its pod's network is acknowledged for exactly the job's
//! policy; no end waits for an engine that does not answer. Failure stance: cleaning up always finishes and collects what
//! failed; what an engine has not removed in time is [`burial`](crate::burial)'s.

mod feed;
mod packages;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway::control::PolicySource;
use gateway::control::api::Via;
use tokio::sync::{Mutex, mpsc};

use self::feed::Feeding;
use self::watch::{Over, Watch};
use crate::Runner;
use crate::api::STOPPING;
use crate::burial::{self, Remains};
use crate::image::ImageError;
use crate::job::Job;
use crate::output::Meter;
use crate::pod::{Pod, PodError, network_id, proxy_variables};
use crate::run::{EndReason, Event, Failure, RunId, Started};
use crate::runs::{Ends, Reserved, RunState, RunView};
use crate::sandbox::{
    ImageFacts, Isolation, Prepared, SandboxError, SandboxId, Streams, WorkloadSpec,
};
use crate::summary::Summary;

/// The guest's own deadline comes this much after ours: it is for when everything of ours is gone.
const INIT_GRACE_SECONDS: u64 = 300;

/// A run that is over waits this long for an engine that has told its end, to remove each part of what is left of it.
const CLEANING: Duration = Duration::from_secs(10);
/// The same, for an engine that has not told the end of what it was asked to kill.
const HOPING: Duration = Duration::from_secs(3);
/// How a shell has what SIGKILL ended.
const KILLED: i64 = 137;

/// Where a run's events go. When nobody listens any more, the run is cancelled.
pub type Events = mpsc::Sender<Event>;

/// Runs a job to its end.
pub async fn drive(runner: &Arc<Runner>, job: Job, events: Events) {
    let last = match start_and_follow(runner, &job, &events).await {
        Ok(done) => {
            let ended = Event::Ended {
                code: done.code,
                reason: done.reason,
                leftovers: done.leftovers,
            };
            vec![Event::Flows(done.summary), ended]
        }
        Err(failure) => vec![Event::Failed(failure)],
    };
    for event in last {
        // Nobody listening is no failure of the run.
        let _ = events.send(event).await;
    }
}

/// A run that was started, over and cleaned up.
struct Done {
    code: i64,
    reason: EndReason,
    summary: Summary,
    leftovers: Vec<String>,
}

async fn start_and_follow(
    runner: &Arc<Runner>,
    job: &Job,
    events: &Events,
) -> Result<Done, Failure> {
    let image = prepare_image(runner, job, events).await?;
    let isolation = choose(runner, job).await?;
    let command = if job.command.is_empty() {
        image.command.clone()
    } else {
        job.command.clone()
    };
    if command.is_empty() {
        let hint = Some("give one after `--`".to_owned());
        return Err(Failure::new(
            "bad_request",
            format!("image {} names no command", job.image),
        )
        .hint(hint));
    }
    let (pooled, reserved) = runner.pool.take(&job.workspace, &runner.runs).unzip();
    let run = pooled
        .as_ref()
        .map_or_else(RunId::allot, |pod: &Pod| pod.run.clone());
    let reserved = reserved.unwrap_or_else(|| runner.runs.reserve(&run));
    let view = RunView {
        run: run.clone(),
        state: RunState::Preparing,
        image: job.image.to_string(),
        program: command.first().cloned().unwrap_or_default(),
        workspace: job.workspace.clone(),
    };
    let claim = Claim {
        pooled,
        reserved,
        view,
    };
    let plan = Plan {
        job,
        run: run.clone(),
        image,
        isolation,
        command,
        arriving: Mutex::default(),
    };
    let entered = Entered { runner, run: &run };
    let outcome = follow(runner, claim, &plan, events).await;
    let state = match &outcome {
        Ok(done) => RunState::Ended {
            code: done.code,
            reason: done.reason,
        },
        Err(failure) => RunState::Failed {
            message: failure.message.clone(),
        },
    };
    entered.leave(state);
    outcome
}

/// Takes a run out of the table whatever happens, or the reaper would spare its remains for ever.
struct Entered<'a> {
    runner: &'a Runner,
    run: &'a RunId,
}

impl Entered<'_> {
    fn leave(self, state: RunState) {
        self.runner.runs.leave(self.run, state);
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let message = "the runner failed while it drove this run".to_owned();
        // Nothing happens if it has left already.
        self.runner
            .runs
            .leave(self.run, RunState::Failed { message });
        // a run that never started took a pod, too
        self.runner.pool.refill();
    }
}

/// A run id with what the pool gave for it.
struct Claim<'a> {
    pooled: Option<Pod>,
    reserved: Reserved<'a>,
    view: RunView,
}

/// Everything that is decided about a run before anything of it exists.
struct Plan<'a> {
    job: &'a Job,
    run: RunId,
    image: ImageFacts,
    isolation: Isolation,
    command: Vec<String>,
    /// Where its input arrives, once it is accepted.
    arriving: Mutex<Option<mpsc::Receiver<Bytes>>>,
}

async fn follow(
    runner: &Arc<Runner>,
    claim: Claim<'_>,
    plan: &Plan<'_>,
    events: &Events,
) -> Result<Done, Failure> {
    let entered = runner.runs.enter(claim.view);
    drop(claim.reserved);
    let ends = match entered {
        Ok(ends) => ends,
        Err(busy) => {
            release_unused(runner, claim.pooled).await;
            let hint = Some("wait for a run to end, or raise `runner.max_runs`".to_owned());
            return Err(Failure::new("busy", busy.to_string()).hint(hint));
        }
    };
    // Asked after entering: whoever stops the runner ends every run that was entered before.
    if runner.is_stopping() {
        release_unused(runner, claim.pooled).await;
        return Err(never_begun(Some(EndReason::RunnerStopped)));
    }
    if !plan.job.takes.is_nothing() {
        *plan.arriving.lock().await = Some(runner.runs.expect_input(&plan.run));
    }
    // A caller that is gone already is noticed at the first output.
    let _ = events
        .send(Event::Accepted {
            run: plan.run.clone(),
        })
        .await;
    let policy = match packages::resolved(runner, plan, &ends, events).await {
        Ok(policy) => policy,
        Err(failure) => {
            release_unused(runner, claim.pooled).await;
            return Err(failure);
        }
    };
    let pod = tokio::select! {
        pod = pod(runner, claim.pooled, plan, &policy) => pod?,
        failure = unwanted(&ends, events) => {
            // half made: an engine that is asked in vain must not keep the run, and the reaper finds what there is
            runner.runs.leave(&plan.run, RunState::Failed { message: failure.message.clone() });
            if let Some(id) = network_id(&plan.run) {
                runner.records.forget(&id);
            }
            runner.ownerless.notify_one();
            return Err(failure);
        }
    };
    let mut workload = None;
    let ended = live(runner, &pod, plan, &mut workload, &ends, events).await;
    let patience = match &ended {
        Ok((Over::Unanswered, _)) => HOPING,
        Ok((Over::Gone(_), _)) | Err(_) => CLEANING,
    };
    let (summary, leftovers) = clean_up(runner, pod, workload, patience).await;
    for leftover in &leftovers {
        tracing::warn!(run.id = %plan.run, leftover, "cleaning up after a run");
    }
    let (over, reason) = ended?;
    let code = match over {
        Over::Gone(exit) => exit.code,
        Over::Unanswered => KILLED,
    };
    Ok(Done {
        code: reason.exit_code(code),
        reason,
        summary,
        leftovers,
    })
}

/// Returns when a run that has not started is not wanted any more.
async fn unwanted(ends: &Ends, events: &Events) -> Failure {
    let cause = tokio::select! {
        cause = ends.asked() => Some(cause),
        () = events.closed() => None,
    };
    never_begun(cause)
}

/// A runner that stops has cancelled nothing: whoever asked may ask the next one.
fn never_begun(cause: Option<EndReason>) -> Failure {
    match cause {
        Some(EndReason::RunnerStopped) => {
            Failure::new(STOPPING, "the runner stopped before the run started")
        }
        _ => Failure::new("cancelled", "the run was cancelled before it started"),
    }
}

async fn prepare_image(runner: &Runner, job: &Job, events: &Events) -> Result<ImageFacts, Failure> {
    match runner.pods.backend.image(&job.image).await {
        Err(SandboxError::NoSuchImage(name)) if crate::image::is_ours(&name) => {
            let step = "building the sandbox image (once, one to two minutes)".to_owned();
            let _ = events.send(Event::Preparing { step }).await;
            runner
                .images
                .build(runner.pods.backend.as_ref())
                .await
                .map_err(ImageError::into_failure)?;
            runner
                .pods
                .backend
                .image(&job.image)
                .await
                .map_err(|e| failure("image", &e))
        }
        Err(error @ (SandboxError::NoSuchImage(_) | SandboxError::ImageRefused { .. })) => {
            Err(failure("image", &error))
        }
        Ok(facts) if crate::image::is_ours(&job.image) => {
            if let Some(step) = runner.images.staleness(&facts).await {
                let _ = events.send(Event::Preparing { step }).await;
            }
            Ok(facts)
        }
        other => other.map_err(|e| failure("engine", &e)),
    }
}

/// The class that the job requires, or the strongest that the host has.
async fn choose(runner: &Runner, job: &Job) -> Result<Isolation, Failure> {
    let mut has = runner.pods.backend.facts().isolation.clone();
    if runner.pods.via().await? == Via::Socket {
        // a kernel in user space has a loopback of its own, on which nobody could answer
        has.retain(|class| *class == Isolation::Hardened);
        if job.isolation.required() == Some(Isolation::Gvisor) {
            let text =
                "the class gvisor needs the egress firewall, and the gateway runs without it";
            let hint = Some("`sallyport doctor` says what the firewall lacks".to_owned());
            return Err(Failure::new("isolation", text).hint(hint));
        }
    }
    let chosen = match job.isolation.required() {
        Some(required) if has.contains(&required) => Ok(required),
        Some(required) => Err(required),
        None => has.iter().max().copied().ok_or(Isolation::Hardened),
    };
    chosen.map_err(|missing| failure("isolation", &SandboxError::NoSuchIsolation(missing)))
}

fn failure(code: &str, error: &SandboxError) -> Failure {
    Failure::new(code, error.to_string()).hint(error.hint())
}

/// The pooled pod under the job's policy, or a fresh one.
async fn pod(
    runner: &Runner,
    pooled: Option<Pod>,
    plan: &Plan<'_>,
    policy: &PolicySource,
) -> Result<Pod, PodError> {
    if let Some(mut pod) = pooled {
        match runner.pods.assign(&mut pod, policy).await {
            Ok(()) => return Ok(pod),
            Err(error) => {
                // a pooled pod from before the firewall came is of no use, and a fresh one may be
                let useless = ["not_found", "not_enforced"];
                let refused = matches!(&error, PodError::Gateway { source, .. } if source.problem().is_some_and(|p| !useless.contains(&p.code.as_str())));
                release_unused(runner, Some(pod)).await;
                // What it acknowledged wrongly is not asked again.
                let wrong = matches!(
                    error,
                    PodError::NoSuchPreset(_)
                        | PodError::OtherPolicy { .. }
                        | PodError::OldGeneration { .. }
                );
                if refused || wrong {
                    return Err(error);
                }
                tracing::info!(%error, "a pooled sandbox was of no use");
            }
        }
    }
    runner
        .pods
        .wire(&plan.run, &plan.job.workspace, policy)
        .await
}

async fn release_unused(runner: &Runner, pod: Option<Pod>) {
    if let Some(pod) = pod {
        // Its network goes first; an engine that takes longer for the rest is the reaper's.
        match tokio::time::timeout(CLEANING, runner.pods.discard(pod)).await {
            Ok(leftovers) if leftovers.is_empty() => {}
            Ok(leftovers) => tracing::warn!(?leftovers, "releasing an unused pod"),
            Err(_) => tracing::warn!("the engine does not remove an unused pod"),
        }
    }
}

/// From a wired pod to the workload's end. `workload` is set as soon as there is something to remove.
async fn live(
    runner: &Runner,
    pod: &Pod,
    plan: &Plan<'_>,
    workload: &mut Option<SandboxId>,
    ends: &Ends,
    events: &Events,
) -> Result<(Over, EndReason), Failure> {
    let backend = &runner.pods.backend;
    let arriving = plan.arriving.lock().await.take();
    let spec = WorkloadSpec {
        run: plan.run.clone(),
        holder: pod.holder.clone(),
        image_id: plan.image.id.clone(),
        command: plan.command.clone(),
        // the job's own come last, and win
        env: [proxy_variables(pod.network.via), plan.job.env.clone()].concat(),
        workdir: plan
            .job
            .workdir
            .clone()
            .unwrap_or_else(|| plan.image.workdir.clone()),
        user: plan.job.user,
        isolation: plan.isolation,
        resources: plan.job.resources,
        deadline_seconds: plan.job.timeout_seconds.saturating_add(INIT_GRACE_SECONDS),
        files: pod.files.clone(),
        takes: plan.job.takes,
    };
    let prepared = tokio::select! {
        prepared = backend.prepare(&spec) => prepared,
        // what the engine makes of it none the less is nobody's when this run is over
        failure = unwanted(ends, events) => return Err(failure),
    };
    let Prepared { id, unlimited } = prepared.map_err(|e| failure("engine", &e))?;
    *workload = Some(id.clone());
    if ends.cause().is_some() || events.is_closed() {
        return Err(never_begun(ends.cause()));
    }
    let started = Started {
        network: pod.network.id.clone(),
        policy: pod.network.policy,
        job_policy: pod.network.job_policy,
        isolation: plan.isolation,
        engine: backend.facts().name.clone(),
        image: plan.image.id.clone(),
        notes: notes(&unlimited, pod.network.remark.as_deref()),
    };
    let _ = events.send(Event::Started(started)).await;
    let Streams { output, input } = tokio::select! {
        streams = backend.start(&id, plan.job.takes) => streams.map_err(|e| failure("engine", &e))?,
        failure = unwanted(ends, events) => return Err(failure),
    };
    runner.runs.running(&plan.run);
    runner.pool.refill();
    let meter = Meter::new(runner.config.limits.output_bytes);
    let timeout = Duration::from_secs(plan.job.timeout_seconds);
    Watch {
        runner,
        id: &id,
        ends,
        events,
        meter,
    }
    .until_end(output, Feeding::new(arriving, input), timeout)
    .await
}

/// What holds less than was asked for, for people.
fn notes(unlimited: &[&str], remark: Option<&str>) -> Vec<String> {
    let lacking = (!unlimited.is_empty()).then(|| {
        format!(
            "this engine does not limit {}: one run may take all that its user has (rootless engines need control groups \
             of version 2, delegated to the user)",
            unlimited.join(", ")
        )
    });
    remark
        .map(str::to_owned)
        .into_iter()
        .chain(lacking)
        .collect()
}

/// Everything of a run goes. The network at once, whatever the engine does: what might still run then reaches nobody.
async fn clean_up(
    runner: &Arc<Runner>,
    pod: Pod,
    workload: Option<SandboxId>,
    patience: Duration,
) -> (Summary, Vec<String>) {
    let network = pod.network.id.clone();
    let mut remains = Remains::new(pod.run, workload, pod.holder);
    let (detached, failed) = tokio::join!(
        runner.pods.detach(&network),
        remains.remove(&runner.pods, patience)
    );
    let leftovers = detached.into_iter().chain(failed).collect();
    if !remains.is_nothing() {
        burial::bury(runner, remains);
    }
    (runner.records.conclude(&network).await, leftovers)
}
