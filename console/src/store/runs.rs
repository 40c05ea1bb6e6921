//! Runs as they are read: lists of a workspace, one run, what it ran, and forgetting old ones.

use super::{Store, StoreError, on, row};
use crate::clock::Millis;

/// The topic of a run's own events: `state`, `output`, `flows`, `steps`.
pub fn topic(workspace: &str, run: &str) -> String {
    format!("workspace/{workspace}/run/{run}")
}

/// The topic of what changes in a workspace: `run`, `job`.
pub fn workspace_topic(workspace: &str) -> String {
    format!("workspace/{workspace}")
}

row! {
    /// A run.
    pub struct Run {
        /// Its id.
        pub id: String,
        /// In which workspace.
        pub workspace_id: String,
        /// Of which job, if of one; the job may be gone.
        pub job_id: Option<String>,
        /// What the job was called.
        pub job_name: String,
        /// `queued`, `claimed`, `preparing`, `running`, `succeeded`, `failed`, `timed_out`, `cancelled`, `skipped`, `lost`.
        pub state: String,
        /// Why it ended so, by a word that does not change.
        pub reason: Option<String>,
        /// Why, for people.
        pub message: Option<String>,
        /// What the command exited with.
        pub exit_code: Option<i64>,
        /// Why there is this run.
        pub cause: String,
        /// Who asked for it.
        pub caused_by: Option<String>,
        /// For which time of the schedule.
        pub slot: Option<Millis>,
        /// Which attempt, from 1.
        pub attempt: i64,
        /// The run that it is another attempt of.
        pub retry_of: Option<String>,
        /// Who has, or had, it.
        pub runner_id: Option<String>,
        /// When it was submitted.
        pub queued_at: Millis,
        /// When a runner took it.
        pub claimed_at: Option<Millis>,
        /// When its command started.
        pub started_at: Option<Millis>,
        /// When it was over.
        pub ended_at: Option<Millis>,
        /// Since when somebody wants it to end.
        pub cancel_at: Option<Millis>,
        /// Bytes of output.
        pub output_bytes: i64,
        /// Of them, kept.
        pub output_kept: i64,
        /// Flows and denials that are kept.
        pub flows_kept: i64,
        /// Further ones.
        pub flows_dropped: i64,
        /// Denials.
        pub denied: i64,
        /// Bytes from the sandbox.
        pub up: i64,
        /// Bytes to it.
        pub down: i64,
    }
}

/// Every column, for [`Run`]; of a run that is not over the queue's row has the counters.
macro_rules! runs_where {
    ($rest:literal) => {
        concat!(
            "SELECT r.id, r.workspace_id, r.job_id, r.job_name, r.state, r.reason, r.message, r.exit_code, r.cause, \
             r.caused_by, r.slot, r.attempt, r.retry_of, r.runner_id, r.queued_at, r.claimed_at, r.started_at, r.ended_at, \
             q.cancel_at, COALESCE(q.output_next, r.output_bytes) AS output_bytes, \
             COALESCE(q.output_kept, r.output_kept) AS output_kept, COALESCE(q.flows_kept, r.flows_kept) AS flows_kept, \
             COALESCE(q.flows_dropped, r.flows_dropped) AS flows_dropped, COALESCE(q.denied, r.denied) AS denied, \
             COALESCE(q.up, r.up) AS up, COALESCE(q.down, r.down) AS down \
             FROM runs r LEFT JOIN queue q ON q.run_id = r.id WHERE ",
            $rest
        )
    };
}

/// Which runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunFilter<'a> {
    /// Of this job; empty: of any.
    pub job: &'a str,
    /// In this state; empty: in any.
    pub state: &'a str,
}

