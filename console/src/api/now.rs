//! What is going on in a workspace now: runs, rates of flows, destinations, denials by name.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::runs::{RunView, view};
use crate::clock::{self, MINUTE, Millis};
use crate::server::app::App;
use crate::server::identify::Caller;
use crate::server::input::Asked;
use crate::server::problem::Problem;
use crate::store::flows::{Destination, FlowRate, RATE};

/// Runs that are shown.
const MOST_RUNS: i64 = 100;
/// Flows that are looked at: with more than these in the time, the newest.
const MOST_FLOWS: i64 = 5_000;
/// Destinations of each list.
const MOST_DESTINATIONS: usize = 20;
/// A day.
const LONGEST: i64 = 24 * 60;

/// How far back.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Since {
    /// Minutes, 1 to 1,440.
    minutes: Option<i64>,
}

/// What is going on.
#[derive(Debug, Serialize, ToSchema)]
pub struct Now {
    /// When this was, in milliseconds since 1970.
    pub at: Millis,
    /// Since when rates and destinations are.
    pub since: Millis,
    /// Runs that a runner has, oldest first, at most 100.
    pub running: Vec<RunView>,
    /// Runs that wait.
    pub waiting: i64,
    /// How long each of `rates` is, in milliseconds.
    pub rate_ms: Millis,
    /// Flows by time, oldest first; stretches in which nothing happened are left out.
    pub rates: Vec<FlowRate>,
    /// Destinations with most flows, of the newest 5,000.
    pub top: Vec<Destination>,
    /// Names and addresses with most denials, of the same flows.
    pub denied: Vec<Destination>,
}

/// What is going on now.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/now", tag = "runs",
    params(("workspace" = String, Path), ("minutes" = Option<i64>, Query)), responses((status = 200, body = Now)))]
pub async fn read(
    State(app): State<App>,
    caller: Caller,
    Asked(asked): Asked<Since>,
) -> Result<Json<Now>, Problem> {
    let minutes = asked.minutes.unwrap_or(15);
    if !(1..=LONGEST).contains(&minutes) {
        return Err(Problem::invalid("minutes", format!("1 to {LONGEST}")));
    }
    let (workspace, store, at) = (&caller.workspace()?.id, &app.store, clock::now());
    let since = at - minutes * MINUTE;
    let running = store.live_runs(workspace, MOST_RUNS).await?;
    let all = store
        .recent_destinations(workspace, since, MOST_FLOWS, MOST_FLOWS)
        .await?;
    let (denied, mut top): (Vec<_>, Vec<_>) = all.into_iter().partition(|d| d.outcome == "denied");
    top.truncate(MOST_DESTINATIONS);
    Ok(Json(Now {
        at,
        since,
        running: running.into_iter().map(view).collect(),
        waiting: store.waiting_runs(workspace).await?,
        rate_ms: RATE,
        rates: store
            .flow_rates(workspace, since - since.rem_euclid(RATE))
            .await?,
        top,
        denied: denied.into_iter().take(MOST_DESTINATIONS).collect(),
    }))
}
