//! Where somebody is signed in.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::session::signed_out;
use crate::clock::{self, Millis};
use crate::server::app::App;
use crate::server::identify::Caller;
use crate::server::input::At;
use crate::server::problem::Problem;

/// One device.
#[derive(Debug, Serialize, ToSchema)]
pub struct Device {
    /// The session's id.
    pub id: String,
    /// From which address it signed in.
    pub address: String,
    /// What its browser calls itself.
    pub agent: String,
    /// When it signed in, in milliseconds since 1970.
    pub created_at: Millis,
    /// When it was last used, to the minute.
    pub seen_at: Millis,
    /// When it is signed out by itself.
    pub expires_at: Millis,
    /// Whether it is the one that asks.
    pub current: bool,
}

/// Devices.
#[derive(Debug, Serialize, ToSchema)]
pub struct Devices {
    /// Oldest first.
    pub items: Vec<Device>,
}

/// Where am I signed in?
#[utoipa::path(get, path = "/api/v1/sessions", tag = "session", responses((status = 200, body = Devices)))]
pub async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Devices>, Problem> {
    let current = &caller.session()?.id;
    let sessions = app
        .store
        .sessions_of(&caller.user()?.id, clock::now())
        .await?;
    let items = sessions.into_iter().map(|s| Device {
        current: s.id == *current,
        id: s.id,
        address: s.address,
        agent: s.agent,
        created_at: s.created_at,
        seen_at: s.seen_at,
        expires_at: s.expires_at,
    });
    Ok(Json(Devices {
        items: items.collect(),
    }))
}

/// Sign one device out.
#[utoipa::path(delete, path = "/api/v1/sessions/{session}", tag = "session",
    params(("session" = String, Path, description = "Its id.")), responses((status = 204)))]
pub async fn end(
    State(app): State<App>,
    caller: Caller,
    At(session): At<String>,
) -> Result<StatusCode, Problem> {
    if app.store.end_session(&caller.user()?.id, &session).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found())
    }
}

/// Sign out everywhere, here too.
#[utoipa::path(delete, path = "/api/v1/sessions", tag = "session", responses((status = 204)))]
pub async fn end_all(State(app): State<App>, caller: Caller) -> Result<Response, Problem> {
    app.store.end_sessions(&caller.user()?.id).await?;
    signed_out(&app)
}
