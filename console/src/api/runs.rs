//! Runs of a workspace: submit, look, cancel, retry.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::Fields;
use super::jobs::tells;
use super::thinking::{length, read as read_policy};
use crate::accounts::names;
use crate::clock::{self, Millis};
use crate::jobs::check;
use crate::jobs::spec::JobSpec;
use crate::server::app::App;
use crate::server::guard::About;
use crate::server::identify::{Caller, Who};
use crate::server::input::{Asked, At, Input};
use crate::server::page::{Page, Paging};
use crate::server::problem::{Problem, Wrong};
use crate::store::queue::{Cancel, Cause, MOST_WAITING, NewRun, Submitted};
use crate::store::runs::{Run, RunFilter};

/// What a run reads on its standard input.
const LONGEST_INPUT: usize = 256 << 10;

/// The states of a run.
const STATES: [&str; 10] = [
    "queued",
    "claimed",
    "preparing",
    "running",
    "succeeded",
    "failed",
    "timed_out",
    "cancelled",
    "skipped",
    "lost",
];

/// A run.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunView {
    /// Its id.
    pub id: String,
    /// Of which job, if of one; the job may be gone.
    pub job: Option<String>,
    /// What the job was called.
    pub name: String,
    /// `queued`, `claimed`, `preparing`, `running`, `succeeded`, `failed`, `timed_out`, `cancelled`, `skipped` or `lost`.
    pub state: String,
    /// Why it ended so, by a word that does not change.
    pub reason: Option<String>,
    /// Why, for people.
    pub message: Option<String>,
    /// What the command exited with.
    pub exit_code: Option<i64>,
    /// Why there is this run: `person`, `token`, `schedule`, `webhook` or `retry`.
    pub cause: String,
    /// Who asked for it.
    pub caused_by: Option<String>,
    /// For which time of the schedule, in milliseconds since 1970.
    pub slot: Option<Millis>,
    /// Which attempt, from 1.
    pub attempt: i64,
    /// The run that it is another attempt of.
    pub retry_of: Option<String>,
    /// The runner that has, or had, it.
    pub runner: Option<String>,
    /// When it was submitted.
    pub queued_at: Millis,
    /// When a runner took it.
    pub claimed_at: Option<Millis>,
    /// When its command started.
    pub started_at: Option<Millis>,
    /// When it was over.
    pub ended_at: Option<Millis>,
    /// Since when somebody wants it to end.
    pub cancelled_at: Option<Millis>,
    /// Bytes of output.
    pub output_bytes: i64,
    /// Whether some of them were not kept.
    pub output_truncated: bool,
    /// Flows, denials and failures that are kept.
    pub flows: i64,
    /// Further ones, which only the gateway's journal has.
    pub flows_dropped: i64,
    /// Denials.
    pub denied: i64,
    /// Bytes from the sandbox.
    pub up: i64,
    /// Bytes to it.
    pub down: i64,
}

/// A run with what it ran.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunDetail {
    /// The run.
    pub run: RunView,
    /// What it runs; it does not change any more.
    pub spec: JobSpec,
    /// What it ran under, once its command started: policy, isolation, image.
    #[schema(value_type = Option<Object>)]
    pub facts: Option<Value>,
}

/// A run to be.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TriggerInput {
    /// What its command reads, if the job takes input.
    input: Option<String>,
}

/// A run of no job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunInput {
    /// What to call it.
    name: String,
    /// What to run.
    spec: JobSpec,
    /// What its command reads, if `spec.input` says so.
    input: Option<String>,
}

/// Which runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// In this state.
    #[serde(default)]
    state: String,
    /// Of this job.
    #[serde(default)]
    job: String,
    #[serde(default)]
    cursor: String,
    limit: Option<i64>,
}

/// What a run says, for whoever sees it.
pub fn view(run: Run) -> RunView {
    let output_truncated = run.output_kept < run.output_bytes;
    RunView {
        id: run.id,
        job: run.job_id,
        name: run.job_name,
        state: run.state,
        reason: run.reason,
        message: run.message,
        exit_code: run.exit_code,
        cause: run.cause,
        caused_by: run.caused_by,
        slot: run.slot,
        attempt: run.attempt,
        retry_of: run.retry_of,
        runner: run.runner_id,
        queued_at: run.queued_at,
        claimed_at: run.claimed_at,
        started_at: run.started_at,
        ended_at: run.ended_at,
        cancelled_at: run.cancel_at,
        output_bytes: run.output_bytes,
        output_truncated,
        flows: run.flows_kept,
        flows_dropped: run.flows_dropped,
        denied: run.denied,
        up: run.up,
        down: run.down,
    }
}

