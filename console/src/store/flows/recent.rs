//! The newest flows of a workspace, whatever run they are of.
//!
//! Flows have no order of their own across runs but their time, so that and the row's key are where a page begins. What
//! is looked for is looked for in so many of the newest only ([`LOOKED_AT`]): a word that hardly ever occurs must not
//! read everything that the workspace ever kept.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Flow, FlowFilter, Store, StoreError, on};
use crate::clock::Millis;

/// Flows that a filter is tried on.
const LOOKED_AT: i64 = 20_000;

/// A flow, and whose it was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct RecentFlow {
    /// The run.
    pub run: String,
    /// What the run is called.
    pub run_name: String,
    /// The run's job, if it is of one.
    pub job: Option<String>,
    /// What it was.
    #[serde(flatten)]
    pub flow: Flow,
}

macro_rules! from_row {
    ($row:path) => {
        impl<'r> sqlx::FromRow<'r, $row> for RecentFlow {
            fn from_row(row: &'r $row) -> Result<Self, sqlx::Error> {
                use sqlx::Row;
                Ok(Self {
                    run: row.try_get("run_id")?,
                    run_name: row.try_get("run_name")?,
                    job: row.try_get("job_id")?,
                    flow: Flow::from_row(row)?,
                })
            }
        }
    };
}
from_row!(sqlx::sqlite::SqliteRow);
from_row!(sqlx::postgres::PgRow);

/// Where a page begins: below this flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowPlace {
    /// Its time.
    pub at: Millis,
    /// Its run.
    pub run: String,
    /// Its number.
    pub seq: i64,
}

impl FlowPlace {
    /// Above everything.
    pub const fn newest() -> Self {
        Self {
            at: Millis::MAX,
            run: String::new(),
            seq: 0,
        }
    }

    /// From what [`FlowPlace::text`] made.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (at, seq, run) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            at: at.parse().ok()?,
            seq: seq.parse().ok()?,
            run: run.to_owned(),
        })
    }

    /// As a cursor.
    pub fn text(&self) -> String {
        format!("{}.{}.{}", self.at, self.seq, self.run)
    }
}

impl RecentFlow {
    /// Where it is.
    pub fn place(&self) -> FlowPlace {
        FlowPlace {
            at: self.flow.at,
            run: self.run.clone(),
            seq: self.flow.seq,
        }
    }
}

impl Store {
    /// The newest flows of a workspace below one of them, newest first.
    pub async fn recent_flows(
        &self,
        workspace: &str,
        filter: FlowFilter<'_>,
        below: &FlowPlace,
        most: i64,
    ) -> Result<Vec<RecentFlow>, StoreError> {
        let pattern = format!("%{}%", crate::store::literal(&filter.text.to_lowercase()));
        let all = filter.text.is_empty() && filter.outcome.is_empty() && filter.job.is_empty();
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT newest.*, runs.job_name AS run_name, runs.job_id FROM (SELECT run_id, seq, at, outcome, flow, is_open, door, \
             protocol, name, address, port, upstream, class, http, up, down, duration_ms, ending, reason, policy, layer, file, \
             line, commit_id, times FROM flows WHERE workspace_id = $1 AND at <= $2 \
             AND (at < $2 OR run_id < $3 OR (run_id = $3 AND seq < $4)) \
             ORDER BY at DESC, run_id DESC, seq DESC LIMIT $5) AS newest JOIN runs ON runs.id = newest.run_id \
             WHERE ($6 = '' OR newest.outcome = $6) AND ($7 = '%%' OR lower(newest.name) LIKE $7 ESCAPE '!' \
             OR newest.address LIKE $7 ESCAPE '!' OR newest.upstream LIKE $7 ESCAPE '!' OR newest.reason LIKE $7 ESCAPE '!' \
             OR lower(runs.job_name) LIKE $7 ESCAPE '!') AND ($9 = '' OR runs.job_id = $9) ORDER BY newest.at DESC, newest.run_id DESC, newest.seq DESC LIMIT $8")
            .bind(workspace).bind(below.at).bind(&below.run).bind(below.seq)
            .bind(if all { most } else { LOOKED_AT })
            .bind(filter.outcome).bind(&pattern).bind(most).bind(filter.job).fetch_all(pool).await)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{each, workspace};

