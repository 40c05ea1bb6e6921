//! Sign-in by a provider: a browser is sent there, and comes back with a code.
//!
//! Coming back is bound to the browser that was sent: its cookie and the provider's `state` are taken together, once. The
//! way back is a GET, because browsers make it so; it changes nothing for who did not begin it. Everything that goes wrong
//! leads to the sign-in page, with one word that says what and nothing about who else may come in.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::owner::address;
use super::session::{begin, count};
use crate::access::Role;
use crate::accounts::oidc::{Attempt, Person, ProviderError};
use crate::accounts::secret::{Opens, Secret, digest, offered};
use crate::accounts::{GUESSES_FROM_ADDRESS, cookie, discovery, github, names};
use crate::clock::{self, MINUTE, SECOND};
use crate::server::app::App;
use crate::server::guard::About;
use crate::server::identify::Caller;
use crate::server::input::{Asked, At};
use crate::server::membership;
use crate::server::problem::Problem;
use crate::settings::AppUrl;
use crate::store::identities::{Admitted, Known, NewSignIn, SignIn};
use crate::store::users::{Home, NewUser};

/// Who signs in has this long at the provider.
const AT_PROVIDER: clock::Millis = 10 * MINUTE;

/// Where to send the browser.
#[derive(Debug, Serialize, ToSchema)]
pub struct SendTo {
    /// An address of the provider.
    pub location: String,
}

/// What a provider sends back.
#[derive(Debug, Deserialize)]
pub struct Back {
    #[serde(default)]
    code: String,
    #[serde(default)]
    state: String,
    iss: Option<String>,
}

/// Why somebody is not signed in, for the sign-in page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// "Your account is not allowed to use Sallyport".
    NotAllowed,
    /// It took too long, or began elsewhere.
    Expired,
    /// The provider did not say who it is.
    Failed,
    /// Somebody else has the address.
    AddressTaken,
    /// The first owner comes by the link.
    NoOwner,
}

impl Why {
    const fn word(self) -> &'static str {
        match self {
            Self::NotAllowed => "not_allowed",
            Self::Expired => "expired",
            Self::Failed => "failed",
            Self::AddressTaken => "address_taken",
            Self::NoOwner => "no_owner",
        }
    }
}

/// Begin to sign in with a provider: send the browser to the answer's `location`.
#[utoipa::path(post, path = "/api/v1/providers/{provider}/sign-in", tag = "session",
    params(("provider" = String, Path, description = "`oidc` or `github`.")), responses((status = 200, body = SendTo)))]
pub async fn leave(
    State(app): State<App>,
    caller: Caller,
    At(provider): At<String>,
) -> Result<Response, Problem> {
    let now = clock::now();
    let from = format!("address:{}", address(caller.client));
    count(&app, &from, GUESSES_FROM_ADDRESS, now).await?;
    let redirect = redirect(&app, &provider).ok_or_else(Problem::not_found)?;
    let browser = Secret::fresh(Opens::SignIn)?;
    let attempt = Attempt {
        state: Secret::fresh(Opens::SignIn)?.text,
        nonce: Secret::fresh(Opens::SignIn)?.text,
        verifier: Secret::fresh(Opens::SignIn)?.text,
    };
    let providers = &app.config.providers;
    let location = match (provider.as_str(), &providers.oidc, &providers.github) {
        ("oidc", Some(settings), _) => {
            let found = discovery::discover(&app.outbound, settings)
                .await
                .map_err(unavailable)?;
            found.authorization(settings, &attempt, &redirect)
        }
        ("github", _, Some(settings)) => github::authorization(settings, &attempt, &redirect),
        _ => return Err(Problem::not_found()),
    };
    let bound = SignIn {
        provider,
        nonce: attempt.nonce,
        verifier: attempt.verifier,
    };
    let new = NewSignIn {
        state: &digest(&attempt.state),
        browser: &browser.digest,
        bound: &bound,
        ends: now + AT_PROVIDER,
    };
    app.store.begin_sign_in(new).await?;
    let cookie = cookie::set_sign_in(&browser.text, AT_PROVIDER / SECOND, app.config.url.as_ref());
    let cookie = cookie.ok_or_else(Problem::internal)?;
    Ok(([(header::SET_COOKIE, cookie)], Json(SendTo { location })).into_response())
}

/// Come back from a provider: signs in, and leads to the first page.
#[utoipa::path(get, path = "/api/v1/providers/{provider}/callback", tag = "session",
    params(("provider" = String, Path, description = "`oidc` or `github`."), ("code" = Option<String>, Query), ("state" = Option<String>, Query)),
    responses((status = 303)))]
pub async fn come_back(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    At(provider): At<String>,
    Asked(back): Asked<Back>,
) -> Result<Response, Problem> {
    let redirect = redirect(&app, &provider).ok_or_else(Problem::not_found)?;
    let clear =
        cookie::set_sign_in("", 0, app.config.url.as_ref()).ok_or_else(Problem::internal)?;
    let signed = sign_in(&app, &caller, &headers, (&provider, &redirect, &back)).await?;
    let (place, about, session) = match signed {
        Ok((about, session)) => ("/".to_owned(), about, Some(session)),
        Err(why) => {
            let about = format!("provider={provider} refused={}", why.word());
            (format!("/#sign-in={}", why.word()), about, None)
        }
    };
    let location = HeaderValue::from_str(&place).map_err(|_| Problem::internal())?;
    let mut answer = (
        StatusCode::SEE_OTHER,
        [(header::LOCATION, location)],
        Extension(About(about)),
    )
        .into_response();
    answer.headers_mut().append(header::SET_COOKIE, clear);
    if let Some(session) = session {
        answer.headers_mut().append(header::SET_COOKIE, session);
    }
    Ok(answer)
}

