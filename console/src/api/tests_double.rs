//! A sign-in provider for tests, which checks what real ones check, and a console that knows it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};

use super::tests::owned;
use crate::accounts::oidc::challenge;
use crate::clock;
use crate::server::testing::{Answer, Console};
use crate::settings::{AppUrl, ConsoleConfig, GitHubSettings, OidcSettings, Redacted};
use crate::store::Store;

/// What a double answers, and what it was asked with.
#[derive(Clone)]
pub(super) struct Double(pub(super) Arc<Mutex<Inner>>, Arc<EcdsaKeyPair>);

pub(super) struct Inner {
    origin: String,
    /// Claims of the next tokens.
    pub(super) claims: Value,
    /// Of the sign-in under way.
    nonce: String,
    pub(super) challenge: String,
    /// Statuses and bodies by path.
    pub(super) github: Value,
    /// Whether a refresh token is still good.
    pub(super) refreshes: bool,
    /// What the discovery document says instead.
    pub(super) discovery: Value,
    /// The refresh token that is good, and whether it is so for one time.
    pub(super) refresh: (String, bool),
    /// What the token endpoint answers instead.
    pub(super) outage: Option<StatusCode>,
    /// How long it takes to answer.
    pub(super) slow: Duration,
    /// How many it answers at the same time: now, at most.
    pub(super) at_once: (usize, usize),
}

impl Double {
    pub(super) async fn start() -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let inner = Inner {
            origin,
            claims: json!({ "sub": "7", "name": "Eve", "email": "eve@example.com", "email_verified": true, "groups": ["crew"] }),
            nonce: String::new(),
            challenge: String::new(),
            github: json!({}),
            refreshes: true,
            discovery: json!({}),
            refresh: ("again".into(), false),
            outage: None,
            slow: Duration::ZERO,
            at_once: (0, 0),
        };
        let double = Self(Arc::new(Mutex::new(inner)), Arc::new(key));
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .route("/login/oauth/access_token", post(github_token))
            .route("/api/{*path}", get(github_api))
            .with_state(double.clone());
        gateway::tasks::Tasks::default().spawn("provider", async move {
            axum::serve(listener, router).await.unwrap();
        });
        double
    }

    pub(super) fn origin(&self) -> String {
        self.0.lock().unwrap().origin.clone()
    }

    pub(super) fn says(&self, name: &str, value: Value) {
        self.0.lock().unwrap().claims[name] = value;
    }

    fn id_token(&self, nonce: bool, named: Option<&str>) -> String {
        let inner = self.0.lock().unwrap();
        let now = clock::now() / 1000;
        let mut claims = inner.claims.clone();
        if let Some(name) = named {
            claims["sub"] = json!(name);
        }
        for (name, value) in [
            ("iss", json!(inner.origin)),
            ("aud", json!("us")),
            ("iat", json!(now)),
            ("exp", json!(now + 300)),
        ] {
            if claims.get(name).is_none() {
                claims[name] = value;
            }
        }
        if nonce {
            claims["nonce"] = json!(inner.nonce);
        }
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!(
            "{}.{}",
            part(json!({ "alg": "ES256", "kid": "1" })),
            part(claims)
        );
        let made = self
            .1
            .sign(&SystemRandom::new(), signed.as_bytes())
            .unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(made.as_ref()))
    }
}

async fn discovery(State(double): State<Double>) -> Json<Value> {
    let origin = double.origin();
    let mut document = json!({ "issuer": origin, "authorization_endpoint": format!("{origin}/authorize"),
        "token_endpoint": format!("{origin}/token"), "jwks_uri": format!("{origin}/keys"),
        "authorization_response_iss_parameter_supported": true });
    for (name, value) in double.0.lock().unwrap().discovery.as_object().unwrap() {
        document[name] = value.clone();
    }
    Json(document)
}

