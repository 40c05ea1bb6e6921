//! The newest flows of a workspace, whatever run they are of.
//!
//! Flows have no order of their own across runs but their time, so that and the row's key are where a page begins. What
//! is looked for is looked for in so many of a page only ([`LOOKED_AT`]): a word that hardly ever occurs must not read
//! everything that the workspace ever kept. Such a page says that it is a part, and the next one goes on where it ended.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Flow, FlowFilter, Store, StoreError, on};
use crate::clock::Millis;

/// Flows that an outcome or a text is looked for in, for one page. A job's own flows have an index.
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

/// Some of the newest flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowPage {
    /// Newest first.
    pub items: Vec<RecentFlow>,
    /// Below which the next page begins, if there may be one.
    pub next: Option<FlowPlace>,
    /// Whether fewer were found than asked for because no more were looked at.
    pub partial: bool,
}

/// A workspace's flows below a place: all of them, or a job's. One text for each, so that each finds its index.
macro_rules! flows_below {
    ($columns:literal, $job:literal, $rest:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM flows WHERE workspace_id = $1 AND at <= $2 \
             AND (at < $2 OR run_id < $3 OR (run_id = $3 AND seq < $4)) AND ",
            $job,
            " \
             ORDER BY at DESC, run_id DESC, seq DESC ",
            $rest
        )
    };
}

macro_rules! found {
    ($job:literal) => {
        concat!(
            "SELECT newest.*, runs.job_name AS run_name, runs.job_id FROM (",
            flows_below!(
                "run_id, seq, at, outcome, flow, is_open, door, protocol, name, address, port, upstream, class, http, up, down, \
                 duration_ms, ending, reason, policy, layer, file, line, commit_id, times", $job, "LIMIT $6"),
            ") AS newest JOIN runs ON runs.id = newest.run_id \
             WHERE ($7 = '' OR newest.outcome = $7) AND ($8 = '%%' OR lower(newest.name) LIKE $8 ESCAPE '!' \
             OR newest.address LIKE $8 ESCAPE '!' OR newest.upstream LIKE $8 ESCAPE '!' OR newest.reason LIKE $8 ESCAPE '!' \
             OR lower(runs.job_name) LIKE $8 ESCAPE '!') ORDER BY newest.at DESC, newest.run_id DESC, newest.seq DESC LIMIT $9"
        )
    };
}

/// The last of so many.
macro_rules! last {
    ($job:literal) => {
        flows_below!("at, run_id, seq", $job, "LIMIT 1 OFFSET $6")
    };
}

impl Store {
    /// The newest flows of a workspace below one of them, newest first.
    pub async fn recent_flows(
        &self,
        workspace: &str,
        filter: FlowFilter<'_>,
        below: &FlowPlace,
        most: i64,
    ) -> Result<FlowPage, StoreError> {
        let pattern = format!("%{}%", crate::store::literal(&filter.text.to_lowercase()));
        let every = filter.text.is_empty() && filter.outcome.is_empty();
        let looked_at = if every { most } else { LOOKED_AT };
        let (found, last) = if filter.job.is_empty() {
            (found!("$5 = ''"), last!("$5 = ''"))
        } else {
            (found!("job_id = $5"), last!("job_id = $5"))
        };
        let items: Vec<RecentFlow> = on!(self, pool => sqlx::query_as(found)
            .bind(workspace).bind(below.at).bind(&below.run).bind(below.seq).bind(filter.job).bind(looked_at)
            .bind(filter.outcome).bind(&pattern).bind(most).fetch_all(pool).await)?;
        let full = i64::try_from(items.len()).is_ok_and(|count| count >= most);
        let mut next = items.last().filter(|_| full).map(RecentFlow::place);
        if !full && !every {
            let ended: Option<(Millis, String, i64)> = on!(self, pool => sqlx::query_as(last)
                .bind(workspace).bind(below.at).bind(&below.run).bind(below.seq).bind(filter.job).bind(looked_at - 1)
                .fetch_optional(pool).await)?;
            next = ended.map(|(at, run, seq)| FlowPlace { at, run, seq });
        }
        Ok(FlowPage {
            partial: !full && next.is_some(),
            items,
            next,
        })
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
                assert!(!page.partial);
                let Some(last) = page.items.last() else { break };
                below = FlowPlace::parse(&last.place().text()).unwrap();
                seen.extend(
                    page.items
                        .into_iter()
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
                    .items
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

    /// Flows by the thousand, all newer than those of [`seed`], each with a name of its own.
    async fn flood(store: &Store, place: &str, run: &str, flows: i64) {
        on!(store, pool => sqlx::query("INSERT INTO flows (run_id, workspace_id, seq, at, outcome, is_open, door, protocol, \
            name, port, up, down, times) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $3) \
            SELECT $1, $2, 1000 + i, 100000 + i, 'permitted', $4, 'tcp', 'tcp', 'crowd' || i, 443, 0, 0, 1 FROM n")
            .bind(run).bind(place).bind(flows).bind(false).execute(pool).await.map(|_| ())).unwrap();
    }

    #[tokio::test]
    async fn what_lies_behind_many_others_is_found_by_job_at_once_and_by_text_in_bounded_parts() {
        each(async |store| {
            let place = workspace(&store).await;
            seed(&store, &place, &["a", "b"], 30).await;
            for statement in [
                "UPDATE runs SET job_id = 'rare' WHERE id = 'a'",
                "UPDATE flows SET job_id = 'rare' WHERE run_id = 'a'",
            ] {
                on!(&store, pool => sqlx::query(statement).execute(pool).await.map(|_| ()))
                    .unwrap();
            }
            flood(&store, &place, "b", LOOKED_AT + 500).await;
            let page = async |text, job, below: &FlowPlace| {
                let filter = FlowFilter {
                    outcome: "",
                    text,
                    job,
                };
                store
                    .recent_flows(&place, filter, below, 100)
                    .await
                    .unwrap()
            };
            let rare = page("", "rare", &FlowPlace::newest()).await;
            assert_eq!((rare.items.len(), rare.partial), (30, false));
            assert!(
                rare.items
                    .iter()
                    .all(|one| one.job.as_deref() == Some("rare"))
            );
            assert_eq!(
                page("n7.example", "rare", &FlowPlace::newest())
                    .await
                    .items
                    .len(),
                1
            );
            // behind more than are looked at: told so, and found by whoever goes on
            let first = page("n7.example", "", &FlowPlace::newest()).await;
            assert_eq!((first.items.len(), first.partial), (0, true));
            let rest = page("n7.example", "", &first.next.unwrap()).await;
            assert_eq!(
                (rest.items.len(), rest.partial, rest.next),
                (2, false, None)
            );
            // its twin: a page that is full says where the next one begins, and is no part
            let full = page("crowd", "", &FlowPlace::newest()).await;
            assert_eq!((full.items.len(), full.partial), (100, false));
            assert_eq!(full.next, Some(full.items[99].place()));
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
