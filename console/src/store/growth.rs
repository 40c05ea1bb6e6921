//! How large the store is and how it grows, and how what is old leaves it: so many rows at a time, for others write, too.

use super::{Store, StoreError, on, row, transact};
use crate::clock::Millis;

row! {
    /// What runs hold.
    pub struct Held {
        /// How many there are.
        pub runs: i64,
        /// Bytes that they printed and that are kept.
        pub output_bytes: i64,
        /// Flows that are kept.
        pub flows: i64,
        /// When the oldest one was over.
        pub oldest: Option<Millis>,
    }
}

row! {
    /// What a day brought, by the ends of its runs.
    pub struct Day {
        /// Its beginning (UTC).
        pub at: Millis,
        /// Runs.
        pub runs: i64,
        /// Bytes that they printed and that are kept.
        pub output_bytes: i64,
        /// Flows that are kept.
        pub flows: i64,
    }
}

const HELD: &str = "SELECT count(*) AS runs, CAST(COALESCE(sum(output_kept), 0) AS BIGINT) AS output_bytes, \
    CAST(COALESCE(sum(flows_kept), 0) AS BIGINT) AS flows, min(ended_at) AS oldest FROM runs";

const DAYS: &str = "SELECT ended_at / 86400000 * 86400000 AS at, count(*) AS runs, \
    CAST(COALESCE(sum(output_kept), 0) AS BIGINT) AS output_bytes, CAST(COALESCE(sum(flows_kept), 0) AS BIGINT) AS flows \
    FROM runs WHERE ended_at >= $1 GROUP BY ended_at / 86400000 ORDER BY 1";

/// Runs that were over before a time and still have output, or flows.
const PRINTED: &str =
    "SELECT id FROM runs WHERE ended_at < $1 AND output_kept > 0 ORDER BY ended_at, id LIMIT $2";
const WENT: &str =
    "SELECT id FROM runs WHERE ended_at < $1 AND flows_kept > 0 ORDER BY ended_at, id LIMIT $2";

impl Store {
    /// Bytes of the whole store, what is free in it included.
    pub async fn size(&self) -> Result<i64, StoreError> {
        Ok(match self {
            Self::Sqlite(pool) => {
                let pages =
                    "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
                sqlx::query_scalar(pages).fetch_one(pool).await?
            }
            Self::Postgres(pool) => {
                let size = "SELECT pg_database_size(current_database())";
                sqlx::query_scalar(size).fetch_one(pool).await?
            }
        })
    }

    /// What runs hold.
    pub async fn held(&self) -> Result<Held, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(HELD).fetch_one(pool).await)?)
    }

    /// What each day since a time brought; days without a run are left out.
    pub async fn days(&self, since: Millis) -> Result<Vec<Day>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(DAYS).bind(since).fetch_all(pool).await)?)
    }

    /// Forgets what runs printed that were over before a time; of at most so many, and returns of how many.
    pub async fn forget_output(&self, before: Millis, most: i64) -> Result<u64, StoreError> {
        Ok(transact!(self, tx => {
            let runs: Vec<String> = sqlx::query_scalar(PRINTED).bind(before).bind(most).fetch_all(&mut *tx).await?;
            for run in &runs {
                for statement in [
                    "UPDATE runs SET output_kept = 0 WHERE id = $1",
                    "DELETE FROM run_output WHERE run_id = $1",
                ] {
                    sqlx::query(statement).bind(run).execute(&mut *tx).await?;
                }
            }
            runs.len() as u64
        }))
    }

    /// Forgets where runs went that were over before a time; of at most so many, and returns of how many. How many there
    /// were stays known, as dropped ones.
    pub async fn forget_flows(&self, before: Millis, most: i64) -> Result<u64, StoreError> {
        Ok(transact!(self, tx => {
            let runs: Vec<String> = sqlx::query_scalar(WENT).bind(before).bind(most).fetch_all(&mut *tx).await?;
            for run in &runs {
                for statement in [
                    "UPDATE runs SET flows_dropped = flows_dropped + flows_kept, flows_kept = 0 WHERE id = $1",
                    "DELETE FROM flows WHERE run_id = $1",
                ] {
                    sqlx::query(statement).bind(run).execute(&mut *tx).await?;
                }
            }
            runs.len() as u64
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{each, workspace};
    use super::*;
    use crate::clock::DAY;

    const OVER: &str = "INSERT INTO runs (id, workspace_id, job_name, state, cause, attempt, spec, queued_at, ended_at, fence, \
        output_bytes, output_kept, flows_kept, flows_dropped, denied, up, down) \
        VALUES ($1, $2, 'j', 'succeeded', 'person', 1, '{}', 0, $3, 0, 3, 3, 2, 0, 0, 0, 0)";

    /// A run that was over then, with output.
    async fn over(store: &Store, workspace: &str, id: &str, at: Millis) {
        on!(store, pool => sqlx::query(OVER).bind(id).bind(workspace).bind(at).execute(pool).await.map(|_| ()))
            .unwrap();
        let output = "INSERT INTO run_output (run_id, starts, stream, at, data) VALUES ($1, 0, 'out', 0, $2)";
        on!(store, pool => sqlx::query(output).bind(id).bind(&b"abc"[..]).execute(pool).await.map(|_| ()))
            .unwrap();
    }

    #[tokio::test]
    async fn output_and_flows_leave_before_their_run_and_a_few_at_a_time() {
        each(async |store| {
            let w = workspace(&store).await;
            for n in 0..5 {
                over(&store, &w, &format!("old{n}"), DAY + n).await;
            }
            over(&store, &w, "new", 3 * DAY).await;
            let held = store.held().await.unwrap();
            assert_eq!((held.runs, held.output_bytes, held.flows), (6, 18, 12));
            assert_eq!(held.oldest, Some(DAY));
            let days = store.days(0).await.unwrap();
            let days: Vec<_> = days.iter().map(|day| (day.at, day.runs)).collect();
            assert_eq!(days, [(DAY, 5), (3 * DAY, 1)]);
            assert!(store.size().await.unwrap() > 10_000);
            assert_eq!(store.forget_output(2 * DAY, 3).await.unwrap(), 3);
            assert_eq!(store.forget_output(2 * DAY, 3).await.unwrap(), 2);
            assert_eq!(store.forget_output(2 * DAY, 3).await.unwrap(), 0);
            assert_eq!(store.forget_flows(2 * DAY, 100).await.unwrap(), 5);
            assert_eq!(store.forget_flows(2 * DAY, 100).await.unwrap(), 0);
            let held = store.held().await.unwrap();
            assert_eq!((held.runs, held.output_bytes, held.flows), (6, 3, 2));
            assert_eq!(store.output("old1", 0, 100).await.unwrap(), []);
            assert_eq!(store.output("new", 0, 100).await.unwrap().len(), 1);
            let old = store.run(&w, "old1").await.unwrap().unwrap();
            // that it printed and went somewhere stays known
            assert_eq!(
                (old.output_bytes, old.output_kept, old.flows_dropped),
                (3, 0, 2)
            );
        })
        .await;
    }
}
