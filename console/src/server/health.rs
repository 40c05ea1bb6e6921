//! The management listener: `/healthz` (the process answers), `/readyz` (the store answers), `/metrics`.
//!
//! On loopback, without accounts: it tells nothing about anybody. A page that names another host gets nothing.

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::{StatusCode, header};
use serde_json::json;

use super::app::App;
use super::origin;

/// What OpenMetrics calls its text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Its routes.
pub fn router(app: App) -> Router {
    Router::new()
        .route("/healthz", get(async || Json(json!({ "status": "ok" }))))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(app)
        .layer(from_fn(by_loopback))
}

async fn by_loopback(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match origin::host(&parts, None) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(problem) => problem.into_response(),
    }
}

async fn ready(State(app): State<App>) -> Response {
    match app.store.ping().await {
        Ok(()) => Json(json!({ "status": "ok", "store": app.store.engine() })).into_response(),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "not ready");
            let body =
                Json(json!({ "status": "the store does not answer", "store": app.store.engine() }));
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

async fn metrics(State(app): State<App>) -> Response {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], app.metrics.text()).into_response()
}
