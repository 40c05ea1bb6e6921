//! Forgets what is over: sessions, tokens, links, counted attempts, and what `console.retention` no longer keeps.
//!
//! A pass forgets a bounded number of rows, each few in a transaction of their own, and between two of them others have as
//! long to write; what is left then is the next pass's, which comes sooner. Failure stance: what cannot be forgotten now is forgotten later.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::app::App;
use crate::clock::{self, DAY, Millis};
use crate::store::forget::Passing;
use crate::store::{StoreError, replays};

/// Nothing depends on it being sooner: what is over is not found anyway.
const EVERY: Duration = Duration::from_mins(10);
/// Where there is more than a pass may forget.
const SOON: Duration = Duration::from_secs(5);
/// Charts look no further back.
const RATES: Millis = 7 * DAY;
/// Runs that are forgotten, or forgotten something of, in one transaction: others want to write, too.
const AT_ONCE: i64 = 20;
/// Such transactions of one kind in a pass.
const STEPS: u32 = 50;
/// What is kept for a while after it happened.
const AGING: [Passing; 6] = [
    Passing::Attempts,
    Passing::Answers,
    Passing::Deliveries,
    Passing::FlowRates,
    Passing::Events,
    Passing::DeniedNames,
];

/// Whether a pass left something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// All is done.
    Nothing,
    /// There is more.
    More,
}

/// Until the console stops.
pub async fn keep_tidy(app: App) {
    loop {
        let left = tidy(&app, clock::now()).await.unwrap_or_else(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "forgetting what is over"
            );
            Left::Nothing
        });
        sleep(if left == Left::More { SOON } else { EVERY }).await;
    }
}

/// A pass.
pub async fn tidy(app: &App, now: Millis) -> Result<Left, StoreError> {
    let mut left = Left::Nothing;
    let kinds = Passing::ENDING.into_iter().chain(AGING);
    let kinds = kinds.map(Kind::Passing);
    for kind in kinds.chain([Kind::Runs, Kind::Output, Kind::Flows]) {
        let mut steps = 0;
        loop {
            let begun = Instant::now();
            if kind.step(app, now).await? == 0 {
                break;
            }
            steps += 1;
            if steps == STEPS {
                left = Left::More;
                break;
            }
            // as long as it kept others from writing it lets them
            sleep(begun.elapsed()).await;
        }
    }
    Ok(left)
}

/// What is forgotten in steps.
#[derive(Clone, Copy)]
enum Kind {
    Passing(Passing),
    Runs,
    Output,
    Flows,
}

impl Kind {
    /// Forgets some; 0: nothing is left.
    async fn step(self, app: &App, now: Millis) -> Result<u64, StoreError> {
        let (store, kept) = (&app.store, app.config.retention);
        match self {
            Self::Passing(what) => {
                let keeps = match what {
                    Passing::Attempts => DAY,
                    Passing::Answers => replays::KEPT,
                    Passing::FlowRates => RATES,
                    Passing::Deliveries => kept.deliveries,
                    Passing::Events => kept.events,
                    Passing::Sessions
                    | Passing::Tokens
                    | Passing::OwnerLinks
                    | Passing::Codes
                    | Passing::SignIns
                    | Passing::DeniedNames => 0,
                };
                store.forget(what, now - keeps).await
            }
            Self::Runs => store.forget_runs(now - kept.runs, AT_ONCE).await,
            Self::Output => store.forget_output(now - kept.output, AT_ONCE).await,
            Self::Flows => store.forget_flows(now - kept.flows, AT_ONCE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::testing::Console;
    use crate::settings::{ConsoleConfig, Retention};
    use crate::store::on;
    use crate::store::testing::{each, workspace};

    const MANY: &str = "INSERT INTO runs (id, workspace_id, job_name, state, cause, attempt, spec, queued_at, ended_at, fence, \
        output_bytes, output_kept, flows_kept, flows_dropped, denied, up, down) \
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
        SELECT CAST(1000000 + i AS TEXT), $1, 'j', 'succeeded', 'person', 1, '{}', 0, $2, 0, 0, 0, 0, 0, 0, 0, 0 FROM n";

    #[tokio::test]
    async fn a_pass_forgets_so_many_and_the_settings_say_what() {
        each(async |store| {
            let retention = Retention {
                runs: 10 * DAY,
                ..Retention::default()
            };
            let config = ConsoleConfig {
                retention,
                ..ConsoleConfig::default()
            };
            let w = workspace(&store).await;
            on!(&store, pool => sqlx::query(MANY).bind(&w).bind(DAY).execute(pool).await.map(|_| ())).unwrap();
            let console = Console::with(store, config);
            let runs = async || console.app.store.held().await.unwrap().runs;
            // not old enough
            assert_eq!(tidy(&console.app, 11 * DAY).await.unwrap(), Left::Nothing);
            assert_eq!(runs().await, 1500);
            assert_eq!(tidy(&console.app, 11 * DAY + 1).await.unwrap(), Left::More);
            assert_eq!(runs().await, 500);
            assert_eq!(tidy(&console.app, 11 * DAY + 1).await.unwrap(), Left::Nothing);
            assert_eq!(runs().await, 0);
        })
        .await;
    }
}
