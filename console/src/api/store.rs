//! The store as its operators see it: how large it is, what it gains each day, how long it keeps what.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::clock::{self, DAY, Millis};
use crate::server::app::App;
use crate::server::problem::Problem;
use crate::settings::Retention;

/// As far as growth is shown.
const SHOWN: Millis = 30 * DAY;

/// The store.
#[derive(Debug, Serialize, ToSchema)]
pub struct StoreView {
    /// `sqlite` or `postgres`.
    pub engine: String,
    /// Bytes of all of it.
    pub bytes: i64,
    /// Runs that are kept.
    pub runs: i64,
    /// Bytes that runs printed and that are kept.
    pub output_bytes: i64,
    /// Flows that are kept.
    pub flows: i64,
    /// When the oldest run that is kept was over, in milliseconds since 1970.
    pub oldest_run: Option<Millis>,
    /// What the last 30 days brought; days without a run are left out.
    pub days: Vec<DayView>,
    /// How long things are kept.
    pub retention: RetentionView,
}

/// What a day brought.
#[derive(Debug, Serialize, ToSchema)]
pub struct DayView {
    /// Its beginning (UTC), in milliseconds since 1970.
    pub at: Millis,
    /// Runs that ended.
    pub runs: i64,
    /// Bytes that they printed and that are kept.
    pub output_bytes: i64,
    /// Flows that are kept.
    pub flows: i64,
}

/// Days that things are kept; `console.retention` of the configuration sets them.
#[derive(Debug, Serialize, ToSchema)]
pub struct RetentionView {
    /// Runs after their end.
    pub runs: i64,
    /// What they printed.
    pub output: i64,
    /// Where they went.
    pub flows: i64,
    /// What was sent to whom.
    pub deliveries: i64,
    /// What readers of the event stream can go back to.
    pub events: i64,
    /// The audit log; `null`: it is never forgotten.
    pub audit: Option<i64>,
}

impl RetentionView {
    const fn of(retention: Retention) -> Self {
        Self {
            runs: retention.runs / DAY,
            output: retention.output / DAY,
            flows: retention.flows / DAY,
            deliveries: retention.deliveries / DAY,
            events: retention.events / DAY,
            audit: None,
        }
    }
}

/// How large the store is, how it grows, and how long it keeps what.
#[utoipa::path(get, path = "/api/v1/store", tag = "store", responses((status = 200, body = StoreView)))]
pub async fn read(State(app): State<App>) -> Result<Json<StoreView>, Problem> {
    let held = app.store.held().await?;
    let days = app.store.days(clock::now() - SHOWN).await?;
    let days = days.into_iter().map(|day| DayView {
        at: day.at,
        runs: day.runs,
        output_bytes: day.output_bytes,
        flows: day.flows,
    });
    Ok(Json(StoreView {
        engine: app.store.engine().to_owned(),
        bytes: app.store.size().await?,
        runs: held.runs,
        output_bytes: held.output_bytes,
        flows: held.flows,
        oldest_run: held.oldest,
        days: days.collect(),
        retention: RetentionView::of(app.config.retention),
    }))
}
