//! Everything that stands around a handler, outermost first as a request meets it:
//!
//! 1. request id, 2. log and metrics, 3. security headers, 4. panics, 5. host, 6. site (CSRF), 7. client address and its
//!    rate, 8. time limit, 9. body limit, 10. (per route, `guard`) who is it, may they, their account's rate.
//!
//! Refuses to own: what a handler answers. Failure stance: whatever refuses here answers with a `Problem`.

use std::any::Any;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::limit::RequestBodyLimitLayer;

use super::address::{Client, Peer, client};
use super::app::App;
use super::origin;
use super::problem::Problem;
use super::rate::Counted;
use crate::settings::Scheme;

/// Nothing that the API takes is longer; a policy has its own limit below this.
const BODY: usize = 1 << 20;
/// A handler's answer begins within this time; streams go on after it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Only what this console serves itself, and nothing inline. The browser app's own page answers with one of its own.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// The same for a page whose libraries make style sheets: those that carry the nonce count as the console's.
pub fn policy_with_styles(nonce: &str) -> String {
    CONTENT_SECURITY_POLICY.replace(
        "style-src 'self'",
        &format!("style-src 'self' 'nonce-{nonce}'"),
    )
}

/// Puts the whole stack around the routes. The last line is the outermost.
pub fn around(routes: Router, app: &App) -> Router {
    routes
        .layer(DefaultBodyLimit::disable())
        .layer(RequestBodyLimitLayer::new(BODY))
        .layer(from_fn(time_limit))
        .layer(from_fn_with_state(app.clone(), rate_of_address))
        .layer(from_fn_with_state(app.clone(), site))
        .layer(from_fn_with_state(app.clone(), host))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(app.clone(), headers))
        .layer(from_fn_with_state(app.clone(), log))
        .layer(from_fn(request_id))
}

/// The id of one request, in its log lines and its answer. What a caller sends as one is not believed.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

async fn request_id(mut request: Request, next: Next) -> Response {
    let id = crate::clock::id();
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    if let Ok(value) = HeaderValue::from_str(&id) {
        response
            .headers_mut()
            .insert(HeaderName::from_static("x-request-id"), value);
    }
    response
}

/// One line for each answer: the route and never the path, which may hold what a caller wrote.
async fn log(State(app): State<App>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let id = request.extensions().get::<RequestId>().cloned();
    let response = next.run(request).await;
    let (status, took) = (response.status().as_u16(), begun.elapsed());
    app.metrics.answered(&method, status, took);
    tracing::info!(
        request.id = id.as_ref().map_or("", |id| &id.0),
        http.method = known(&method),
        http.route = route.as_ref().map_or("-", MatchedPath::as_str),
        http.status = status,
        duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "answered"
    );
    response
}

/// A method may be any word that a caller makes up.
fn known(method: &http::Method) -> &str {
    let standard = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    standard
        .into_iter()
        .find(|known| *known == method.as_str())
        .unwrap_or("-")
}

async fn headers(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    let mut set = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "no-referrer");
    set(
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    );
    set(
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    );
    set(
        HeaderName::from_static("permissions-policy"),
        "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    );
    if app
        .config
        .url
        .as_ref()
        .is_some_and(|url| url.scheme == Scheme::Https)
    {
        set(header::STRICT_TRANSPORT_SECURITY, "max-age=31536000");
    }
    if !response.headers().contains_key(header::CACHE_CONTROL) {
        response
            .headers_mut()
            .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the layer hands the panic over"
)]
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(
        panic = text.unwrap_or("without words"),
        "a handler panicked"
    );
    Problem::internal().into_response()
}

async fn host(State(app): State<App>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match origin::host(&parts, app.config.url.as_ref()) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(problem) => problem.into_response(),
    }
}

async fn site(State(app): State<App>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match origin::site(&parts, app.config.url.as_ref()) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(problem) => problem.into_response(),
    }
}

async fn rate_of_address(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let Some(Peer(peer)) = request.extensions().get::<Peer>().copied() else {
        tracing::error!("a request without a peer");
        return Problem::internal().into_response();
    };
    let client = client(peer.ip(), request.headers(), &app.config.trusted_proxies);
    // runners tell what their runs print; the guard counts who only guesses at their tokens
    let route = request.extensions().get::<MatchedPath>();
    let runner = route.is_some_and(|route| route.as_str().starts_with("/runner/v1/"));
    if !runner && !app.rates.take(Counted::address(client.0), Instant::now()) {
        return Problem::slow_down(
            "too_many_requests",
            "too many requests from this address",
            1,
        )
        .into_response();
    }
    request.extensions_mut().insert::<Client>(client);
    next.run(request).await
}

async fn time_limit(request: Request, next: Next) -> Response {
    tokio::time::timeout(PATIENCE, next.run(request))
        .await
        .unwrap_or_else(|_| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too_slow",
                "this took too long and was given up",
            )
            .into_response()
        })
}
