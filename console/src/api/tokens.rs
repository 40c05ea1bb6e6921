//! API tokens: made by a person, for one workspace, shown once.

use axum::extract::State;
use axum::{Extension, Json};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Fields;
use crate::accounts::names;
use crate::accounts::secret::{Opens, Secret};
use crate::clock::{self, DAY, Millis};
use crate::server::app::App;
use crate::server::idempotent::ShownOnce;
use crate::server::identify::Caller;
use crate::server::input::{Asked, At, Input};
use crate::server::page::{Page, Paging};
use crate::server::problem::{Problem, Wrong};
use crate::store::sessions::{NewToken, Token};

/// Ten years; longer is for ever.
const LONGEST_DAYS: i64 = 3650;

/// A token, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub struct TokenView {
    /// Its id.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// `read` or `write`.
    pub scope: String,
    /// When it was made, in milliseconds since 1970.
    pub created_at: Millis,
    /// When it ends, if ever.
    pub expires_at: Option<Millis>,
    /// When it was last used, to the minute.
    pub used_at: Option<Millis>,
}

/// A token that was just made.
#[derive(Debug, Serialize, ToSchema)]
pub struct FreshToken {
    /// Its id.
    pub id: String,
    /// The secret. It is shown this once.
    pub token: String,
}

/// A token to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenInput {
    /// What to call it.
    name: String,
    /// `read` or `write`.
    scope: String,
    /// Days until it ends; without, it ends when it is revoked or its creator loses access.
    expires_in_days: Option<i64>,
}

fn view(token: Token) -> TokenView {
    TokenView {
        id: token.id,
        name: token.name,
        scope: token.scope,
        created_at: token.created_at,
        expires_at: token.expires_at,
        used_at: token.used_at,
    }
}

/// My tokens in this workspace.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/tokens", tag = "tokens",
    params(("workspace" = String, Path), ("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, body = Page<TokenView>)))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<TokenView>>, Problem> {
    let (after, limit) = paging.bounds()?;
    let tokens = app
        .store
        .tokens_of(&caller.workspace()?.id, &caller.user()?.id, after, limit)
        .await?;
    Ok(Json(Page::of(tokens, limit, |token| &token.id, view)))
}

/// Make a token that acts with my role in this workspace.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/tokens", tag = "tokens", request_body = TokenInput,
    params(("workspace" = String, Path)), responses((status = 201, body = FreshToken)))]
pub async fn add(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<TokenInput>,
) -> Result<(StatusCode, Extension<ShownOnce>, Json<FreshToken>), Problem> {
    let mut fields = Fields::new();
    let name = fields.take(names::name(&input.name));
    if !matches!(input.scope.as_str(), "read" | "write") {
        fields.0.push(Wrong::new("scope", "read or write"));
    }
    if input
        .expires_in_days
        .is_some_and(|days| !(1..=LONGEST_DAYS).contains(&days))
    {
        fields.0.push(Wrong::new(
            "expires_in_days",
            format!("1 to {LONGEST_DAYS}"),
        ));
    }
    fields.done()?;
    let now = clock::now();
    let secret = Secret::fresh(Opens::Api)?;
    let token = NewToken {
        workspace: &caller.workspace()?.id,
        user: &caller.user()?.id,
        name: &name,
        scope: &input.scope,
        digest: &secret.digest,
        ends: input.expires_in_days.map(|days| now + days * DAY),
    };
    let id = app.store.add_token(token, now).await?;
    Ok((
        StatusCode::CREATED,
        Extension(ShownOnce),
        Json(FreshToken {
            id,
            token: secret.text,
        }),
    ))
}

/// Revoke a token of mine.
#[utoipa::path(delete, path = "/api/v1/workspaces/{workspace}/tokens/{token}", tag = "tokens",
    params(("workspace" = String, Path), ("token" = String, Path)), responses((status = 204)))]
pub async fn end(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
) -> Result<StatusCode, Problem> {
    if app
        .store
        .end_token(&caller.workspace()?.id, &caller.user()?.id, &ids.1)
        .await?
    {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found())
    }
}

/// A member's tokens in this workspace.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/members/{user}/tokens", tag = "tokens",
    params(("workspace" = String, Path), ("user" = String, Path), ("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, body = Page<TokenView>)))]
pub async fn list_of_member(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String)>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<TokenView>>, Problem> {
    let (after, limit) = paging.bounds()?;
    let workspace = &caller.workspace()?.id;
    let tokens = app.store.tokens_of(workspace, &ids.1, after, limit).await?;
    Ok(Json(Page::of(tokens, limit, |token| &token.id, view)))
}

/// Revoke a member's token.
#[utoipa::path(delete, path = "/api/v1/workspaces/{workspace}/members/{user}/tokens/{token}", tag = "tokens",
    params(("workspace" = String, Path), ("user" = String, Path), ("token" = String, Path)), responses((status = 204)))]
pub async fn end_of_member(
    State(app): State<App>,
    caller: Caller,
    At(ids): At<(String, String, String)>,
) -> Result<StatusCode, Problem> {
    let workspace = &caller.workspace()?.id;
    if app.store.end_token(workspace, &ids.1, &ids.2).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found())
    }
}
