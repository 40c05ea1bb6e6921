//! Runners as people see them: made with a token that is shown once, listed, revoked.

use axum::extract::State;
use axum::{Extension, Json};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Fields;
use crate::accounts::names;
use crate::accounts::secret::{Opens, Secret};
use crate::clock::{self, Millis};
use crate::server::app::App;
use crate::server::idempotent::ShownOnce;
use crate::server::input::{Asked, At, Input};
use crate::server::page::{Page, Paging};
use crate::server::problem::Problem;
use crate::store::runners::Runner;

/// A runner that was not heard of for so long is away.
const AWAY: Millis = 60_000;

/// A runner.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunnerView {
    /// Its id.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// The one workspace that it works for, if not for all.
    pub workspace: Option<String>,
    /// Whether it is there: it was heard of in the last minute.
    pub here: bool,
    /// Its version, once it was there.
    pub version: Option<String>,
    /// Its engine and isolation classes, once it was there.
    pub facts: Option<serde_json::Value>,
    /// Runs that it takes at once.
    pub most: i64,
    /// When it was made, in milliseconds since 1970.
    pub created_at: Millis,
    /// When it was last heard of, to some seconds.
    pub seen_at: Option<Millis>,
    /// Its public key, which secrets are sealed to: the first that it said.
    pub key: Option<String>,
    /// Since when somebody with its token and another key is refused; revoke it, unless its state folder was lost.
    pub other_key_at: Option<Millis>,
}

/// A runner to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunnerInput {
    /// What to call it.
    name: String,
    /// The one workspace that it is to work for; without, for all.
    workspace: Option<String>,
}

/// A runner that was just made.
#[derive(Debug, Serialize, ToSchema)]
pub struct FreshRunner {
    /// Its id.
    pub id: String,
    /// The token, for the file that `runner.token_file` names. It is shown this once.
    pub token: String,
}

fn view(runner: Runner, now: Millis) -> RunnerView {
    RunnerView {
        here: runner.seen_at.is_some_and(|at| now - at < AWAY),
        id: runner.id,
        name: runner.name,
        workspace: runner.workspace_id,
        version: runner.version,
        facts: runner
            .facts
            .and_then(|facts| serde_json::from_str(&facts).ok()),
        most: runner.most,
        created_at: runner.created_at,
        seen_at: runner.seen_at,
        key: runner.public_key,
        other_key_at: runner.refused_at,
    }
}

/// Which runners are there?
#[utoipa::path(get, path = "/api/v1/runners", tag = "runners",
    params(("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, body = Page<RunnerView>)))]
pub async fn list(
    State(app): State<App>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<RunnerView>>, Problem> {
    let (after, limit) = paging.bounds()?;
    let runners = app.store.runners(after, limit).await?;
    let now = clock::now();
    Ok(Json(Page::of(
        runners,
        limit,
        |runner| &runner.id,
        |runner| view(runner, now),
    )))
}

/// Make a runner and its token.
#[utoipa::path(post, path = "/api/v1/runners", tag = "runners", request_body = RunnerInput,
    responses((status = 201, body = FreshRunner)))]
pub async fn add(
    State(app): State<App>,
    Input(input): Input<RunnerInput>,
) -> Result<(StatusCode, Extension<ShownOnce>, Json<FreshRunner>), Problem> {
    let mut fields = Fields::new();
    let name = fields.take(names::name(&input.name));
    fields.done()?;
    let workspace = input.workspace.as_deref();
    if let Some(workspace) = workspace
        && (workspace.contains('\0') || !app.store.is_workspace(workspace).await?)
    {
        return Err(Problem::invalid("workspace", "there is no such workspace"));
    }
    let secret = Secret::fresh(Opens::Runner)?;
    let id = app
        .store
        .add_runner(&name, workspace, &secret.digest, clock::now())
        .await?;
    let fresh = FreshRunner {
        id,
        token: secret.text,
    };
    Ok((StatusCode::CREATED, Extension(ShownOnce), Json(fresh)))
}

/// Revoke a runner's token. What it runs is ended.
#[utoipa::path(delete, path = "/api/v1/runners/{runner}", tag = "runners",
    params(("runner" = String, Path)), responses((status = 204)))]
pub async fn end(State(app): State<App>, At(runner): At<String>) -> Result<StatusCode, Problem> {
    if app.store.end_runner(&runner).await? {
        app.store.give_up(clock::now()).await?;
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found())
    }
}
