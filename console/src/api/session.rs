//! Sign in, sign out, who am I, another password.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::owner::address;
use super::{Fields, by_password};
use crate::accounts::secret::{Opens, Secret};
use crate::accounts::{
    GUESSES_AT_ACCOUNT, GUESSES_FROM_ADDRESS, GUESSING, SESSION, WAIT, cookie, names,
};
use crate::clock::{self, Millis};
use crate::server::address::Client;
use crate::server::app::App;
use crate::server::guard::About;
use crate::server::identify::{Caller, Who};
use crate::server::input::Input;
use crate::server::problem::Problem;
use crate::store::sessions::NewSession;
use crate::store::users::User;

/// What is kept of what a browser calls itself.
const AGENT: usize = 200;

/// Email and password.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// The address.
    email: String,
    /// The password.
    password: String,
}

/// Two passwords.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    /// The one until now.
    current: String,
    /// The one from now on; at least 12 characters.
    password: String,
}

/// Who asks.
#[derive(Debug, Serialize, ToSchema)]
pub struct SelfView {
    /// The user's id.
    pub id: String,
    /// Its address.
    pub email: String,
    /// Its name.
    pub name: String,
    /// Whether it administers the instance.
    pub instance_admin: bool,
    /// `session` or `token`.
    pub credential: &'static str,
}

impl SelfView {
    fn of(user: &User, credential: &'static str) -> Self {
        Self {
            id: user.id.clone(),
            email: user.email.clone(),
            name: user.name.clone(),
            instance_admin: user.instance_admin,
            credential,
        }
    }
}

/// Sign in with email and password.
#[utoipa::path(post, path = "/api/v1/session", tag = "session", request_body = Credentials,
    responses((status = 200, body = SelfView)))]
pub async fn sign_in(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Input(input): Input<Credentials>,
) -> Result<Response, Problem> {
    by_password(&app)?;
    let now = clock::now();
    let email = names::email(&input.email).unwrap_or_default();
    // counted before the password is looked at, so that many guesses at once are no more than one after the other
    count(
        &app,
        &format!("address:{}", address(caller.client)),
        GUESSES_FROM_ADDRESS,
        now,
    )
    .await?;
    let user = app.store.user_by_email(&email).await?;
    // strangers who guess do not lock a person out where they are signed in; asked for nobody, too, so that it takes as long
    let (id, from) = (
        user.as_ref().map_or("", |user| &user.id),
        caller.client.0.to_string(),
    );
    let account = if app.store.is_signed_in_from(id, &from, now).await? {
        format!("account:{email} from {from}")
    } else {
        format!("account:{email}")
    };
    count(&app, &account, GUESSES_AT_ACCOUNT, now).await?;
    let kept = user.as_ref().and_then(|user| user.password.clone());
    // longer than any password that was ever taken: the work is bounded, the answer the same
    let fits = app
        .passwords
        .verify(input.password.chars().take(1024).collect(), kept)
        .await?;
    let wrong = Problem::new(
        StatusCode::UNAUTHORIZED,
        "wrong_credentials",
        "the address or the password is wrong",
    );
    let about = Extension(About(format!("email={email}")));
    let Some(user) = user.filter(|_| fits) else {
        return Ok((about, wrong).into_response());
    };
    if user.deactivated_at.is_some() {
        return Err(Problem::forbidden(
            "Your account is not allowed to use Sallyport",
        ));
    }
    app.store.forget_attempts(&account).await?;
    let begun = begin(&app, &user, caller.client, &headers, StatusCode::OK).await?;
    Ok(begun.unwrap_or_else(|| (about, wrong).into_response()))
}

/// Counts one more guess; refuses it if there were too many.
pub async fn count(app: &App, counted: &str, most: i64, now: Millis) -> Result<(), Problem> {
    if app
        .store
        .count_attempt(counted, most, now - GUESSING, now)
        .await?
    {
        return Ok(());
    }
    let seconds = u32::try_from(WAIT.as_secs()).unwrap_or(u32::MAX);
    Err(Problem::slow_down(
        "too_many_attempts",
        "too many attempts to sign in; wait a quarter of an hour",
        seconds,
    ))
}

/// Begins a session of a user as it was when it proved who it is, always with a secret of its own, and hands it over as
/// a cookie. `None`: it has another password by now, or may not sign in any more.
pub async fn begin(
    app: &App,
    user: &User,
    client: Client,
    headers: &HeaderMap,
    status: StatusCode,
) -> Result<Option<Response>, Problem> {
    let now = clock::now();
    let secret = Secret::fresh(Opens::Session)?;
    let agent = headers
        .get(header::USER_AGENT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let agent: String = agent
        .chars()
        .filter(|c| !c.is_control())
        .take(AGENT)
        .collect();
    let session = NewSession {
        user: &user.id,
        proven: Some(user.version),
        digest: &secret.digest,
        address: &client.0.to_string(),
        agent: &agent,
        ends: now + SESSION,
    };
    if app.store.add_session(session, now).await?.is_none() {
        return Ok(None);
    }
    let cookie =
        cookie::set(&secret.text, app.config.url.as_ref()).ok_or_else(Problem::internal)?;
    let body = Json(SelfView::of(user, "session"));
    let about = Extension(About(format!("user={}", user.id)));
    Ok(Some(
        (status, about, [(header::SET_COOKIE, cookie)], body).into_response(),
    ))
}

/// Who am I?
#[utoipa::path(get, path = "/api/v1/session", tag = "session", responses((status = 200, body = SelfView)))]
pub async fn read(caller: Caller) -> Result<Json<SelfView>, Problem> {
    let credential = if matches!(caller.who, Who::Token(_)) {
        "token"
    } else {
        "session"
    };
    Ok(Json(SelfView::of(caller.user()?, credential)))
}

/// Sign out here.
#[utoipa::path(delete, path = "/api/v1/session", tag = "session", responses((status = 204)))]
pub async fn sign_out(State(app): State<App>, caller: Caller) -> Result<Response, Problem> {
    app.store
        .end_session(&caller.user()?.id, &caller.session()?.id)
        .await?;
    signed_out(&app)
}

/// The answer that makes a browser forget its cookie.
pub fn signed_out(app: &App) -> Result<Response, Problem> {
    let cookie = cookie::clear(app.config.url.as_ref()).ok_or_else(Problem::internal)?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

/// Another password. Every other session ends, and every API token of yours.
#[utoipa::path(put, path = "/api/v1/session/password", tag = "session", request_body = PasswordChange,
    responses((status = 204)))]
pub async fn change_password(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<PasswordChange>,
) -> Result<StatusCode, Problem> {
    let user = caller.user()?;
    // apart from sign-ins: strangers who guess at an account keep nobody who is in it from another password
    let account = format!("password:{}", user.id);
    count(&app, &account, GUESSES_AT_ACCOUNT, clock::now()).await?;
    let mut fields = Fields::new();
    fields.password(&input.password);
    fields.done()?;
    if !app
        .passwords
        .verify(
            input.current.chars().take(1024).collect(),
            user.password.clone(),
        )
        .await?
    {
        return Err(Problem::invalid("current", "this is not the password"));
    }
    let kept = app.passwords.hash(input.password).await?;
    let proven = user.password.as_deref();
    if !app
        .store
        .change_password(&user.id, proven, &kept, &caller.session()?.id)
        .await?
    {
        return Err(Problem::invalid("current", "this is not the password"));
    }
    app.store.forget_attempts(&account).await?;
    Ok(StatusCode::NO_CONTENT)
}
