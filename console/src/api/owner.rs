//! The first owner: whoever holds the one-time link that the first start printed.

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Fields, by_password, session};
use crate::access::Role;
use crate::accounts::names;
use crate::accounts::secret::{Opens, offered};
use crate::clock;
use crate::server::address::Client;
use crate::server::app::App;
use crate::server::identify::Caller;
use crate::server::input::Input;
use crate::server::problem::Problem;
use crate::store::users::{Claim, Home, NewUser};

/// Who the first owner is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FirstOwner {
    /// What follows `#owner=` in the link.
    link: String,
    /// The address to sign in with.
    email: String,
    /// The name that others see.
    name: String,
    /// At least 12 characters.
    password: String,
}

/// Become the first owner of this instance, and sign in.
#[utoipa::path(post, path = "/api/v1/owner", tag = "accounts", request_body = FirstOwner,
    responses((status = 201, body = session::SelfView)))]
pub async fn claim(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Input(input): Input<FirstOwner>,
) -> Result<Response, Problem> {
    by_password(&app)?;
    let now = clock::now();
    session::count(
        &app,
        &format!("address:{}", address(caller.client)),
        crate::accounts::GUESSES_FROM_ADDRESS,
        now,
    )
    .await?;
    let mut fields = Fields::new();
    let (email, name) = (
        fields.take(names::email(&input.email)),
        fields.take(names::name(&input.name)),
    );
    fields.password(&input.password);
    fields.done()?;
    let no_link = || {
        Problem::new(
            StatusCode::FORBIDDEN,
            "no_link",
            "this link is not known, over, or was used",
        )
        .help("`sallyport console owner-link` prints a new one while there is no owner")
    };
    let digest = offered(Opens::Instance, &input.link).ok_or_else(no_link)?;
    // no work for who has no link
    if app.store.unclaimed(now).await? != Some(true) {
        return Err(no_link());
    }
    let password = Some(app.passwords.hash(input.password).await?);
    let user = NewUser {
        email,
        name,
        password,
        instance_admin: true,
    };
    let home = if app.config.workspaces {
        Home::Personal
    } else {
        Home::Shared(Role::Owner)
    };
    match app.store.claim_instance(&digest, &user, home, now).await? {
        Claim::Made(id) => {
            let user = app.store.user(&id).await?.ok_or_else(Problem::internal)?;
            session::begin(&app, &user, caller.client, &headers, StatusCode::CREATED)
                .await?
                .ok_or_else(Problem::internal)
        }
        Claim::NoLink | Claim::TooLate => Err(no_link()),
    }
}

/// What guesses are counted by: an address, or the network that whoever has one address of it has whole.
pub fn address(client: Client) -> String {
    match crate::server::rate::Counted::address(client.0) {
        crate::server::rate::Counted::Address(ip) => ip.to_string(),
        crate::server::rate::Counted::Account(account) => account,
    }
}
