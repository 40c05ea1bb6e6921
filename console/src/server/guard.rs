//! Stands before every route: may this caller do what the route needs?

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use super::app::App;
use crate::access::{Action, Reach, rule};

/// Lets a request through to its handler, or answers it.
pub async fn admit(
    State((_, action)): State<(App, Action)>,
    request: Request,
    next: Next,
) -> Response {
    match rule(action).reach {
        Reach::Open => next.run(request).await,
    }
}
