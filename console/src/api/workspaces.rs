//! Workspaces as their members see them.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::accounts::names;
use crate::clock::{self, Millis};
use crate::server::app::App;
use crate::server::identify::{Caller, Who};
use crate::server::input::{Asked, Input};
use crate::server::page::{Page, Paging};
use crate::server::problem::Problem;
use crate::server::tag::{IfMatch, changed, tag};
use crate::store::users::Changed;
use crate::store::workspaces::{Visible, Workspace};

/// Of one person. Others can be put into them unasked, and a stream tells of so many workspaces and no more.
const MOST_OWNED: i64 = 100;

/// A workspace.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkspaceView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `personal`, `organisation` or `shared`.
    pub kind: String,
    /// The role of whoever asks.
    pub role: String,
    /// When it was made, in milliseconds since 1970.
    pub created_at: Millis,
}

/// Its name.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceInput {
    /// What it is called.
    name: String,
}

fn view(workspace: Workspace) -> WorkspaceView {
    WorkspaceView {
        id: workspace.id,
        name: workspace.name,
        kind: workspace.kind,
        role: workspace.role,
        created_at: workspace.created_at,
    }
}

async fn answer(app: &App, user: &str, id: &str, status: StatusCode) -> Result<Response, Problem> {
    let visible = Visible::of(app.config.workspaces);
    let workspace = app
        .store
        .workspace_of(user, id, visible)
        .await?
        .ok_or_else(Problem::not_found)?;
    let tag = tag(workspace.version);
    Ok((status, [(header::ETAG, tag)], Json(view(workspace))).into_response())
}

fn named(input: &WorkspaceInput) -> Result<String, Problem> {
    names::name(&input.name).map_err(|wrong| Problem::invalid(wrong.field, wrong.message))
}

/// My workspaces; of a token its one.
#[utoipa::path(get, path = "/api/v1/workspaces", tag = "workspaces",
    params(("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, body = Page<WorkspaceView>)))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<WorkspaceView>>, Problem> {
    let (after, limit) = paging.bounds()?;
    let visible = Visible::of(app.config.workspaces);
    if let Who::Token(token) = &caller.who {
        // it learns of none but its own
        let (user, own) = (&token.0.id, &token.1.workspace_id);
        let found = app.store.workspace_of(user, own, visible).await?;
        let items = found.into_iter().map(view).collect();
        return Ok(Json(Page { items, next: None }));
    }
    let found = app
        .store
        .workspaces_of(&caller.user()?.id, visible, after, limit)
        .await?;
    Ok(Json(Page::of(
        found,
        limit,
        |workspace| &workspace.id,
        view,
    )))
}

/// Make a workspace; whoever makes it owns it.
#[utoipa::path(post, path = "/api/v1/workspaces", tag = "workspaces", request_body = WorkspaceInput,
    responses((status = 201, body = WorkspaceView)))]
pub async fn add(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<WorkspaceInput>,
) -> Result<Response, Problem> {
    if !app.config.workspaces {
        return Err(Problem::forbidden(
            "everybody is in one workspace here (`workspaces.enabled`)",
        ));
    }
    let name = named(&input)?;
    let user = &caller.user()?.id;
    if app.store.owned_workspaces(user).await? >= MOST_OWNED {
        let told = format!("somebody owns at most {MOST_OWNED} workspaces");
        return Err(Problem::conflict("too_many", told));
    }
    let id = app.store.add_workspace(&name, user, clock::now()).await?;
    answer(&app, user, &id, StatusCode::CREATED).await
}

/// One workspace.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}", tag = "workspaces",
    params(("workspace" = String, Path, description = "Its id.")), responses((status = 200, body = WorkspaceView)))]
pub async fn read(State(app): State<App>, caller: Caller) -> Result<Response, Problem> {
    answer(
        &app,
        &caller.user()?.id,
        &caller.workspace()?.id,
        StatusCode::OK,
    )
    .await
}

/// Another name.
#[utoipa::path(patch, path = "/api/v1/workspaces/{workspace}", tag = "workspaces", request_body = WorkspaceInput,
    params(("workspace" = String, Path, description = "Its id.")), responses((status = 200, body = WorkspaceView)))]
pub async fn rename(
    State(app): State<App>,
    caller: Caller,
    meant: IfMatch,
    Input(input): Input<WorkspaceInput>,
) -> Result<Response, Problem> {
    let name = named(&input)?;
    let workspace = caller.workspace()?;
    meant.check(workspace.version)?;
    match app
        .store
        .rename_workspace(&workspace.id, &name, workspace.version)
        .await?
    {
        Changed::Done => answer(&app, &caller.user()?.id, &workspace.id, StatusCode::OK).await,
        Changed::NotThere | Changed::LastOne => Err(changed()),
    }
}
