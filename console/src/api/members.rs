//! Who is in a workspace, and with which role.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::Role;
use crate::accounts::names;
use crate::clock::{self, Millis};
use crate::server::app::App;
use crate::server::identify::Caller;
use crate::server::input::{Asked, At, Input};
use crate::server::page::{Page, Paging};
use crate::server::problem::Problem;
use crate::store::users::Changed;
use crate::store::workspaces::{Member, MemberChange, Membership};

/// A member.
#[derive(Debug, Serialize, ToSchema)]
pub struct MemberView {
    /// The user's id.
    pub user: String,
    /// Its address.
    pub email: String,
    /// Its name.
    pub name: String,
    /// `member`, `admin` or `owner`.
    pub role: String,
    /// Since when, in milliseconds since 1970.
    pub created_at: Millis,
}

/// Who is to come in.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberInput {
    /// The address of somebody who has an account.
    email: String,
    /// `member` or `admin`.
    role: String,
}

/// What somebody is to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleInput {
    /// `member`, `admin` or `owner`.
    role: String,
}

fn view(member: Member) -> MemberView {
    MemberView {
        user: member.user_id,
        email: member.email,
        name: member.name,
        role: member.role,
        created_at: member.created_at,
    }
}

fn role(word: &str) -> Result<Role, Problem> {
    Role::parse(word).ok_or_else(|| Problem::invalid("role", "member, admin or owner"))
}

/// Who is in it?
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/members", tag = "members",
    params(("workspace" = String, Path), ("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, body = Page<MemberView>)))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<MemberView>>, Problem> {
    let (after, limit) = paging.bounds()?;
    let members = app
        .store
        .members(&caller.workspace()?.id, after, limit)
        .await?;
    Ok(Json(Page::of(
        members,
        limit,
        |member| &member.user_id,
        view,
    )))
}

/// Add somebody who has an account. An owner is made of a member, by an owner.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/members", tag = "members", request_body = MemberInput,
    params(("workspace" = String, Path)), responses((status = 204)))]
pub async fn add(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<MemberInput>,
) -> Result<StatusCode, Problem> {
    let role = role(&input.role)?;
    if role == Role::Owner {
        return Err(Problem::invalid(
            "role",
            "member or admin; an owner can then make them owner",
        ));
    }
    let workspace = caller.workspace()?;
    if workspace.kind == "personal" {
        return Err(Problem::conflict(
            "personal",
            "a personal workspace has one member",
        ));
    }
    let email =
        names::email(&input.email).map_err(|wrong| Problem::invalid(wrong.field, wrong.message))?;
    let user = app
        .store
        .user_by_email(&email)
        .await?
        .filter(|user| user.deactivated_at.is_none());
    let user =
        user.ok_or_else(|| Problem::invalid("email", "nobody has an account with this address"))?;
    if app
        .store
        .add_member(&workspace.id, &user.id, role, clock::now())
        .await?
    {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::conflict(
            "member_already",
            "they are in this workspace",
        ))
    }
}

/// Give a member another role.
#[utoipa::path(put, path = "/api/v1/workspaces/{workspace}/members/{user}", tag = "members", request_body = RoleInput,
    params(("workspace" = String, Path), ("user" = String, Path)), responses((status = 204)))]
pub async fn change(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
    Input(input): Input<RoleInput>,
) -> Result<StatusCode, Problem> {
    give(&app, &caller, &ids.1, Some(role(&input.role)?)).await
}

/// Remove a member, or leave.
#[utoipa::path(delete, path = "/api/v1/workspaces/{workspace}/members/{user}", tag = "members",
    params(("workspace" = String, Path), ("user" = String, Path)), responses((status = 204)))]
pub async fn remove(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<StatusCode, Problem> {
    if caller.workspace()?.kind == "shared" {
        return Err(Problem::conflict(
            "shared",
            "everybody is in this workspace; who is to be out of it is deactivated",
        ));
    }
    give(&app, &caller, &ids.1, None).await
}

async fn give(
    app: &App,
    caller: &Caller,
    user: &str,
    role: Option<Role>,
) -> Result<StatusCode, Problem> {
    let change = MemberChange {
        workspace: &caller.workspace()?.id,
        by: &caller.user()?.id,
        user,
        role,
    };
    match app.store.change_member(change).await? {
        Membership::Became(Changed::Done) => Ok(StatusCode::NO_CONTENT),
        Membership::Became(Changed::NotThere) => Err(Problem::not_found()),
        Membership::Became(Changed::LastOne) => {
            Err(Problem::conflict("last_owner", "one owner must stay"))
        }
        Membership::NotYours => Err(Problem::forbidden(
            "this needs a higher role in the workspace",
        )),
    }
}