async fn keys(State(double): State<Double>) -> Json<Value> {
    let point = double.1.public_key().as_ref()[1..].to_vec();
    let (x, y) = point.split_at(32);
    let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
    Json(json!({ "keys": [{ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": "1" }] }))
}

/// A form; nothing that the tests send is encoded but colons and slashes of addresses.
fn fields(body: &str) -> std::collections::HashMap<&str, &str> {
    body.split('&')
        .filter_map(|pair| pair.split_once('='))
        .collect()
}

async fn token(State(double): State<Double>, headers: HeaderMap, body: String) -> Response {
    let fields = fields(&body);
    let (slow, outage) = {
        let mut inner = double.0.lock().unwrap();
        inner.at_once.0 += 1;
        inner.at_once.1 = inner.at_once.1.max(inner.at_once.0);
        (inner.slow, inner.outage)
    };
    tokio::time::sleep(slow).await;
    double.0.lock().unwrap().at_once.0 -= 1;
    if let Some(status) = outage {
        return status.into_response();
    }
    let refused = || {
        (
            StatusCode::BAD_REQUEST,
            Json(json!({ "error": "invalid_grant" })),
        )
            .into_response()
    };
    // us:s3cret
    if headers.get("authorization").and_then(|v| v.to_str().ok()) != Some("Basic dXM6czNjcmV0") {
        return (
            StatusCode::UNAUTHORIZED,
            Json(json!({ "error": "invalid_client" })),
        )
            .into_response();
    }
    // whoever this token speaks of; the one person of the other tests otherwise
    let named = fields
        .get("refresh_token")
        .and_then(|token| token.strip_prefix("as-"));
    let at_sign_in = fields["grant_type"] == "authorization_code";
    let fits = if at_sign_in {
        let inner = double.0.lock().unwrap();
        fields["code"] == "good" && challenge(fields["code_verifier"]) == inner.challenge
    } else {
        let mut inner = double.0.lock().unwrap();
        let known = fields["refresh_token"] == inner.refresh.0 || named.is_some();
        let good = known && inner.refreshes;
        if good && inner.refresh.1 {
            inner.refresh.0.push('x');
        }
        good
    };
    if !fits {
        return refused();
    }
    let mut refresh = double.0.lock().unwrap().refresh.0.clone();
    if let Some(name) = named {
        refresh = format!("as-{name}");
    }
    Json(json!({ "access_token": "a", "token_type": "Bearer", "refresh_token": refresh, "id_token": double.id_token(at_sign_in, named) }))
        .into_response()
}

async fn github_token(State(double): State<Double>, body: String) -> Response {
    let fields = fields(&body);
    let inner = double.0.lock().unwrap();
    let fits = fields["code"] == "good"
        && fields["client_secret"] == "s3cret"
        && challenge(fields["code_verifier"]) == inner.challenge;
    if fits {
        return Json(json!({ "access_token": "gho_x" })).into_response();
    }
    Json(json!({ "error": "bad_verification_code" })).into_response()
}

async fn github_api(State(double): State<Double>, Path(path): Path<String>) -> Response {
    let inner = double.0.lock().unwrap();
    let Some(answer) = inner.github.get(&path) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let status = answer["status"]
        .as_u64()
        .and_then(|s| u16::try_from(s).ok())
        .unwrap_or(200);
    let left = answer["left"].as_str().unwrap_or("4999").to_owned();
    (
        StatusCode::from_u16(status).unwrap(),
        [("x-ratelimit-remaining", left)],
        Json(answer["body"].clone()),
    )
        .into_response()
}

/// A console with an owner, whose provider is the double.
pub(super) async fn console(store: Store, double: &Double, groups: Option<&[&str]>) -> Console {
    let origin = double.origin();
    let _ = owned(store.clone()).await;
    let mut config = ConsoleConfig {
        url: AppUrl::parse("http://localhost:8420"),
        ..ConsoleConfig::default()
    };
    let secret = || Redacted::new("s3cret".to_owned());
    config.providers.oidc = Some(OidcSettings {
        name: "Company".into(),
        issuer: origin.clone(),
        client_id: "us".into(),
        client_secret: secret(),
        allowed_groups: groups.map(|groups| groups.iter().map(|g| (*g).to_owned()).collect()),
        groups_claim: "groups".into(),
        scopes: vec!["openid".into()],
    });
    config.providers.github = Some(GitHubSettings {
        client_id: "us".into(),
        client_secret: secret(),
        users: vec!["Mona".into()],
        organizations: vec!["crew".into()],
        url: origin.clone(),
        api: format!("{origin}/api"),
    });
    Console::with(store, config)
}

/// Leaves for the provider; the browser's cookie and the state.
pub(super) async fn leave(console: &Console, double: &Double, provider: &str) -> (String, String) {
    let path = format!("/api/v1/providers/{provider}/sign-in");
    let left = console.tell(Method::POST, &path, &[], json!({})).await;
    assert_eq!(left.status, 200, "{}", left.text);
    let cookie = left.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Lax"), "{cookie}");
    let location = left.json["location"].as_str().unwrap();
    let field = |name: &str| {
        let (_, rest) = location.split_once(&format!("{name}=")).unwrap_or_default();
        rest.split('&').next().unwrap().to_owned()
    };
    assert!(
        location.contains("code_challenge_method=S256"),
        "{location}"
    );
    let mut inner = double.0.lock().unwrap();
    inner.nonce = field("nonce");
    inner.challenge = field("code_challenge");
    (cookie.split(';').next().unwrap().to_owned(), field("state"))
}

pub(super) async fn back(
    console: &Console,
    double: &Double,
    provider: &str,
    cookie: &str,
    query: &str,
) -> Answer {
    let path = format!(
        "/api/v1/providers/{provider}/callback?{query}&iss={}",
        double.origin()
    );
    console
        .ask(
            Method::GET,
            &path,
            &[("cookie", cookie), ("sec-fetch-site", "cross-site")],
        )
        .await
}

/// A whole sign-in; where it leads, and the session's cookie.
pub(super) async fn sign_in(
    console: &Console,
    double: &Double,
    provider: &str,
) -> (String, Option<String>) {
    let (cookie, state) = leave(console, double, provider).await;
    let answer = back(
        console,
        double,
        provider,
        &cookie,
        &format!("code=good&state={state}"),
    )
    .await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let session = answer.headers.get_all("set-cookie").iter().find_map(|v| {
        let text = v.to_str().unwrap();
        text.starts_with("sallyport_session=sps_")
            .then(|| text.split(';').next().unwrap().to_owned())
    });
    (
        answer.headers["location"].to_str().unwrap().to_owned(),
        session,
    )
}

pub(super) async fn me(console: &Console, cookie: &str) -> Answer {
    console
        .ask(Method::GET, "/api/v1/session", &[("cookie", cookie)])
        .await
}