/// A run of the workspace that the path names.
pub async fn find(app: &App, caller: &Caller, run: &str) -> Result<Run, Problem> {
    let found = app.store.run(&caller.workspace()?.id, run).await?;
    found.ok_or_else(Problem::not_found)
}

/// Why, by who asks.
fn cause(caller: &Caller) -> Cause {
    match caller.who {
        Who::Token(_) => Cause::Token,
        Who::Nobody | Who::Runner(_) | Who::Person(_) => Cause::Person,
    }
}

/// Submits a run and answers with it.
async fn submit(app: &App, new: &NewRun<'_>) -> Result<Response, Problem> {
    let id = match app.store.submit_run(new, clock::now()).await? {
        Submitted::Queued(id) | Submitted::Skipped(id) => id,
        Submitted::Full => return Err(full()),
        Submitted::Fired => return Err(Problem::internal()),
    };
    let run = app.store.run(new.workspace, &id).await?;
    let run = run.ok_or_else(Problem::internal)?;
    let about = Extension(About(format!("run={id}")));
    Ok((StatusCode::CREATED, about, Json(view(run))).into_response())
}

/// The workspace's queue is full.
pub fn full() -> Problem {
    let told = format!("{MOST_WAITING} runs of this workspace wait, and no more may");
    Problem::slow_down("queue_full", told, 10)
        .help("cancel some, or wait until runners have taken them")
}

fn fits(input: Option<&String>, spec: &JobSpec) -> Result<(), Wrong> {
    match input {
        Some(_) if !spec.input => Err(Wrong::new(
            "input",
            "the job takes none (`input: true` in its definition)",
        )),
        Some(text) if text.len() > LONGEST_INPUT => Err(Wrong::new(
            "input",
            format!("at most {LONGEST_INPUT} bytes"),
        )),
        Some(_) | None => Ok(()),
    }
}

/// Runs, newest first.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/runs", tag = "runs",
    params(("workspace" = String, Path), ("state" = Option<String>, Query), ("job" = Option<String>, Query),
        ("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, body = Page<RunView>)))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Json<Page<RunView>>, Problem> {
    let paging = Paging::new(which.cursor, which.limit);
    let (before, limit) = paging.bounds()?;
    if !which.state.is_empty() && !STATES.contains(&&*which.state) {
        return Err(Problem::invalid("state", STATES.join(", ")));
    }
    if which.job.len() > 64 || which.job.contains('\0') {
        return Err(Problem::invalid("job", "the id of a job"));
    }
    let filter = RunFilter {
        job: &which.job,
        state: &which.state,
    };
    let runs = app
        .store
        .runs(&caller.workspace()?.id, filter, before, limit)
        .await?;
    Ok(Json(Page::of(runs, limit, |run| &run.id, view)))
}

/// One run.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/runs/{run}", tag = "runs",
    params(("workspace" = String, Path), ("run" = String, Path)), responses((status = 200, body = RunDetail)))]
pub async fn read(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<Json<RunDetail>, Problem> {
    let run = find(&app, &caller, &ids.1).await?;
    let (spec, facts) = specified(&app, &run).await?;
    Ok(Json(RunDetail {
        run: view(run),
        spec,
        facts,
    }))
}

async fn specified(app: &App, run: &Run) -> Result<(JobSpec, Option<Value>), Problem> {
    let found = app.store.run_spec(&run.workspace_id, &run.id).await?;
    let (spec, facts) = found.ok_or_else(Problem::not_found)?;
    let spec = JobSpec::read(&spec).map_err(|error| {
        tracing::error!(%error, run.id = run.id, "a run in the store cannot be read");
        Problem::internal()
    })?;
    Ok((
        spec,
        facts.and_then(|facts| serde_json::from_str(&facts).ok()),
    ))
}

/// Run a job now.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/jobs/{job}/runs", tag = "runs", request_body = TriggerInput,
    params(("workspace" = String, Path), ("job" = String, Path)), responses((status = 201, body = RunView)))]
