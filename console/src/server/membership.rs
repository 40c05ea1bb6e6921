//! Whether a provider still lets somebody in: asked at each sign-in, and again and again while they are signed in.
//!
//! Who is no member any more is signed out, and their tokens end, within a quarter of an hour. Failure stance: a provider
//! that says no, or that cannot be asked for that long, is no membership.

use std::time::Duration;

use super::app::App;
use super::problem::Problem;
use crate::accounts::oidc::{Person, ProviderError};
use crate::accounts::{discovery, github, oidc};
use crate::clock::{self, MINUTE, Millis};
use crate::store::StoreError;
use crate::store::identities::{Identity, KIND};
use crate::vault::{Place, VaultError};

/// Somebody is asked about this long after the last time.
const FRESH: Millis = 8 * MINUTE;
/// Who could not be asked about for so long is out.
const LONGEST: Millis = 14 * MINUTE;
const EVERY: Duration = Duration::from_secs(30);
/// At once; the rest is next.
const MOST: i64 = 100;

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
    Ok(keep_tokens(app, &identity, person).await?)
}

async fn keep_tokens(app: &App, identity: &Identity, person: &Person) -> Result<(), VaultError> {
    let tokens = person.refresh.clone().unwrap_or_default();
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
        if app
            .store
            .keep_tokens(identity, &sealed, clock::now())
            .await?
        {
            return Ok(());
        }
        app.vault.refresh(&app.store).await?;
    }
}

/// Until the console stops.
pub async fn keep_checked(app: App) {
    if app.config.providers.is_empty() {
        return;
    }
    let mut turns = tokio::time::interval(EVERY);
    loop {
        turns.tick().await;
        if let Err(error) = check(&app, clock::now()).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "asking sign-in providers again"
            );
        }
    }
}

/// Asks about everybody who was not asked about for a while.
pub async fn check(app: &App, now: Millis) -> Result<(), StoreError> {
    for identity in app
        .store
        .unchecked_identities(now - FRESH, now, MOST)
        .await?
    {
        match ask(app, &identity).await {
            Ok(Some(person))
                if may_enter(app, &identity.provider, &person)
                    && person.subject == identity.subject =>
            {
                if let Err(error) = keep_tokens(app, &identity, &person).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "keeping a provider's token"
                    );
                }
            }
            Ok(_) => end(app, &identity, "not a member any more").await?,
            Err(error) if error.is_refusal() => end(app, &identity, "the provider refuses").await?,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    provider = identity.provider,
                    "a sign-in provider cannot be asked"
                );
                if identity.checked_at < now - LONGEST {
                    end(app, &identity, "the provider could not be asked").await?;
                }
            }
        }
    }
    Ok(())
}

async fn end(app: &App, identity: &Identity, why: &str) -> Result<(), StoreError> {
    tracing::info!(
        user = identity.user_id,
        provider = identity.provider,
        why,
        "somebody was signed out"
    );
    app.store.end_access(&identity.user_id).await
}

/// Who somebody is now; `None`: nothing that could ask was kept, or the provider is none of ours any more.
async fn ask(app: &App, identity: &Identity) -> Result<Option<Person>, ProviderError> {
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
        ("oidc", Some(settings), _) => {
            let found = discovery::discover(&app.outbound, settings).await?;
            found.again(&app.outbound, settings, token).await.map(Some)
        }
        ("github", _, Some(settings)) => github::again(&app.outbound, settings, token)
            .await
            .map(Some),
        _ => Ok(None),
    }
}
