//! Sign-in by OpenID Connect: discovery, authorization code with PKCE, ID token, groups.
//!
//! Documents of the provider are read anew at each sign-in, through the guarded client, and believed only as far as they
//! name the issuer that the operator has written down. Refuses to own: sessions, users, who may (`api::providers`), where
//! the endpoints are ([`super::discovery`]), signatures and claims ([`super::jwt`]).

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
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
    /// It takes no more questions for now.
    #[error("the provider answers {0}: too many questions")]
    Busy(u16),
    /// It says that what was kept of the sign-in is not good any more.
    #[error("the provider refuses what was kept of the sign-in")]
    Revoked,
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
    /// Whether it said no about this person. Everything else, our own credentials and its keys included, says nothing
    /// about them.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Revoked)
    }

    /// What an answer that is no success says.
    fn of(answer: &Response<Bytes>) -> Self {
        let status = answer.status().as_u16();
        let said = |name: &str| answer.headers().get(name).map(HeaderValue::as_bytes);
        let body: Map<String, Value> = serde_json::from_slice(answer.body()).unwrap_or_default();
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        // GitHub says 403 for both of its limits, with a header or in words
        let limited = said("retry-after").is_some()
            || said("x-ratelimit-remaining") == Some(b"0")
            || text("message").to_ascii_lowercase().contains("rate limit");
        match status {
            429 => Self::Busy(status),
            403 if limited => Self::Busy(status),
            400 if text("error") == "invalid_grant" => Self::Revoked,
            _ => Self::Status(status),
        }
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

/// What a provider hands out.
#[derive(Deserialize)]
pub struct Tokens {
    #[serde(rename = "access_token")]
    access: String,
    #[serde(rename = "id_token")]
    id: Option<String>,
    /// What asks again later; often good for one time.
    #[serde(rename = "refresh_token")]
    pub refresh: Option<String>,
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
        return Err(ProviderError::of(&answer));
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
        let keys = self.keys(outbound, settings).await?;
        let claims = claims(settings, &tokens, &keys, Some(&attempt.nonce))?;
        let claims = claims.ok_or(ProviderError::Answer("ID token"))?;
        self.read(outbound, settings, tokens, claims).await
    }

    /// Asks for tokens again, long after the sign-in. What was sent may be worth nothing from now on, whatever becomes of
    /// the answer: who asks keeps the new one before anything else.
    pub async fn renew(
        &self,
        outbound: &Outbound,
        settings: &OidcSettings,
        refresh: &str,
    ) -> Result<Tokens, ProviderError> {
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
        self.tokens(outbound, settings, &fields).await
    }

    /// Who somebody is by tokens that were asked for again.
    pub async fn again(
        &self,
        outbound: &Outbound,
        settings: &OidcSettings,
        (tokens, keys): (Tokens, &KeySet),
    ) -> Result<Person, ProviderError> {
        let claims = match claims(settings, &tokens, keys, None)? {
            Some(claims) => claims,
            None => self.userinfo(outbound, settings, &tokens.access).await?,
        };
        self.read(outbound, settings, tokens, claims).await
    }

    /// The keys that it signs with now.
    pub async fn keys(
        &self,
        outbound: &Outbound,
        settings: &OidcSettings,
    ) -> Result<KeySet, ProviderError> {
        let request = (
            purpose(settings, &self.jwks_uri),
            get(&self.jwks_uri, None)?,
        );
        json(outbound, request, "key set").await
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

fn claims(
    settings: &OidcSettings,
    tokens: &Tokens,
    keys: &KeySet,
    nonce: Option<&str>,
) -> Result<Option<Map<String, Value>>, ProviderError> {
    let expected = Expected {
        issuer: &settings.issuer,
        client: &settings.client_id,
        nonce,
    };
    let token = tokens.id.as_deref();
    Ok(token
        .map(|token| jwt::verify(token, keys, &expected))
        .transpose()?)
}

/// Whether the provider's groups let somebody in: a whole name, letter by letter.
pub fn may_enter(settings: &OidcSettings, person: &Person) -> bool {
    settings
        .allowed_groups
        .as_ref()
        .is_none_or(|allowed| allowed.iter().any(|group| person.groups.contains(group)))
}
