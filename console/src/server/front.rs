//! `GET /`: a page for whoever opens the console's address in a browser, without script or style.

use axum::response::Html;

/// What there is, and how to sign in.
pub async fn page() -> Html<&'static str> {
    Html(include_str!("front.html"))
}
