//! Whether a provider still lets somebody in: asked at each sign-in, and again and again while they are signed in.
//!
//! Who is no member any more is signed out, and their tokens end, within a quarter of an hour. A provider that cannot be
//! asked ends nothing: whom it has not confirmed for that long ([`CONFIRMED`]) has no access until it does, and then
//! everything that they had. Many are asked about at the same time, and each provider has rounds and places of its own, so
//! that a slow one keeps nobody waiting, and one that hangs nobody of the other.
//! A token that is good once is refused after an answer that was lost: such a refusal says nothing about the person.
//!
//! [`CONFIRMED`]: crate::store::identities::CONFIRMED

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tokio::sync::OnceCell;

use super::app::App;
use super::problem::Problem;
use crate::accounts::discovery::{self, Discovered};
use crate::accounts::jwt::KeySet;
use crate::accounts::oidc::{Person, ProviderError};
use crate::accounts::{github, oidc};
use crate::clock::{self, MINUTE, Millis};
use crate::settings::OidcSettings;
use crate::store::identities::{Identity, KIND, Turn};
use crate::vault::{Place, VaultError};

/// Who could not be asked about is asked about again after so long; longer than the calls about one person may take.
const AGAIN: Millis = 2 * MINUTE;
/// How often it is looked whom to ask about: so many times in what lies between two questions about somebody.
const LOOKS: Millis = 16;
/// People of one provider who are asked about at the same time. With two answers of two seconds each, two thousand of them
/// take four minutes, of the seven that are left between the slowest setting and the promise.
const AT_ONCE: usize = 32;

/// Whether the settings let somebody in.
pub fn may_enter(app: &App, provider: &str, person: &Person) -> bool {
    let providers = &app.config.providers;
    match (provider, &providers.oidc, &providers.github) {
        ("oidc", Some(settings), _) => oidc::may_enter(settings, person),
        ("github", _, Some(settings)) => github::may_enter(settings, person),
        _ => false,
    }
}

/// Keeps what asks about somebody again, sealed.
pub async fn keep(app: &App, user: &str, person: &Person) -> Result<(), Problem> {
    let Some(identity) = app.store.identity_of(user).await? else {
        return Ok(());
    };
    let tokens = person.refresh.as_deref().unwrap_or_default();
    Ok(keep_tokens(app, &identity, tokens).await?)
}

async fn keep_tokens(app: &App, identity: &Identity, tokens: &str) -> Result<(), VaultError> {
    let place = Place {
        kind: KIND,
        id: &identity.id,
        workspace: "",
        version: identity.tokens + 1,
    };
    loop {
        let sealed = app
            .vault
            .seal(&app.store, &place, tokens.as_bytes())
            .await?;
        if app.store.keep_tokens(identity, &sealed).await? {
            return Ok(());
        }
        app.vault.refresh(&app.store).await?;
    }
}

/// Until the console stops.
pub async fn keep_checked(app: App) {
    let app = &app;
    let every = app.config.providers.recheck / LOOKS;
    let every = Duration::from_millis(every.unsigned_abs().max(1));
    let each = there(app).map(async |provider| {
        let mut turns = tokio::time::interval(every);
        // a round that took long is followed by no burst of others
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            check_people(app, provider, clock::now()).await;
        }
    });
    join_all(each).await;
}

/// The providers of the settings, as the store calls them.
fn there(app: &App) -> impl Iterator<Item = &'static str> {
    let providers = &app.config.providers;
    let oidc = providers.oidc.as_ref().map(|_| "oidc");
    oidc.into_iter()
        .chain(providers.github.as_ref().map(|_| "github"))
}

/// What one round of questions to one provider reads once.
#[derive(Default)]
struct Round {
    /// `None`: the provider does not say.
    oidc: OnceCell<Option<(Discovered, KeySet)>>,
    /// Whether the log has it that it cannot be asked.
    told: AtomicBool,
}

/// Asks about everybody who was not asked about for a while.
pub async fn check(app: &App, now: Millis) {
    join_all(there(app).map(|provider| check_people(app, provider, now))).await;
}

/// The same about one provider's people.
async fn check_people(app: &App, provider: &'static str, now: Millis) {
    let round = &Round::default();
    let turn = Turn {
        provider,
        since: now - app.config.providers.recheck,
        asked: now - AGAIN,
    };
    let due = stream::unfold((), |()| async move {
        // not when the round began: who comes late in it would be claimed by another console too soon
        let claimed = now.max(clock::now());
        match app.store.claim_identity(turn, claimed).await {
            Ok(next) => next.map(|identity| (identity, ())),
            Err(error) => {
                warn(&error, "looking for people to ask their provider about");
                None
            }
        }
    });
    due.for_each_concurrent(AT_ONCE, |identity| async move {
        renew(app, round, &identity).await;
    })
    .await;
}

