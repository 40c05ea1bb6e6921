//! Sign-in by OpenID Connect: discovery, authorization code with PKCE, ID token, groups.
//!
//! Documents of the provider are read anew at each sign-in, through the guarded client, and believed only as far as they
//! name the issuer that the operator has written down. Refuses to own: sessions, users, who may (`api::providers`), where
//! the endpoints are ([`super::discovery`]), signatures and claims ([`super::jwt`]).

use bytes::Bytes;
use http::{Request, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::discovery::{Discovered, purpose};
use super::jwt::{self, Expected, KeySet, TokenError};
use crate::outbound::{CallError, Outbound, Purpose, Refusal};
use crate::settings::OidcSettings;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// Discovery documents, keys, tokens and user information are shorter.
const DOCUMENT: usize = 256 << 10;

/// Why a provider's word is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// It cannot be asked.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It answers with a failure.
    #[error("the provider answers {0}")]
    Status(u16),
    /// What it answers is not what it ought to be.
    #[error("the provider's answer has no usable {0}")]
    Answer(&'static str),
    /// Its discovery document is another issuer's.
    #[error("the discovery document names another issuer than `auth.providers.oidc.issuer`")]
    Issuer,
    /// Its discovery document leads where nobody is asked.
    #[error("the discovery document's {endpoint} {why}")]
    Endpoint {
        /// The document's word for it.
        endpoint: &'static str,
        /// Why nobody is asked there.
        why: Refusal,
    },
    /// Its token does not fit.
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl ProviderError {
    /// Whether it said no, rather than nothing.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Status(400 | 401 | 403) | Self::Token(_))
    }
}

/// What a sign-in is bound to, beside the browser.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// Comes back with the browser.
    pub state: String,
    /// Comes back in the token.
    pub nonce: String,
    /// Proves that who exchanges the code is who asked for it.
    pub verifier: String,
}

/// Who somebody is, by the provider's word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Person {
    /// Never another person's, at this provider.
    pub subject: String,
    /// What they are called there.
    pub login: String,
    /// Their name.
    pub name: String,
    /// Their address, if the provider has checked it.
    pub email: Option<String>,
    /// Their groups there.
    pub groups: Vec<String>,
    /// What asks again later.
    pub refresh: Option<String>,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(rename = "access_token")]
    access: String,
    #[serde(rename = "id_token")]
    id: Option<String>,
    #[serde(rename = "refresh_token")]
    refresh: Option<String>,
}

/// The challenge that goes with a verifier (RFC 7636 4.2).
pub fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

/// A form, as it is posted or stands behind `?`.
pub fn form(fields: &[(&str, &str)]) -> String {
    let encode = |text: &str| -> String {
        text.bytes()
            .map(|b| {
                if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
                    char::from(b).to_string()
                } else {
                    format!("%{b:02X}")
                }
            })
            .collect()
    };
    let pairs: Vec<String> = fields
        .iter()
        .map(|(k, v)| format!("{k}={}", encode(v)))
        .collect();
    pairs.join("&")
}

/// Reads an answer that must be JSON.
pub async fn json<T: DeserializeOwned>(
    outbound: &Outbound,
    (purpose, request): (Purpose, Request<Bytes>),
    what: &'static str,
) -> Result<T, ProviderError> {
    let answer = outbound.call(purpose, request, DOCUMENT).await?;
    if !answer.status().is_success() {
        return Err(ProviderError::Status(answer.status().as_u16()));
    }
    serde_json::from_slice(answer.body()).map_err(|_| ProviderError::Answer(what))
}

