//! What the networks of a workspace's runs saw lately, of all runs together: for who watches.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::thinking::place;
use crate::server::app::App;
use crate::server::identify::Caller;
use crate::server::input::Asked;
use crate::server::problem::Problem;
use crate::store::flows::{FlowFilter, FlowPlace, RecentFlow};

/// Rows at once.
const MOST: i64 = 500;
/// A text that is looked for, or a cursor, is no longer.
const TEXT: usize = 200;

/// Which flows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lately {
    /// `next` of the page before.
    #[serde(default)]
    cursor: String,
    /// FlowPlace most 500.
    limit: Option<i64>,
    /// Only `permitted`, `denied` or `failed`.
    #[serde(default)]
    outcome: String,
    /// Only what holds this text in name, address, reason or the run's name.
    #[serde(default)]
    q: String,
    /// Only of this job.
    #[serde(default)]
    job: String,
}

/// Flows of all runs.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecentFlows {
    /// Newest first.
    pub items: Vec<RecentFlow>,
    /// The `cursor` of the next page, if there may be one.
    pub next: Option<String>,
    /// Whether older flows were not looked at for this page; the next one goes on there.
    pub partial: bool,
}

/// The newest flows of all runs. With `outcome` or `q` 20,000 flows are looked at for a page.
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/flows", tag = "runs",
    params(("workspace" = String, Path), ("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query),
        ("outcome" = Option<String>, Query), ("q" = Option<String>, Query), ("job" = Option<String>, Query)),
    responses((status = 200, body = RecentFlows)))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(asked): Asked<Lately>,
) -> Result<Json<RecentFlows>, Problem> {
    let limit = asked.limit.unwrap_or(100);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::invalid("limit", format!("1 to {MOST}")));
    }
    if !["", "permitted", "denied", "failed"].contains(&&*asked.outcome) {
        return Err(Problem::invalid("outcome", "permitted, denied or failed"));
    }
    for (field, text) in [("q", &asked.q), ("job", &asked.job)] {
        if text.len() > TEXT || text.contains('\0') {
            return Err(Problem::invalid(field, "a shorter text"));
        }
    }
    let below = if asked.cursor.is_empty() {
        Some(FlowPlace::newest())
    } else {
        FlowPlace::parse(&asked.cursor).filter(|at| at.run.len() <= TEXT && !at.run.contains('\0'))
    };
    let below = below.ok_or_else(|| Problem::invalid("cursor", "what the page before said"))?;
    let filter = FlowFilter {
        outcome: &asked.outcome,
        text: &asked.q,
        job: &asked.job,
    };
    let workspace = &caller.workspace()?.id;
    // what reads much for a page has its place before it begins
    let _place = if filter.outcome.is_empty() && filter.text.is_empty() {
        None
    } else {
        Some(place(&app, &caller)?)
    };
    let page = app
        .store
        .recent_flows(workspace, filter, &below, limit)
        .await?;
    Ok(Json(RecentFlows {
        next: page.next.as_ref().map(FlowPlace::text),
        partial: page.partial,
        items: page.items,
    }))
}
