//! Sign-in by GitHub: listed users, and active members of listed organisations.
//!
//! Somebody is the number of their account and never its name, which others may take over. What cannot be asked is no
//! membership. Refuses to own: sessions, users (`api::providers`).

use bytes::Bytes;
use http::{Request, header};
use serde::Deserialize;

use super::oidc::{Attempt, Person, ProviderError, challenge, form, json};
use crate::outbound::{CallError, Outbound, Purpose};
use crate::settings::GitHubSettings;

#[derive(Deserialize)]
struct Tokens {
    access_token: String,
}

#[derive(Deserialize)]
struct Account {
    id: u64,
    login: String,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Membership {
    state: String,
    organization: Organization,
}

#[derive(Deserialize)]
struct Organization {
    login: String,
}

#[derive(Deserialize)]
struct Email {
    #[serde(rename = "email")]
    address: String,
    primary: bool,
    verified: bool,
}

/// Where a browser is sent.
pub fn authorization(settings: &GitHubSettings, attempt: &Attempt, redirect: &str) -> String {
    let scope = if settings.organizations.is_empty() {
        "user:email"
    } else {
        "user:email read:org"
    };
    let fields = form(&[
        ("client_id", &settings.client_id),
        ("redirect_uri", redirect),
        ("scope", scope),
        ("state", &attempt.state),
        ("code_challenge", &challenge(&attempt.verifier)),
        ("code_challenge_method", "S256"),
        ("allow_signup", "false"),
    ]);
    format!("{}/login/oauth/authorize?{fields}", settings.url)
}

/// Exchanges the code of a sign-in for who it is; `groups` are the listed organisations that they are active in.
pub async fn person(
    outbound: &Outbound,
    settings: &GitHubSettings,
    (code, redirect, attempt): (&str, &str, &Attempt),
) -> Result<Person, ProviderError> {
    let fields = form(&[
        ("client_id", &settings.client_id),
        ("client_secret", settings.client_secret.reveal()),
        ("code", code),
        ("redirect_uri", redirect),
        ("code_verifier", &attempt.verifier),
    ]);
    let request = Request::post(format!("{}/login/oauth/access_token", settings.url))
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(header::ACCEPT, "application/json")
        .body(Bytes::from(fields));
    let request = request.map_err(|_| ProviderError::Answer("address"))?;
    let tokens: Tokens = json(outbound, (Purpose::Operator, request), "token").await?;
    let mut person = again(outbound, settings, &tokens.access_token).await?;
    let emails: Vec<Email> = ask(outbound, settings, &tokens.access_token, "/user/emails")
        .await
        .unwrap_or_default();
    let checked = emails
        .into_iter()
        .find(|email| email.primary && email.verified);
    person.email = checked.map(|email| email.address);
    Ok(person)
}

/// Asks again, with the token of the sign-in; not for the address.
pub async fn again(
    outbound: &Outbound,
    settings: &GitHubSettings,
    token: &str,
) -> Result<Person, ProviderError> {
    let account = ask::<Account>(outbound, settings, token, "/user").await;
    let account = account.map_err(|error| match error {
        // the token was taken back, by them or by GitHub
        ProviderError::Status(401) => ProviderError::Revoked,
        error => error,
    })?;
    let mut groups = Vec::new();
    for organization in &settings.organizations {
        let path = format!("/user/memberships/orgs/{organization}");
        match ask::<Membership>(outbound, settings, token, &path).await {
            Ok(found) => {
                let same = found.organization.login.eq_ignore_ascii_case(organization);
                // invited is not a member
                if same && found.state == "active" {
                    groups.push(organization.clone());
                }
            }
            Err(ProviderError::Status(403 | 404)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Person {
        subject: account.id.to_string(),
        name: account
            .name
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| account.login.clone()),
        email: None,
        login: account.login,
        groups,
        refresh: Some(token.to_owned()),
    })
}

async fn ask<T: serde::de::DeserializeOwned>(
    outbound: &Outbound,
    settings: &GitHubSettings,
    token: &str,
    path: &str,
) -> Result<T, ProviderError> {
    let request = Request::get(format!("{}{path}", settings.api))
        .header(header::ACCEPT, "application/vnd.github+json")
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .body(Bytes::new());
    let request =
        request.map_err(|_| ProviderError::Call(CallError::NoAddress(path.to_owned())))?;
    json(outbound, (Purpose::Operator, request), "account").await
}

/// Whether somebody is listed, or in a listed organisation.
pub fn may_enter(settings: &GitHubSettings, person: &Person) -> bool {
    let listed = settings
        .users
        .iter()
        .any(|user| user.eq_ignore_ascii_case(&person.login));
    listed || !person.groups.is_empty()
}