    /// Runs of a workspace, each with flows of the same times, written as a runner's would be.
    async fn seed(store: &Store, place: &str, runs: &[&str], flows: i64) {
        for run in runs {
            on!(store, pool => sqlx::query("INSERT INTO runs (id, workspace_id, job_name, spec, state, cause, attempt, fence, \
                queued_at, output_bytes, output_kept, flows_kept, flows_dropped, denied, up, down) \
                VALUES ($1, $2, $3, '{}', 'succeeded', 'person', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0)")
                .bind(run).bind(place).bind(format!("run {run}")).execute(pool).await.map(|_| ())).unwrap();
            for seq in 1..=flows {
                on!(store, pool => sqlx::query("INSERT INTO flows (run_id, workspace_id, seq, at, outcome, is_open, door, \
                    protocol, name, port, up, down, reason, times) VALUES ($1, $2, $3, $4, $5, $6, 'tcp', 'tcp', $7, 443, 0, 0, $8, 1)")
                    .bind(run).bind(place).bind(seq).bind(1_000 + seq / 2)
                    .bind(if seq % 3 == 0 { "denied" } else { "permitted" }).bind(false)
                    .bind(format!("n{seq}.example")).bind((seq % 3 == 0).then_some("name_not_allowed"))
                    .execute(pool).await.map(|_| ())).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn flows_of_all_runs_come_newest_first_each_once_and_no_other_workspaces() {
        each(async |store| {
            let (place, other) = (workspace(&store).await, workspace(&store).await);
            seed(&store, &place, &["a", "b"], 30).await;
            seed(&store, &other, &["x"], 5).await;
            let mut seen = Vec::new();
            let mut below = FlowPlace::newest();
            loop {
                let page = store
                    .recent_flows(&place, FlowFilter::default(), &below, 7)
                    .await
                    .unwrap();
                let Some(last) = page.last() else { break };
                below = FlowPlace::parse(&last.place().text()).unwrap();
                seen.extend(
                    page.into_iter()
                        .map(|one| (one.flow.at, one.run, one.flow.seq)),
                );
            }
            let mut sorted = seen.clone();
            sorted.sort();
            sorted.reverse();
            sorted.dedup();
            assert_eq!((seen.len(), &seen), (60, &sorted));
            assert!(seen.iter().all(|(_, run, _)| run != "x"));
        })
        .await;
    }

    #[tokio::test]
    async fn what_is_looked_for_is_found_by_outcome_name_and_run() {
        each(async |store| {
            let place = workspace(&store).await;
            seed(&store, &place, &["a", "b"], 30).await;
            let found = async |outcome, text| {
                let filter = FlowFilter {
                    outcome,
                    text,
                    job: "",
                };
                store
                    .recent_flows(&place, filter, &FlowPlace::newest(), 200)
                    .await
                    .unwrap()
            };
            let denied = found("denied", "").await;
            assert_eq!(denied.len(), 20);
            assert!(
                denied
                    .iter()
                    .all(|one| one.flow.reason.as_deref() == Some("name_not_allowed"))
            );
            assert_eq!(found("", "N7.EXAMPLE").await.len(), 2);
            let named = found("", "run a").await;
            assert!(
                named.len() == 30
                    && named
                        .iter()
                        .all(|one| one.run == "a" && one.run_name == "run a")
            );
            // what people type is no pattern
            assert_eq!(found("", "%").await.len(), 0);
        })
        .await;
    }

    #[test]
    fn a_cursor_is_what_a_page_said_or_nothing() {
        for text in ["", "1", "1.2", "x.2.r", "1.x.r", "99999999999999999999.1.r"] {
            assert_eq!(FlowPlace::parse(text), None, "{text}");
        }
        let at = FlowPlace {
            at: 5,
            run: "r.s".into(),
            seq: 7,
        };
        assert_eq!(FlowPlace::parse(&at.text()), Some(at));
    }
}
