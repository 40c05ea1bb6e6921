//! Drives one run: checked job in, exactly one last event out.
//!
//! The journey: image, isolation class, pod (from the pool or wired now), policy acknowledged, workload prepared and
//! inspected, started; then its output, its end, the timeout and the wish to end it, whichever comes first; then the undo
//! stack in reverse: workload, network, holder, files. Invariant: no workload is made before its pod's network is
//! acknowledged for exactly the job's policy. Failure stance: cleaning up always finishes and collects what failed.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::Runner;
use crate::job::Job;
use crate::output::Meter;
use crate::pod::{Pod, PodError};
use crate::run::{EndReason, Event, Failure, RunId, Started};
use crate::runs::{Ends, Reserved, RunState, RunView};
use crate::sandbox::{Exit, ImageFacts, Isolation, Output, SandboxError, SandboxId, WorkloadSpec};
use crate::summary::Summary;

/// Between asking a workload to end and ending it.
const GRACE: Duration = Duration::from_secs(5);
/// The guest's own deadline comes this much after ours: it is for when everything of ours is gone.
const INIT_GRACE_SECONDS: u64 = 300;
/// Output that is still in the engine's buffers when the workload is gone comes within this.
const LAST_OUTPUT: Duration = Duration::from_secs(3);

/// Where a run's events go. When nobody listens any more, the run is cancelled.
pub type Events = mpsc::Sender<Event>;

/// Runs a job to its end.
pub async fn drive(runner: &Runner, job: Job, events: Events) {
    let last = match start_and_follow(runner, &job, &events).await {
        Ok(last) => last,
        Err(failure) => Event::Failed(failure),
    };
    // Nobody listening is no failure of the run.
    let _ = events.send(last).await;
}

async fn start_and_follow(runner: &Runner, job: &Job, events: &Events) -> Result<Event, Failure> {
    let image = prepare_image(runner, job, events).await?;
    let isolation = choose(runner, job)?;
    let command = if job.command.is_empty() { image.command.clone() } else { job.command.clone() };
    if command.is_empty() {
        let hint = Some("give one after `--`".to_owned());
        return Err(Failure::new("bad_request", format!("image {} names no command", job.image)).hint(hint));
    }
    let (pooled, run, reserved) = match runner.pool.take(&job.workspace, &runner.runs) {
        Some((pod, reserved)) => {
            let run = pod.run.clone();
            (Some(pod), run, reserved)
        }
        None => {
            let run = RunId::allot();
            let reserved = runner.runs.reserve(&run);
            (None, run, reserved)
        }
    };
    let view = RunView {
        run: run.clone(),
        state: RunState::Preparing,
        image: job.image.to_string(),
        program: command.first().cloned().unwrap_or_default(),
        workspace: job.workspace.clone(),
    };
    let claim = Claim { pooled, reserved, view };
    let plan = Plan { job, run: run.clone(), image, isolation, command };
    let outcome = follow(runner, claim, &plan, events).await;
    let state = match &outcome {
        Ok(Event::Ended { code, reason, .. }) => RunState::Ended { code: *code, reason: *reason },
        Ok(_) => RunState::Failed { message: String::new() },
        Err(failure) => RunState::Failed { message: failure.message.clone() },
    };
    runner.runs.leave(&run, state);
    outcome
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
}

async fn follow(runner: &Runner, claim: Claim<'_>, plan: &Plan<'_>, events: &Events) -> Result<Event, Failure> {
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
    // A caller that is gone already is noticed at the first output.
    let _ = events.send(Event::Accepted { run: plan.run.clone() }).await;
    let pod = pod(runner, claim.pooled, plan).await?;
    let mut workload = None;
    let ended = live(runner, &pod, plan, &mut workload, &ends, events).await;
    let (summary, leftovers) = clean_up(runner, pod, workload).await;
    for leftover in &leftovers {
        tracing::warn!(run.id = %plan.run, leftover, "cleaning up after a run");
    }
    let (exit, reason) = ended?;
    let _ = events.send(Event::Flows(summary)).await;
    Ok(Event::Ended { code: reason.exit_code(exit.code), reason, leftovers })
}

async fn prepare_image(runner: &Runner, job: &Job, events: &Events) -> Result<ImageFacts, Failure> {
    match runner.pods.backend.image(&job.image).await {
        Err(SandboxError::NoSuchImage(name)) if crate::image::is_ours(&name) => {
            let step = "building the sandbox image (once, one to two minutes)".to_owned();
            let _ = events.send(Event::Preparing { step }).await;
            runner.images.build(runner.pods.backend.as_ref()).await.map_err(|e| e.into_failure())?;
            runner.pods.backend.image(&job.image).await.map_err(|e| failure("image", &e))
        }
        Err(error @ (SandboxError::NoSuchImage(_) | SandboxError::ImageRefused { .. })) => Err(failure("image", &error)),
        other => other.map_err(|e| failure("engine", &e)),
    }
}