impl Store {
    /// A run of a workspace.
    pub async fn run(&self, workspace: &str, run: &str) -> Result<Option<Run>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(runs_where!("r.id = $1 AND r.workspace_id = $2"))
            .bind(run).bind(workspace).fetch_optional(pool).await)?,
        )
    }

    /// A run, wherever it is.
    pub(super) async fn run_by_id(&self, run: &str) -> Result<Option<Run>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(runs_where!("r.id = $1")).bind(run).fetch_optional(pool).await)?,
        )
    }

    /// What a run ran, and under what, both JSON.
    pub async fn run_spec(
        &self,
        workspace: &str,
        run: &str,
    ) -> Result<Option<(String, Option<String>)>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as("SELECT spec, facts FROM runs WHERE id = $1 AND workspace_id = $2")
            .bind(run).bind(workspace).fetch_optional(pool).await)?,
        )
    }

    /// What a run's trigger sent.
    pub async fn run_input(
        &self,
        workspace: &str,
        run: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let found: Option<Option<Vec<u8>>> = on!(self, pool => sqlx::query_scalar(
            "SELECT input FROM runs WHERE id = $1 AND workspace_id = $2")
            .bind(run).bind(workspace).fetch_optional(pool).await)?;
        Ok(found.flatten())
    }

    /// Runs of a workspace before an id (empty: from the newest), newest first. One text for each filter, so that each
    /// finds its index.
    pub async fn runs(
        &self,
        workspace: &str,
        filter: RunFilter<'_>,
        before: &str,
        most: i64,
    ) -> Result<Vec<Run>, StoreError> {
        // ids are hexadecimal: everything is before this
        let before = if before.is_empty() { "g" } else { before };
        let statement = match (filter.job.is_empty(), filter.state.is_empty()) {
            (true, true) => runs_where!(
                "r.workspace_id = $1 AND $2 = '' AND $3 = '' AND r.id < $4 ORDER BY r.id DESC LIMIT $5"
            ),
            (true, false) => runs_where!(
                "r.workspace_id = $1 AND $2 = '' AND r.state = $3 AND r.id < $4 ORDER BY r.id DESC LIMIT $5"
            ),
            (false, true) => runs_where!(
                "r.workspace_id = $1 AND r.job_id = $2 AND $3 = '' AND r.id < $4 ORDER BY r.id DESC LIMIT $5"
            ),
            (false, false) => runs_where!(
                "r.workspace_id = $1 AND r.job_id = $2 AND r.state = $3 AND r.id < $4 ORDER BY r.id DESC LIMIT $5"
            ),
        };
        Ok(on!(self, pool => sqlx::query_as(statement)
            .bind(workspace).bind(filter.job).bind(filter.state).bind(before).bind(most).fetch_all(pool).await)?)
    }

    /// When the newest but `n` - 1 run of a job was submitted.
    pub async fn nth_newest_run(&self, job: &str, n: i64) -> Result<Option<Millis>, StoreError> {
        Ok(on!(self, pool => sqlx::query_scalar(
            "SELECT queued_at FROM runs WHERE job_id = $1 ORDER BY id DESC LIMIT 1 OFFSET $2")
            .bind(job).bind(n - 1).fetch_optional(pool).await)?)
    }

    /// Runs of a workspace that are not over, oldest first.
    pub async fn live_runs(&self, workspace: &str, most: i64) -> Result<Vec<Run>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(runs_where!(
            "q.workspace_id = $1 AND q.state <> 'queued' ORDER BY r.id LIMIT $2"))
            .bind(workspace).bind(most).fetch_all(pool).await)?)
    }

    /// How many runs of a workspace wait.
    pub async fn waiting_runs(&self, workspace: &str) -> Result<i64, StoreError> {
        Ok(on!(self, pool => sqlx::query_scalar(
            "SELECT count(*) FROM queue WHERE workspace_id = $1 AND state = 'queued'")
            .bind(workspace).fetch_one(pool).await)?)
    }

    /// The run of the same job before this one that came to its end in a sandbox.
    pub async fn run_before(&self, run: &Run) -> Result<Option<Run>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(runs_where!(
            "r.workspace_id = $1 AND r.job_id = $2 AND r.id < $3 AND r.started_at IS NOT NULL AND r.ended_at IS NOT NULL \
             ORDER BY r.id DESC LIMIT 1"))
            .bind(&run.workspace_id).bind(&run.job_id).bind(&run.id).fetch_optional(pool).await)?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::testing::{each, workspace};
    use super::*;

    const MANY: &str = "INSERT INTO runs (id, workspace_id, job_id, job_name, state, cause, attempt, spec, queued_at, fence, \
        output_bytes, output_kept, flows_kept, flows_dropped, denied, up, down) \
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) \
        SELECT CAST(1000000 + i AS TEXT), $1, CASE WHEN i % 100 = 0 THEN 'rare' ELSE 'often' END, 'j', \
        CASE WHEN i % 1000 = 0 THEN 'failed' ELSE 'succeeded' END, 'person', 1, '{}', i, 0, 0, 0, 0, 0, 0, 0, 0 FROM n";

    #[tokio::test]
    async fn a_hundred_thousand_runs_are_paged_at_once_from_any_place_and_with_any_filter() {
        each(async |store| {
            let workspace = workspace(&store).await;
            on!(&store, pool => sqlx::query(MANY).bind(&workspace).execute(pool).await.map(|_| ()))
                .unwrap();
            on!(&store, pool => sqlx::query("ANALYZE").execute(pool).await.map(|_| ())).unwrap();
            for (state, job, before) in [
                ("", "", ""),
                ("", "", "1060000"),
                ("failed", "", ""),
                ("failed", "", "1060000"),
                ("", "rare", "1060000"),
                ("failed", "rare", "1090000"),
                ("", "often", "1000100"),
            ] {
                let filter = RunFilter { job, state };
                // the best of a few: a busy machine may be slow by itself, a walk through all runs is there every time
                let (mut took, mut page) = (Duration::MAX, Vec::new());
                for _ in 0..3 {
                    let begun = Instant::now();
                    page = store.runs(&workspace, filter, before, 50).await.unwrap();
                    took = took.min(begun.elapsed());
                }
                println!(
                    "{} {state:?} {job:?} before {before:?}: {} runs in {took:?}",
                    store.engine(),
                    page.len()
                );
                assert_eq!(page.len(), 50);
                assert!(
                    page.iter()
                        .all(|run| state.is_empty() || run.state == state)
                );
                assert!(
                    took < Duration::from_millis(500),
                    "{state:?} {job:?} {before:?}: {took:?}"
                );
            }
        })
        .await;
    }
}