pub async fn trigger(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
    Input(input): Input<TriggerInput>,
) -> Result<Response, Problem> {
    let job = super::jobs::find(&app, &caller, &ids.1).await?;
    if !job.enabled {
        return Err(Problem::conflict("disabled", "this job is switched off"));
    }
    let spec = super::jobs::view(job.clone())?.spec;
    if let Err(wrong) = fits(input.input.as_ref(), &spec) {
        return Err(Problem::invalid(wrong.field, wrong.message));
    }
    let new = NewRun {
        workspace: &job.workspace_id,
        job: Some(&job.id),
        name: &job.name,
        spec: &spec,
        cause: cause(&caller),
        by: Some(&caller.user()?.id),
        slot: None,
        attempt: 1,
        retry_of: None,
        input: input.input.as_deref().map(str::as_bytes),
        ready_at: clock::now(),
    };
    submit(&app, &new).await
}

/// The name of a run that is of no job, which is checked.
fn checked(input: &RunInput) -> Result<String, Problem> {
    let mut fields = Fields::new();
    let name = fields.take(names::name(&input.name));
    fields.0.extend(check::mistakes(&input.spec));
    fields
        .0
        .extend(fits(input.input.as_ref(), &input.spec).err());
    if input.spec.schedule.is_some() {
        fields
            .0
            .push(Wrong::new("spec.schedule", "only jobs have one"));
    }
    fields.done()?;
    Ok(name)
}

/// Run something that is no job.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/runs", tag = "runs", request_body = RunInput,
    params(("workspace" = String, Path)), responses((status = 201, body = RunView)))]
pub async fn add(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<RunInput>,
) -> Result<Response, Problem> {
    let length = length(&input.spec.network);
    let checked = read_policy(&app, &caller, length, move || Ok((checked(&input)?, input)));
    let (name, input) = checked.await?;
    tells(&app, &caller.workspace()?.id, &input.spec, None).await?;
    let new = NewRun {
        workspace: &caller.workspace()?.id,
        job: None,
        name: &name,
        spec: &input.spec,
        cause: cause(&caller),
        by: Some(&caller.user()?.id),
        slot: None,
        attempt: 1,
        retry_of: None,
        input: input.input.as_deref().map(str::as_bytes),
        ready_at: clock::now(),
    };
    submit(&app, &new).await
}

/// End a run. One that waits is over at once, a live one as soon as its runner has heard of it.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/runs/{run}/cancel", tag = "runs",
    params(("workspace" = String, Path), ("run" = String, Path)), responses((status = 202, body = RunView)))]
pub async fn cancel(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<Response, Problem> {
    let workspace = &caller.workspace()?.id;
    match app
        .store
        .cancel_run(workspace, &ids.1, clock::now())
        .await?
    {
        Cancel::Done | Cancel::Asked => {
            let run = find(&app, &caller, &ids.1).await?;
            Ok((StatusCode::ACCEPTED, Json(view(run))).into_response())
        }
        Cancel::Over => Err(Problem::conflict("over", "this run is over")),
        Cancel::NotThere => Err(Problem::not_found()),
    }
}

/// Run again what a run ran, as it was then, with the same input.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/runs/{run}/retry", tag = "runs",
    params(("workspace" = String, Path), ("run" = String, Path)), responses((status = 201, body = RunView)))]
pub async fn retry(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<Response, Problem> {
    let run = find(&app, &caller, &ids.1).await?;
    if run.ended_at.is_none() {
        return Err(Problem::conflict("not_over", "this run is not over"));
    }
    let (spec, _) = specified(&app, &run).await?;
    let input = app.store.run_input(&run.workspace_id, &run.id).await?;
    let new = NewRun {
        workspace: &run.workspace_id,
        job: run.job_id.as_deref(),
        name: &run.job_name,
        spec: &spec,
        cause: cause(&caller),
        by: Some(&caller.user()?.id),
        slot: None,
        attempt: 1,
        retry_of: Some(&run.id),
        input: input.as_deref(),
        ready_at: clock::now(),
    };
    submit(&app, &new).await
}
