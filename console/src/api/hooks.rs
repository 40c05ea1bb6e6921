//! Webhooks: an address with a secret in it, which runs one job and can do nothing else.

use axum::body::Bytes;
use axum::extract::State;
use axum::{Extension, Json};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::jobs::{find, view};
use super::runs::full;
use crate::accounts::secret::{Opens, Secret, offered};
use crate::clock::{self, MINUTE};
use crate::server::app::App;
use crate::server::idempotent::ShownOnce;
use crate::server::identify::Caller;
use crate::server::input::At;
use crate::server::problem::Problem;
use crate::settings::AppUrl;
use crate::store::queue::{Cause, NewRun, Submitted};

/// Runs of a job in a minute, whatever triggers them; then its webhook waits.
const PER_MINUTE: i64 = 60;
/// What a run reads on its standard input.
const LONGEST_BODY: usize = 256 << 10;

/// A webhook that was just made.
#[derive(Debug, Serialize, ToSchema)]
pub struct FreshHook {
    /// Where to send a POST. It is shown this once; whoever has it runs the job.
    pub url: String,
}

/// What a call came to.
#[derive(Debug, Serialize, ToSchema)]
pub struct Called {
    /// The run.
    pub run: String,
}

/// Give a job a webhook. One that it had is over.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/jobs/{job}/webhook", tag = "jobs",
    params(("workspace" = String, Path), ("job" = String, Path)), responses((status = 201, body = FreshHook)))]
pub async fn add(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<(StatusCode, Extension<ShownOnce>, Json<FreshHook>), Problem> {
    let secret = Secret::fresh(Opens::Hook)?;
    let workspace = &caller.workspace()?.id;
    if !app
        .store
        .set_hook(workspace, &ids.1, Some(&secret.digest))
        .await?
    {
        return Err(Problem::not_found());
    }
    let origin = app.config.url.as_ref().map(AppUrl::origin);
    let origin = origin.unwrap_or_else(|| format!("http://{}", app.config.listen));
    let url = format!("{origin}/api/v1/hooks/{}", secret.text);
    Ok((
        StatusCode::CREATED,
        Extension(ShownOnce),
        Json(FreshHook { url }),
    ))
}

/// Take a job's webhook away.
#[utoipa::path(delete, path = "/api/v1/workspaces/{workspace}/jobs/{job}/webhook", tag = "jobs",
    params(("workspace" = String, Path), ("job" = String, Path)), responses((status = 204)))]
pub async fn remove(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<StatusCode, Problem> {
    let job = find(&app, &caller, &ids.1).await?;
    app.store.set_hook(&job.workspace_id, &job.id, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Call a webhook. The body, whatever it is, is what the job's command reads, if the job takes input.
#[utoipa::path(post, path = "/api/v1/hooks/{hook}", tag = "jobs", request_body = Vec<u8>,
    params(("hook" = String, Path)), responses((status = 202, body = Called)))]
pub async fn call(
    State(app): State<App>,
    At(hook): At<String>,
    body: Bytes,
) -> Result<(StatusCode, Json<Called>), Problem> {
    let digest = offered(Opens::Hook, &hook).ok_or_else(Problem::not_found)?;
    let job = app
        .store
        .job_of_hook(&digest)
        .await?
        .ok_or_else(Problem::not_found)?;
    if !job.enabled {
        return Err(Problem::conflict("disabled", "this job is switched off"));
    }
    if body.len() > LONGEST_BODY {
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("at most {LONGEST_BODY} bytes"),
        ));
    }
    let now = clock::now();
    let earlier = app.store.nth_newest_run(&job.id, PER_MINUTE).await?;
    if earlier.is_some_and(|queued_at| now - queued_at < MINUTE) {
        return Err(Problem::slow_down(
            "too_many_requests",
            "this webhook was called too often",
            60,
        ));
    }
    let (workspace, id, name) = (job.workspace_id.clone(), job.id.clone(), job.name.clone());
    let spec = view(job)?.spec;
    let new = NewRun {
        workspace: &workspace,
        job: Some(&id),
        name: &name,
        spec: &spec,
        cause: Cause::Webhook,
        by: None,
        slot: None,
        attempt: 1,
        retry_of: None,
        input: spec.input.then_some(&*body),
        ready_at: now,
    };
    match app.store.submit_run(&new, now).await? {
        Submitted::Queued(run) | Submitted::Skipped(run) => {
            Ok((StatusCode::ACCEPTED, Json(Called { run })))
        }
        Submitted::Full => Err(full()),
        Submitted::Fired => Err(Problem::internal()),
    }
}
