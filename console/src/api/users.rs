//! The people of this instance, for its administrators.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Fields, by_password};
use crate::access::Role;
use crate::accounts::names;
use crate::clock::{self, Millis};
use crate::server::app::App;
use crate::server::guard::About;
use crate::server::input::{Asked, At, Input};
use crate::server::page::{Page, Paging};
use crate::server::problem::{Problem, Wrong};
use crate::server::tag::{IfMatch, changed, tag};
use crate::store::users::{Changed, Home, NewUser, User, UserChange};

/// A person.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserView {
    /// Its id.
    pub id: String,
    /// Its address.
    pub email: String,
    /// Its name.
    pub name: String,
    /// Whether it administers the instance.
    pub instance_admin: bool,
    /// Since when it may not sign in, in milliseconds since 1970.
    pub deactivated_at: Option<Millis>,
    /// When it was made.
    pub created_at: Millis,
}

/// A person to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserInput {
    /// The address to sign in with.
    email: String,
    /// The name that others see.
    name: String,
    /// A first password, at least 12 characters.
    password: String,
    /// Whether it administers the instance.
    #[serde(default)]
    instance_admin: bool,
}

/// What to change; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserPatch {
    /// Another name.
    name: Option<String>,
    /// Administers the instance or not.
    instance_admin: Option<bool>,
    /// May not sign in any more, or again. Its sessions end at once.
    deactivated: Option<bool>,
}

fn view(user: User) -> UserView {
    UserView {
        id: user.id,
        email: user.email,
        name: user.name,
        instance_admin: user.instance_admin,
        deactivated_at: user.deactivated_at,
        created_at: user.created_at,
    }
}

fn answer(status: StatusCode, user: User) -> Response {
    let tag = tag(user.version);
    let about = Extension(About(format!("user={}", user.id)));
    (status, about, [(header::ETAG, tag)], Json(view(user))).into_response()
}

/// Who is there?
#[utoipa::path(get, path = "/api/v1/users", tag = "users",
    params(("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query), ("q" = Option<String>, Query)),
    responses((status = 200, body = Page<UserView>)))]
pub async fn list(
    State(app): State<App>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<UserView>>, Problem> {
    let (after, limit) = paging.bounds()?;
    let users = app.store.users(after, &paging.q, limit).await?;
    Ok(Json(Page::of(users, limit, |user| &user.id, view)))
}

/// Make a user with a first password.
#[utoipa::path(post, path = "/api/v1/users", tag = "users", request_body = UserInput,
    responses((status = 201, body = UserView)))]
pub async fn add(
    State(app): State<App>,
    Input(input): Input<UserInput>,
) -> Result<Response, Problem> {
    by_password(&app)?;
    let mut fields = Fields::new();
    let (email, name) = (
        fields.take(names::email(&input.email)),
        fields.take(names::name(&input.name)),
    );
    fields.password(&input.password);
    fields.done()?;
    let password = Some(app.passwords.hash(input.password).await?);
    let new = NewUser {
        email,
        name,
        password,
        instance_admin: input.instance_admin,
    };
    let home = if app.config.workspaces {
        Home::Personal
    } else {
        Home::Shared(Role::Member)
    };
    let id = match app.store.add_user(&new, home, clock::now()).await {
        Err(error) if error.is_taken() => {
            let mut problem = Problem::conflict("taken", "there is a user with this address");
            problem.fields.push(Wrong::new("email", "taken"));
            return Err(problem);
        }
        added => added?,
    };
    let user = app.store.user(&id).await?.ok_or_else(Problem::internal)?;
    Ok(answer(StatusCode::CREATED, user))
}

/// Change a user: name, administrator or not, deactivated or not.
#[utoipa::path(patch, path = "/api/v1/users/{user}", tag = "users", request_body = UserPatch,
    params(("user" = String, Path, description = "Its id.")), responses((status = 200, body = UserView)))]
pub async fn change(
    State(app): State<App>,
    At(id): At<String>,
    meant: IfMatch,
    Input(input): Input<UserPatch>,
) -> Result<Response, Problem> {
    let name = input.name.as_deref().map(names::name).transpose();
    let mut fields = Fields::new();
    let name = fields.take(name);
    fields.done()?;
    let user = app.store.user(&id).await?.ok_or_else(Problem::not_found)?;
    meant.check(user.version)?;
    let change = UserChange {
        name,
        instance_admin: input.instance_admin,
        deactivated: input.deactivated,
    };
    match app.store.change_user(&user, &change, clock::now()).await? {
        Changed::Done => {
            let user = app.store.user(&id).await?.ok_or_else(Problem::internal)?;
            Ok(answer(StatusCode::OK, user))
        }
        Changed::NotThere => Err(changed()),
        Changed::LastOne => Err(Problem::conflict(
            "last_admin",
            "one administrator must stay",
        )),
    }
}
