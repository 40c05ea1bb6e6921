//! Who asks: by the session's cookie or an API token. Looked up in the store at every request, so that what was taken
//! away is gone at once.

use std::time::Instant;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};

use super::address::Client;
use super::app::App;
use super::problem::Problem;
use super::rate::Counted;
use crate::access::Role;
use crate::accounts::cookie;
use crate::accounts::secret::{Opens, offered};
use crate::clock::Millis;
use crate::store::runners::Runner;
use crate::store::sessions::{Session, Token};
use crate::store::users::User;
use crate::store::workspaces::Workspace;

/// By what somebody proved who they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    /// By nothing.
    Nobody,
    /// By a session.
    Person(Box<(User, Session)>),
    /// By a token.
    Token(Box<(User, Token)>),
    /// By the token of a runner.
    Runner(Box<Runner>),
}

/// Who asks, from where, and what they are in the workspace that the path names. Handlers take it as an argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Who.
    pub who: Who,
    /// From where.
    pub client: Client,
    /// The workspace that the path names and the role in it.
    pub workspace: Option<(Workspace, Role)>,
}

impl Caller {
    /// The user.
    pub fn user(&self) -> Result<&User, Problem> {
        match &self.who {
            Who::Nobody | Who::Runner(_) => Err(Problem::signed_out()),
            Who::Person(found) => Ok(&found.0),
            Who::Token(found) => Ok(&found.0),
        }
    }

    /// The session.
    pub fn session(&self) -> Result<&Session, Problem> {
        match &self.who {
            Who::Person(found) => Ok(&found.1),
            Who::Nobody | Who::Token(_) | Who::Runner(_) => Err(Problem::signed_out()),
        }
    }

    /// The user's id, and that of what proved who they are.
    pub fn standing(&self) -> Option<(&str, &str)> {
        match &self.who {
            Who::Nobody | Who::Runner(_) => None,
            Who::Person(found) => Some((&found.0.id, &found.1.id)),
            Who::Token(found) => Some((&found.0.id, &found.1.id)),
        }
    }

    /// The runner.
    pub fn runner(&self) -> Result<&Runner, Problem> {
        match &self.who {
            Who::Runner(runner) => Ok(runner),
            Who::Nobody | Who::Person(_) | Who::Token(_) => Err(bad_token()),
        }
    }

    /// The workspace that the path names.
    pub fn workspace(&self) -> Result<&Workspace, Problem> {
        self.workspace
            .as_ref()
            .map(|(workspace, _)| workspace)
            .ok_or_else(Problem::not_found)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(Problem::internal)
    }
}

/// Looks the credential up. A token that is sent must be good, whatever cookie comes with it.
pub async fn identify(app: &App, headers: &HeaderMap, now: Millis) -> Result<Who, Problem> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let bearer = value.to_str().ok().and_then(|v| v.strip_prefix("Bearer "));
        let digest = bearer
            .and_then(|text| offered(Opens::Api, text))
            .ok_or_else(bad_token)?;
        let token = app.store.token(&digest, now).await?.ok_or_else(bad_token)?;
        let user = active(app, &token.user_id).await?.ok_or_else(bad_token)?;
        if !app.store.is_confirmed(&user.id, now).await? {
            return Err(unconfirmed());
        }
        return Ok(Who::Token(Box::new((user, token))));
    }
    let digest = cookie::read(headers, app.config.url.as_ref())
        .and_then(|text| offered(Opens::Session, &text));
    let Some(digest) = digest else {
        return Ok(Who::Nobody);
    };
    let Some(session) = app.store.session(&digest, now).await? else {
        return Ok(Who::Nobody);
    };
    let user = active(app, &session.user_id).await?;
    Ok(user.map_or(Who::Nobody, |user| Who::Person(Box::new((user, session)))))
}

/// Looks a runner's token up. Who guesses at them waits; runners that are known do not, however much they tell.
pub async fn identify_runner(
    app: &App,
    headers: &HeaderMap,
    client: Client,
    now: Millis,
) -> Result<Who, Problem> {
    let from = crate::api::owner::address(client);
    let guesses = || Counted::Account(format!("runner tokens from {from}"));
    let at = Instant::now();
    if !app.rates.has(guesses(), at) {
        return Err(Problem::slow_down(
            "too_many_requests",
            "too many wrong tokens from this address",
            5,
        ));
    }
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    if let Some(digest) = bearer.and_then(|text| offered(Opens::Runner, text))
        && let Some(runner) = app.store.runner(&digest, now).await?
    {
        return Ok(Who::Runner(Box::new(runner)));
    }
    app.rates.take(guesses(), at);
    Err(bad_token())
}

async fn active(app: &App, user: &str) -> Result<Option<User>, Problem> {
    Ok(app
        .store
        .user(user)
        .await?
        .filter(|user| user.deactivated_at.is_none()))
}

/// The token is kept: it is good again as soon as the provider says so.
fn unconfirmed() -> Problem {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "unconfirmed",
        "the sign-in provider has not confirmed for a quarter of an hour that this token's creator may come in",
    )
    .help("try again when the provider answers; its creator can sign in anew")
}

fn bad_token() -> Problem {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "bad_token",
        "this token is not known, over, or was revoked",
    )
}