/// Whom the entry of the audit log is about, and the session's cookie.
type SignedIn = Result<(String, HeaderValue), Why>;

async fn sign_in(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    (provider, redirect, back): (&str, &str, &Back),
) -> Result<SignedIn, Problem> {
    let now = clock::now();
    let browser = cookie::read_sign_in(headers, app.config.url.as_ref());
    let browser = browser.and_then(|text| offered(Opens::SignIn, &text));
    let state = offered(Opens::SignIn, &back.state);
    let (Some(browser), Some(state)) = (browser, state) else {
        return Ok(Err(Why::Expired));
    };
    let taken = app.store.take_sign_in(&state, &browser, now).await?;
    let Some(bound) = taken.filter(|bound| bound.provider == provider) else {
        return Ok(Err(Why::Expired));
    };
    if back.code.is_empty() {
        return Ok(Err(Why::Failed));
    }
    let attempt = Attempt {
        state: back.state.clone(),
        nonce: bound.nonce,
        verifier: bound.verifier,
    };
    let person = match ask(
        app,
        provider,
        (&back.code, redirect, &attempt),
        back.iss.as_deref(),
    )
    .await
    {
        Ok(person) => person,
        Err(error) => {
            tracing::warn!(
                provider,
                error = &error as &dyn std::error::Error,
                "a sign-in by a provider failed"
            );
            return Ok(Err(Why::Failed));
        }
    };
    if !membership::may_enter(app, provider, &person) {
        return Ok(Err(Why::NotAllowed));
    }
    let user = match admit(app, provider, &person).await? {
        Admitted::As(user) => user,
        Admitted::LoginTaken => return Ok(Err(Why::NotAllowed)),
        Admitted::AddressTaken => return Ok(Err(Why::AddressTaken)),
        Admitted::NoOwner => return Ok(Err(Why::NoOwner)),
    };
    membership::keep(app, &user, &person).await?;
    let user = app.store.user(&user).await?.ok_or_else(Problem::internal)?;
    if user.deactivated_at.is_some() {
        return Ok(Err(Why::NotAllowed));
    }
    let begun = begin(app, &user, caller.client, headers, StatusCode::OK).await?;
    let session = begun.and_then(|begun| begun.headers().get(header::SET_COOKIE).cloned());
    Ok(session.map_or(Err(Why::NotAllowed), |session| {
        Ok((format!("user={} provider={provider}", user.id), session))
    }))
}

async fn ask(
    app: &App,
    provider: &str,
    exchange: (&str, &str, &Attempt),
    issuer: Option<&str>,
) -> Result<Person, ProviderError> {
    let providers = &app.config.providers;
    match (provider, &providers.oidc, &providers.github) {
        ("oidc", Some(settings), _) => {
            let found = discovery::discover(&app.outbound, settings).await?;
            if !found.is_from(issuer) {
                return Err(ProviderError::Issuer);
            }
            found.person(&app.outbound, settings, exchange).await
        }
        ("github", _, Some(settings)) => github::person(&app.outbound, settings, exchange).await,
        _ => Err(ProviderError::Answer("settings")),
    }
}

async fn admit(app: &App, provider: &str, person: &Person) -> Result<Admitted, Problem> {
    let address = person
        .email
        .as_deref()
        .and_then(|email| names::email(email).ok());
    // RFC 2606: nobody has an address below .invalid, so it is nobody else's either
    let nobody = || format!("{}@{provider}.invalid", crate::clock::id());
    // a provider's text is a stranger's: what is no name here is none
    let name: String = person.name.chars().take(100).collect();
    let user = NewUser {
        email: address.unwrap_or_else(nobody),
        name: names::name(&name).unwrap_or_else(|_| format!("{provider} user")),
        password: None,
        instance_admin: false,
    };
    let known = Known {
        provider,
        subject: &person.subject,
        login: &person
            .login
            .chars()
            .filter(|c| !c.is_control())
            .take(100)
            .collect::<String>(),
        login_is_listed: provider == "github",
    };
    let home = if app.config.workspaces {
        Home::Personal
    } else {
        Home::Shared(Role::Member)
    };
    Ok(app
        .store
        .admit_identity(known, &user, home, clock::now())
        .await?)
}

/// Where a provider sends people back to; `None`: there is no such provider.
fn redirect(app: &App, provider: &str) -> Option<String> {
    let providers = &app.config.providers;
    let there = match provider {
        "oidc" => providers.oidc.is_some(),
        "github" => providers.github.is_some(),
        _ => false,
    };
    let origin = app.config.url.as_ref().map(AppUrl::origin)?;
    there.then(|| format!("{origin}/api/v1/providers/{provider}/callback"))
}

#[expect(clippy::needless_pass_by_value, reason = "what map_err hands over")]
fn unavailable(error: ProviderError) -> Problem {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "a sign-in provider cannot be asked"
    );
    // what is refused by the text of its document is told: no address stands in it
    let told = match &error {
        ProviderError::Issuer | ProviderError::Endpoint { .. } => {
            format!("the sign-in provider is not asked: {error}")
        }
        _ => "the sign-in provider does not answer as it should".to_owned(),
    };
    Problem::new(StatusCode::BAD_GATEWAY, "provider_unavailable", told)
        .help("try again; the console's log says what is wrong with it")
}
