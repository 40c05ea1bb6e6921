//! Asking an image which hosts its package managers use, for policies with `use: [packages]`.
//!
//! The image is asked in a sandbox of its own, made like any other, before the run's network exists: under the preset
//! `none`, as `agent`, with little memory, time and output. Everything of it is gone before the run goes on. Failure
//! stance: an image that cannot be asked fails the run; what it prints can only name hosts (`crate::packages`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use gateway::control::PolicySource;
use gateway::control::api::default_workspace;
use gateway::source::view::ResolveRequest;

use super::{CLEANING, Events, Plan, failure, release_unused};
use crate::Runner;
use crate::job::Takes;
use crate::packages::{REPORT, Reading};
use crate::pod::{Pod, PodError, job_policy_hash};
use crate::run::{Event, Failure, RunId};
use crate::runs::Ends;
use crate::sandbox::{Chunk, Resources, SandboxId, User, WorkloadSpec};

/// What the sandbox is asked under: no network at all.
const SEALED: &str = "none";
/// Every tool together; a slow one takes two seconds in gVisor.
const LIMIT: Duration = Duration::from_mins(1);
/// Its init ends everything by then, should this process be gone.
const DEADLINE_SECONDS: u64 = 120;
/// A hundred times what an ordinary image prints.
const MOST_OUTPUT: usize = 64 * 1024;
/// Enough for tools that are interpreters; npm is the largest.
const MEMORY_MIB: u64 = 512;
const PIDS: u64 = 64;
const CPU_MILLIS: u64 = 1000;

/// The job's policy as it is to be enforced: with the hosts of the image's package managers, if it uses them.
pub(super) async fn resolved(
    runner: &Runner,
    plan: &Plan<'_>,
    ends: &Ends,
    events: &Events,
) -> Result<PolicySource, Failure> {
    let (file, text) = match &plan.job.policy {
        PolicySource::Preset(_) => return Ok(plan.job.policy.clone()),
        PolicySource::Document { file, text, .. } => (file.clone(), text.clone()),
        PolicySource::Git { source, policy, .. } => {
            let request = ResolveRequest {
                workspace: plan.job.workspace.clone(),
                source: source.clone(),
                policy: policy.clone(),
            };
            let found = runner.pods.gateway.resolve(&request).await;
            let found = found.map_err(|source| PodError::Gateway {
                act: "finding the policy in its source",
                source,
            })?;
            (found.file, found.text)
        }
    };
    let needed = netpolicy::document::parse(&file, &text, None)
        .is_ok_and(|policy| policy.needs_packages.is_some());
    // Whoever asked for the run does not choose the hosts: the policy says that the image does.
    let packages = if needed {
        let reading = reading(runner, plan, ends, events).await?;
        let step = format!("`use: [packages]` of image {}: {reading}", plan.job.image);
        let _ = events.send(Event::Preparing { step }).await;
        Some(reading.hosts())
    } else {
        None
    };
    let document = PolicySource::Document {
        file,
        text,
        packages: packages.clone(),
    };
    match &plan.job.policy {
        PolicySource::Git { source, policy, .. } => Ok(PolicySource::Git {
            source: source.clone(),
            policy: policy.clone(),
            hash: Some(job_policy_hash(&document)?),
            packages,
        }),
        _ => Ok(document),
    }
}

async fn reading(
    runner: &Runner,
    plan: &Plan<'_>,
    ends: &Ends,
    events: &Events,
) -> Result<Arc<Reading>, Failure> {
    if let Some(known) = runner.packages.of(&plan.image.id) {
        return Ok(known);
    }
    let step = "asking the image's package managers which hosts they use".to_owned();
    let _ = events.send(Event::Preparing { step }).await;
    let run = RunId::allot();
    let _reserved = runner.runs.reserve(&run);
    let sealed = PolicySource::Preset(SEALED.to_owned());
    let pod = runner
        .pods
        .wire(&run, &default_workspace(), &sealed)
        .await?;
    let asked = ask(runner, plan, &pod, (ends, events)).await;
    release_unused(runner, Some(pod)).await;
    let reading = Arc::new(Reading::of(&asked?));
    runner.packages.keep(&plan.image.id, &reading);
    Ok(reading)
}

/// Makes the workload, listens to it and removes it, whatever happened.
async fn ask(
    runner: &Runner,
    plan: &Plan<'_>,
    pod: &Pod,
    (ends, events): (&Ends, &Events),
) -> Result<Vec<u8>, Failure> {
    let backend = &runner.pods.backend;
    let id = backend
        .prepare(&spec(runner, plan, pod))
        .await
        .map_err(|e| failure("engine", &e))?
        .id;
    let said = tokio::select! {
        said = tokio::time::timeout(LIMIT, listen(runner, &id)) => said.unwrap_or_else(|_| {
            Err(refused(&format!("they did not answer within {} seconds", LIMIT.as_secs())))
        }),
        failure = super::unwanted(ends, events) => Err(failure),
    };
    // Where it does not go, the reaper tries again; nobody owns it from here on.
    match tokio::time::timeout(CLEANING, backend.remove(&id)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "removing the sandbox that asked an image"),
        Err(_) => tracing::warn!("the engine does not remove the sandbox that asked an image"),
    }
    said
}

fn spec(runner: &Runner, plan: &Plan<'_>, pod: &Pod) -> WorkloadSpec {
    let limits = &runner.config.limits;
    WorkloadSpec {
        run: pod.run.clone(),
        holder: pod.holder.clone(),
        image_id: plan.image.id.clone(),
        command: ["/bin/sh", "-c", REPORT].map(str::to_owned).to_vec(),
        env: Vec::new(),
        workdir: "/".to_owned(),
        user: User::Agent,
        isolation: plan.isolation,
        resources: Resources {
            memory_mib: MEMORY_MIB.min(limits.max_memory_mib),
            cpu_millis: CPU_MILLIS.min(limits.max_cpu_millis),
            pids: PIDS.min(limits.max_pids),
        },
        deadline_seconds: DEADLINE_SECONDS,
        files: pod.files.clone(),
        takes: Takes::default(),
    }
}

/// What it prints, up to the limit; standard error is nobody's concern.
async fn listen(runner: &Runner, id: &SandboxId) -> Result<Vec<u8>, Failure> {
    let backend = &runner.pods.backend;
    let started = backend.start(id, Takes::default()).await;
    let mut output = started.map_err(|e| failure("engine", &e))?.output;
    let mut said = Vec::new();
    while let Some(chunk) = output.next().await {
        let Chunk::Out(bytes) = chunk.map_err(|e| failure("engine", &e))? else {
            continue;
        };
        said.extend_from_slice(&bytes);
        if said.len() > MOST_OUTPUT {
            // The last line may be cut: a name that is half of another one is not what was said.
            said.truncate(MOST_OUTPUT);
            said.truncate(said.iter().rposition(|&b| b == b'\n').unwrap_or(0));
            return Ok(said);
        }
    }
    let exit = backend.wait(id).await.map_err(|e| failure("engine", &e))?;
    match exit.code {
        0 => Ok(said),
        // No shell, no package manager that this knows of.
        126 | 127 => Ok(Vec::new()),
        code => Err(refused(&format!(
            "the shell that asks them ended with {code}"
        ))),
    }
}

fn refused(why: &str) -> Failure {
    let hint = "name the hosts under `allow` instead of `use: [packages]`, or use another image";
    Failure::new(
        "packages",
        format!("the image's package managers cannot be asked: {why}"),
    )
    .hint(Some(hint.to_owned()))
}
