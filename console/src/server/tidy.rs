//! Forgets what is over: sessions, tokens, links, counted attempts, old runs, events that no reader goes back to.

use std::time::Duration;

use super::app::App;
use crate::clock::{self, DAY};
use crate::store::{StoreError, replays};

/// Nothing depends on it being sooner: what is over is not found anyway.
const EVERY: Duration = Duration::from_mins(10);
/// What was sent can be looked up for so long.
const DELIVERIES: clock::Millis = 30 * DAY;
/// A reader who was away longer begins anew.
const EVENTS: clock::Millis = 7 * DAY;
/// Runs are kept so long, with what they printed and where they went.
const RUNS: clock::Millis = 90 * DAY;
/// Charts look no further back.
const RATES: clock::Millis = 7 * DAY;
/// Runs that are forgotten in one transaction: others want to write, too.
const AT_ONCE: i64 = 100;

/// Until the console stops.
pub async fn keep_tidy(app: App) {
    let mut turns = tokio::time::interval(EVERY);
    loop {
        turns.tick().await;
        if let Err(error) = tidy(&app).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "forgetting what is over"
            );
        }
    }
}

async fn tidy(app: &App) -> Result<(), StoreError> {
    let now = clock::now();
    app.store.forget_expired(now, now - DAY).await?;
    app.store.forget_sign_ins(now).await?;
    app.store.forget_deliveries(now - DELIVERIES).await?;
    app.store.forget_answers(now - replays::KEPT).await?;
    while app.store.forget_runs(now - RUNS, AT_ONCE).await? > 0 {}
    app.store.forget_flow_rates(now - RATES).await?;
    app.store.forget_events(now - EVENTS).await.map(|_| ())
}