pub(super) fn get(url: &str, bearer: Option<&str>) -> Result<Request<Bytes>, ProviderError> {
    let mut request = Request::get(url).header(header::ACCEPT, "application/json");
    if let Some(token) = bearer {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    request
        .body(Bytes::new())
        .map_err(|_| ProviderError::Answer("address"))
}

impl Discovered {
    /// Where a browser is sent. A web address, as its document was found to name: a browser does more with other ones.
    pub fn authorization(
        &self,
        settings: &OidcSettings,
        attempt: &Attempt,
        redirect: &str,
    ) -> String {
        let fields = form(&[
            ("response_type", "code"),
            ("client_id", &settings.client_id),
            ("redirect_uri", redirect),
            ("scope", &settings.scopes.join(" ")),
            ("state", &attempt.state),
            ("nonce", &attempt.nonce),
            ("code_challenge", &challenge(&attempt.verifier)),
            ("code_challenge_method", "S256"),
        ]);
        let joint = if self.authorization_endpoint.contains('?') {
            '&'
        } else {
            '?'
        };
        format!("{}{joint}{fields}", self.authorization_endpoint)
    }

    async fn tokens(
        &self,
        outbound: &Outbound,
        settings: &OidcSettings,
        fields: &[(&str, &str)],
    ) -> Result<Tokens, ProviderError> {
        let (id, secret) = (settings.client_id.as_str(), settings.client_secret.reveal());
        let methods = &self.token_endpoint_auth_methods_supported;
        let in_head = methods.is_empty() || methods.iter().any(|m| m == "client_secret_basic");
        let mut fields = fields.to_vec();
        let mut request = Request::post(&self.token_endpoint)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json");
        if in_head {
            // both halves are encoded first (RFC 6749 2.3.1)
            let encode = |text: &str| form(&[("", text)]).split_off(1);
            let pair = STANDARD.encode(format!("{}:{}", encode(id), encode(secret)));
            request = request.header(header::AUTHORIZATION, format!("Basic {pair}"));
        } else {
            fields.extend([("client_id", id), ("client_secret", secret)]);
        }
        let request = request.body(Bytes::from(form(&fields)));
        let request = request.map_err(|_| ProviderError::Answer("token endpoint"))?;
        let purpose = purpose(settings, &self.token_endpoint);
        json(outbound, (purpose, request), "token").await
    }

    /// Exchanges the code of a sign-in for who it is.
    pub async fn person(
        &self,
        outbound: &Outbound,
        settings: &OidcSettings,
        (code, redirect, attempt): (&str, &str, &Attempt),
    ) -> Result<Person, ProviderError> {
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect),
            ("code_verifier", &attempt.verifier),
        ];
        let tokens = self.tokens(outbound, settings, &fields).await?;
        let claims = self
            .claims(outbound, settings, &tokens, Some(&attempt.nonce))
            .await?;
        let claims = claims.ok_or(ProviderError::Answer("ID token"))?;
        self.read(outbound, settings, tokens, claims).await
    }

    /// Asks again who somebody is, long after the sign-in.
    pub async fn again(
        &self,
        outbound: &Outbound,
        settings: &OidcSettings,
        refresh: &str,
    ) -> Result<Person, ProviderError> {
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
        let mut tokens = self.tokens(outbound, settings, &fields).await?;
        tokens.refresh.get_or_insert_with(|| refresh.to_owned());
        let claims = self.claims(outbound, settings, &tokens, None).await?;
        let claims = match claims {
            Some(claims) => claims,
            None => self.userinfo(outbound, settings, &tokens.access).await?,
        };
        self.read(outbound, settings, tokens, claims).await
    }

    async fn claims(
        &self,
        outbound: &Outbound,
        settings: &OidcSettings,
        tokens: &Tokens,
        nonce: Option<&str>,
    ) -> Result<Option<Map<String, Value>>, ProviderError> {
        let Some(token) = &tokens.id else {
            return Ok(None);
        };
        let request = (
            purpose(settings, &self.jwks_uri),
            get(&self.jwks_uri, None)?,
        );
        let keys: KeySet = json(outbound, request, "key set").await?;
        let expected = Expected {
            issuer: &settings.issuer,
            client: &settings.client_id,
            nonce,
        };
        Ok(Some(jwt::verify(token, &keys, &expected)?))
    }

    async fn userinfo(
        &self,
        outbound: &Outbound,
        settings: &OidcSettings,
        access: &str,
    ) -> Result<Map<String, Value>, ProviderError> {
        let url = self.userinfo_endpoint.as_deref();
        let url = url.ok_or(ProviderError::Answer("user information"))?;
        let request = (purpose(settings, url), get(url, Some(access))?);
        json(outbound, request, "user information").await
    }

    /// Puts together what token and user information say; both must speak of the same person.
    async fn read(
        &self,
        outbound: &Outbound,
        settings: &OidcSettings,
        tokens: Tokens,
        mut claims: Map<String, Value>,
    ) -> Result<Person, ProviderError> {
        let wants_groups = settings.allowed_groups.is_some();
        let is_missing = (wants_groups && !claims.contains_key(&settings.groups_claim))
            || !claims.contains_key("email");
        if is_missing && self.userinfo_endpoint.is_some() {
            let more = self.userinfo(outbound, settings, &tokens.access).await?;
            if more.get("sub") != claims.get("sub") {
                return Err(TokenError::Claim("sub").into());
            }
            for (name, value) in more {
                claims.entry(name).or_insert(value);
            }
        }
        let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
        let subject = text("sub").to_owned();
        if subject.is_empty() {
            return Err(TokenError::Claim("sub").into());
        }
        let checked = claims.get("email_verified").and_then(Value::as_bool) == Some(true);
        let login = [text("preferred_username"), text("email"), &subject];
        let name = [
            text("name"),
            text("preferred_username"),
            text("email"),
            &subject,
        ];
        let first = |of: &[&str]| {
            of.iter()
                .find(|t| !t.is_empty())
                .map_or_else(String::new, |t| (*t).to_owned())
        };
        Ok(Person {
            login: first(&login),
            name: first(&name),
            email: checked
                .then(|| text("email").to_owned())
                .filter(|e| !e.is_empty()),
            groups: jwt::groups(&claims, &settings.groups_claim).unwrap_or_default(),
            refresh: tokens.refresh,
            subject,
        })
    }
}

/// Whether the provider's groups let somebody in: a whole name, letter by letter.
pub fn may_enter(settings: &OidcSettings, person: &Person) -> bool {
    settings
        .allowed_groups
        .as_ref()
        .is_none_or(|allowed| allowed.iter().any(|group| person.groups.contains(group)))
}