/// The class that the job requires, or the strongest that the host has.
fn choose(runner: &Runner, job: &Job) -> Result<Isolation, Failure> {
    let has = &runner.pods.backend.facts().isolation;
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
async fn pod(runner: &Runner, pooled: Option<Pod>, plan: &Plan<'_>) -> Result<Pod, PodError> {
    if let Some(mut pod) = pooled {
        match runner.pods.assign(&mut pod, &plan.job.policy).await {
            Ok(()) => return Ok(pod),
            Err(error) => {
                let refused = matches!(&error, PodError::Gateway { source, .. } if source.problem().is_some_and(|p| p.code != "not_found"));
                release_unused(runner, Some(pod)).await;
                if refused || matches!(error, PodError::NoSuchPreset(_)) {
                    return Err(error);
                }
                tracing::info!(%error, "a pooled sandbox was of no use");
            }
        }
    }
    runner.pods.wire(&plan.run, &plan.job.workspace, &plan.job.policy).await
}

async fn release_unused(runner: &Runner, pod: Option<Pod>) {
    if let Some(pod) = pod {
        runner.records.forget(&pod.network.id);
        let leftovers = runner.pods.release(pod).await;
        if !leftovers.is_empty() {
            tracing::warn!(?leftovers, "releasing an unused pod");
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
) -> Result<(Exit, EndReason), Failure> {
    let backend = &runner.pods.backend;
    let spec = WorkloadSpec {
        run: plan.run.clone(),
        holder: pod.holder.clone(),
        image_id: plan.image.id.clone(),
        command: plan.command.clone(),
        env: plan.job.env.clone(),
        workdir: plan.job.workdir.clone().unwrap_or_else(|| plan.image.workdir.clone()),
        user: plan.job.user,
        isolation: plan.isolation,
        resources: plan.job.resources,
        deadline_seconds: plan.job.timeout_seconds.saturating_add(INIT_GRACE_SECONDS),
        files: pod.files.clone(),
    };
    let id = backend.prepare(&spec).await.map_err(|e| failure("engine", &e))?;
    *workload = Some(id.clone());
    if ends.is_asked() || events.is_closed() {
        return Err(Failure::new("cancelled", "the run was cancelled before it started"));
    }
    let started = Started {
        network: pod.network.id.clone(),
        policy: pod.network.policy,
        job_policy: pod.network.job_policy,
        isolation: plan.isolation,
        engine: backend.facts().name.clone(),
        image: plan.image.id.clone(),
    };
    let _ = events.send(Event::Started(started)).await;
    let output = backend.start(&id).await.map_err(|e| failure("engine", &e))?;
    runner.runs.running(&plan.run);
    let meter = Meter::new(runner.config.limits.output_bytes);
    let timeout = Duration::from_secs(plan.job.timeout_seconds);
    Watch { runner, id: &id, ends, events, meter }.until_end(output, timeout).await
}

/// Watches a started workload.
struct Watch<'a> {
    runner: &'a Runner,
    id: &'a SandboxId,
    ends: &'a Ends,
    events: &'a Events,
    meter: Meter,
}

impl Watch<'_> {
    async fn until_end(mut self, mut output: Output, timeout: Duration) -> Result<(Exit, EndReason), Failure> {
        let backend = self.runner.pods.backend.clone();
        let mut ended = backend.wait(self.id);
        let mut stop_at = Instant::now() + timeout;
        let mut reason = None;
        let mut waiting = std::collections::VecDeque::new();
        let mut more = true;
        let exit = loop {
            tokio::select! {
                exit = &mut ended => break exit,
                () = tokio::time::sleep_until(stop_at) => {
                    match reason {
                        None => { reason = Some(EndReason::TimedOut); self.ask_to_end().await; }
                        // Asked already, and it did not go.
                        Some(_) => self.kill().await,
                    }
                    stop_at = Instant::now() + GRACE;
                }
                cause = self.ends.asked(), if reason.is_none() => {
                    reason = Some(cause);
                    self.ask_to_end().await;
                    stop_at = Instant::now() + GRACE;
                }
                () = self.events.closed(), if reason.is_none() => {
                    reason = Some(EndReason::Cancelled);
                    self.kill().await;
                    stop_at = Instant::now() + GRACE;
                }
                // Nothing is read while something waits to be sent: a slow reader slows the workload down.
                permit = self.events.reserve(), if !waiting.is_empty() => match (permit, waiting.pop_front()) {
                    (Ok(permit), Some(event)) => permit.send(event),
                    _ => waiting.clear(),
                },
                chunk = output.next(), if more && waiting.is_empty() => match chunk {
                    Some(Ok(chunk)) => waiting.extend(self.meter.pass(chunk)),
                    Some(Err(error)) => { tracing::debug!(%error, "reading output"); more = false; }
                    None => more = false,
                },
            }
        };
        // Dropping what nobody fetches in time: the run is over, its pipe may be held open by the engine.
        let rest = async {
            for event in waiting {
                self.events.send(event).await.ok()?;
            }
            while let (true, Some(Ok(chunk))) = (more, output.next().await) {
                for event in self.meter.pass(chunk) {
                    self.events.send(event).await.ok()?;
                }
            }
            Some(())
        };
        if reason.is_none() {
            let _ = rest.await;
        } else {
            let _ = tokio::time::timeout(LAST_OUTPUT, rest).await;
        }
        let exit = exit.map_err(|e| failure("engine", &e))?;
        let by_itself = if exit.out_of_memory && exit.code != 0 { EndReason::OutOfMemory } else { EndReason::Exited };
        Ok((exit, reason.unwrap_or(by_itself)))
    }

    async fn ask_to_end(&self) {
        if let Err(error) = self.runner.pods.backend.ask_to_end(self.id).await {
            tracing::warn!(%error, "asking a workload to end");
        }
    }

    async fn kill(&self) {
        if let Err(error) = self.runner.pods.backend.kill(self.id).await {
            tracing::warn!(%error, "ending a workload");
        }
    }
}

/// The undo stack, in reverse. The network goes only after the last process of the workload.
async fn clean_up(runner: &Runner, pod: Pod, workload: Option<SandboxId>) -> (Summary, Vec<String>) {
    let mut leftovers = Vec::new();
    if let Some(id) = workload {
        if let Err(error) = runner.pods.backend.remove(&id).await {
            leftovers.push(format!("workload {}: {error}", id.0));
        }
    }
    let network = pod.network.id.clone();
    leftovers.extend(runner.pods.release(pod).await);
    (runner.records.conclude(&network).await, leftovers)
}