fn warn(error: &(dyn std::error::Error + 'static), doing: &str) {
    tracing::warn!(error, doing, "asking a sign-in provider again");
}

async fn renew(app: &App, round: &Round, identity: &Identity) {
    let provider = identity.provider.as_str();
    let lost = match ask(app, round, identity).await {
        Ok(Some(person))
            if may_enter(app, provider, &person) && person.subject == identity.subject =>
        {
            let kept = app.store.confirm_identity(&identity.id, clock::now()).await;
            if let Err(error) = kept {
                warn(&error, "noting that somebody may still come in");
            }
            return;
        }
        Ok(Some(_)) => "not a member any more",
        // they sign in again, or have no access once they are confirmed no more
        Ok(None) => return,
        Err(error) if error.is_refusal() && is_unsure(identity) => {
            warn(
                &error,
                "they sign in again: an answer before this one was lost",
            );
            return;
        }
        Err(error) if error.is_refusal() => "the provider refuses",
        Err(error) => {
            if !round.told.swap(true, Ordering::Relaxed) {
                warn(&error, "people have no access while it lasts");
            }
            return;
        }
    };
    let user = identity.user_id.as_str();
    match app.store.end_access(identity).await {
        Ok(true) => tracing::info!(user, provider, why = lost, "somebody was signed out"),
        // they have just signed in again
        Ok(false) => {}
        Err(error) => warn(&error, "ending somebody's access"),
    }
}

/// Whether a refusal may be about a token that an earlier question, whose answer never came, has used up.
fn is_unsure(identity: &Identity) -> bool {
    identity.provider == "oidc" && identity.asked_at > identity.checked_at
}

/// Who somebody is now; `None`: nothing that could ask was kept, or the provider is none of ours any more.
async fn ask(
    app: &App,
    round: &Round,
    identity: &Identity,
) -> Result<Option<Person>, ProviderError> {
    let providers = &app.config.providers;
    let place = Place {
        kind: KIND,
        id: &identity.id,
        workspace: "",
        version: identity.tokens,
    };
    let sealed = app
        .store
        .sealed(KIND, &identity.id, "", identity.tokens)
        .await;
    let Ok(Some(sealed)) = sealed else {
        return Ok(None);
    };
    let Ok(token) = app.vault.open(&app.store, &place, &sealed).await else {
        return Ok(None);
    };
    let token = std::str::from_utf8(&token).unwrap_or_default();
    match (
        identity.provider.as_str(),
        &providers.oidc,
        &providers.github,
    ) {
        // without groups whoever the provider knows may come in, and there is nothing to ask about who has no token
        ("oidc", Some(settings), _) if token.is_empty() && settings.allowed_groups.is_some() => {
            Ok(None)
        }
        ("oidc", Some(_), _) if token.is_empty() => Ok(Some(Person {
            subject: identity.subject.clone(),
            login: identity.login.clone(),
            name: identity.login.clone(),
            email: None,
            groups: Vec::new(),
            refresh: None,
        })),
        ("oidc", Some(settings), _) => ask_oidc(app, round, (identity, settings, token)).await,
        ("github", _, Some(settings)) => github::again(&app.outbound, settings, token)
            .await
            .map(Some),
        _ => Ok(None),
    }
}

async fn ask_oidc(
    app: &App,
    round: &Round,
    (identity, settings, token): (&Identity, &OidcSettings, &str),
) -> Result<Option<Person>, ProviderError> {
    let found = round.oidc.get_or_init(|| async {
        let read = async {
            let found = discovery::discover(&app.outbound, settings).await?;
            let keys = found.keys(&app.outbound, settings).await?;
            Ok::<_, ProviderError>((found, keys))
        };
        // told once for the whole round, and not tried again for everybody
        read.await
            .inspect_err(|error| warn(error, "reading what the provider says about itself"))
            .ok()
    });
    let Some((found, keys)) = found.await else {
        return Err(ProviderError::Answer("discovery document"));
    };
    let tokens = found.renew(&app.outbound, settings, token).await?;
    if let Some(fresh) = tokens.refresh.as_deref().filter(|fresh| *fresh != token)
        && let Err(error) = keep_tokens(app, identity, fresh).await
    {
        warn(&error, "keeping a provider's token");
    }
    found
        .again(&app.outbound, settings, (tokens, keys))
        .await
        .map(Some)
}
