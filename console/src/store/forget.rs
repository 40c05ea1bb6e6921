//! How what is old leaves the store: so many rows in a transaction, for others want to write, too.
//!
//! SQLite has one writer at a time, so the longest that a change of somebody waits for this is what one step takes
//! ([`ROWS`] and [`BYTES`] bound it). What is left of a run between two steps is on its way out and says nothing of it.

use super::{Store, StoreError, on, transact};
use crate::clock::Millis;

/// Rows of one table that one step forgets.
pub const ROWS: i64 = 1_000;
/// Output that one step forgets: a long row is many pages.
const BYTES: i64 = 4 << 20;

/// What is forgotten by its time alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passing {
    /// Sessions that have ended.
    Sessions,
    /// Tokens that have ended.
    Tokens,
    /// Links of a first owner.
    OwnerLinks,
    /// Codes that let programs in.
    Codes,
    /// Sign-ins that nobody has finished.
    SignIns,
    /// Counted attempts.
    Attempts,
    /// Answers to requests that come again.
    Answers,
    /// Deliveries that are over.
    Deliveries,
    /// Sums of flows.
    FlowRates,
    /// Events; their numbers are never used again.
    Events,
    /// Names that jobs were denied which are not there any more: a run's end may be read while its job is removed.
    DeniedNames,
}

/// By a column of time that has an index.
macro_rules! by_time {
    ($table:literal, $key:literal, $old:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE (",
            $key,
            ") IN (SELECT ",
            $key,
            " FROM ",
            $table,
            " WHERE ",
            $old,
            " LIMIT $2)"
        )
    };
}

impl Passing {
    /// Those that are over at a time, by their own end.
    pub const ENDING: [Self; 5] = [
        Self::Sessions,
        Self::Tokens,
        Self::OwnerLinks,
        Self::Codes,
        Self::SignIns,
    ];

    const fn statement(self) -> &'static str {
        match self {
            Self::Sessions => by_time!("sessions", "id", "expires_at <= $1 ORDER BY expires_at"),
            Self::Tokens => by_time!("tokens", "id", "expires_at <= $1 ORDER BY expires_at"),
            Self::OwnerLinks => {
                by_time!(
                    "owner_links",
                    "digest",
                    "expires_at <= $1 ORDER BY expires_at"
                )
            }
            Self::Codes => by_time!("codes", "id", "expires_at <= $1 ORDER BY expires_at"),
            Self::SignIns => by_time!("sign_ins", "state", "expires_at <= $1 ORDER BY expires_at"),
            Self::Attempts => by_time!("attempts", "id", "at <= $1 ORDER BY at"),
            Self::Answers => {
                by_time!(
                    "replays",
                    "actor, key",
                    "created_at <= $1 ORDER BY created_at"
                )
            }
            Self::Deliveries => {
                by_time!(
                    "deliveries",
                    "id",
                    "created_at < $1 AND state <> 'waiting' ORDER BY created_at"
                )
            }
            Self::FlowRates => {
                by_time!(
                    "flow_rates",
                    "workspace_id, starts",
                    "starts < $1 ORDER BY starts"
                )
            }
            Self::Events => by_time!("events", "seq", "at < $1 ORDER BY at"),
            // from one job to the next it is one step in the index
            Self::DeniedNames => {
                "DELETE FROM denied_names WHERE (job_id, name) IN (WITH RECURSIVE j(id) AS (SELECT min(job_id) FROM denied_names \
                 UNION ALL SELECT (SELECT min(job_id) FROM denied_names WHERE job_id > j.id) FROM j WHERE j.id IS NOT NULL) \
                 SELECT d.job_id, d.name FROM j JOIN denied_names d ON d.job_id = j.id \
                 WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = j.id) AND d.first_at <= $1 LIMIT $2)"
            }
        }
    }
}

/// The runs of a step that were over before a time.
macro_rules! over {
    () => {
        "SELECT id FROM runs WHERE ended_at < $1 ORDER BY ended_at, id LIMIT $2"
    };
    ($what:literal) => {
        concat!(
            "SELECT id FROM runs WHERE ended_at < $1 AND ",
            $what,
            " > 0 ORDER BY ended_at, id LIMIT $2"
        )
    };
}

/// Some rows of such runs.
macro_rules! flows_of {
    ($runs:expr) => {
        concat!("DELETE FROM flows WHERE (run_id, seq) IN (SELECT run_id, seq FROM flows WHERE run_id IN (", $runs, ") LIMIT $3)")
    };
}
macro_rules! output_of {
    ($runs:expr) => {
        concat!(
            "DELETE FROM run_output WHERE (run_id, starts) IN (SELECT run_id, starts FROM (SELECT run_id, starts, \
             sum(bytes) OVER (ORDER BY run_id, starts) - bytes AS ahead FROM (SELECT run_id, starts, length(data) AS bytes \
             FROM run_output WHERE run_id IN (", $runs, ") ORDER BY run_id, starts LIMIT $3) AS pieces) AS sized WHERE ahead < $4)"
        )
    };
}

const STEPS_OF_RUNS: &str = concat!(
    "DELETE FROM run_steps WHERE (run_id, seq) IN (SELECT run_id, seq FROM run_steps WHERE run_id IN (",
    over!(),
    ") LIMIT $3)"
);
const RUNS: &str = concat!(
    "DELETE FROM runs WHERE id IN (",
    over!(),
    ") AND NOT EXISTS (SELECT 1 FROM flows WHERE run_id = runs.id) \
     AND NOT EXISTS (SELECT 1 FROM run_output WHERE run_id = runs.id) AND NOT EXISTS (SELECT 1 FROM run_steps WHERE run_id = runs.id)"
);
const PRINTED: &str = concat!(
    "UPDATE runs SET output_kept = 0 WHERE id IN (",
    over!("output_kept"),
    ") \
     AND NOT EXISTS (SELECT 1 FROM run_output WHERE run_id = runs.id)"
);
const WENT: &str = concat!(
    "UPDATE runs SET flows_dropped = flows_dropped + flows_kept, flows_kept = 0 WHERE id IN (",
    over!("flows_kept"),
    ") \
     AND NOT EXISTS (SELECT 1 FROM flows WHERE run_id = runs.id)"
);

/// One step about runs: their rows first, then what is without rows. How many runs there were to forget something of; 0:
/// nothing is left.
macro_rules! step {
    ($store:expr, $before:expr, $most:expr, $runs:expr, output: [$($output:expr)?], rows: [$($rows:expr),*], $last:expr) => {
        transact!($store, tx => {
            let count = concat!("SELECT count(*) FROM (", $runs, ") AS runs");
            let runs: i64 = sqlx::query_scalar(count).bind($before).bind($most).fetch_one(&mut *tx).await?;
            if runs > 0 {
                $(sqlx::query($output).bind($before).bind($most).bind(ROWS).bind(BYTES).execute(&mut *tx).await?;)?
                $(sqlx::query($rows).bind($before).bind($most).bind(ROWS).execute(&mut *tx).await?;)*
                sqlx::query($last).bind($before).bind($most).execute(&mut *tx).await?;
            }
            u64::try_from(runs).unwrap_or_default()
        })
    };
}

impl Store {
    /// Forgets some of what is over since before a time, at most [`ROWS`]; returns how many.
    pub async fn forget(&self, what: Passing, before: Millis) -> Result<u64, StoreError> {
        Ok(on!(self, pool => sqlx::query(what.statement())
            .bind(before).bind(ROWS).execute(pool).await.map(|done| done.rows_affected()))?)
    }

    /// Forgets some of the runs that were over before a time, with all that is kept of them: of at most so many, and
    /// returns of how many.
    pub async fn forget_runs(&self, before: Millis, most: i64) -> Result<u64, StoreError> {
        Ok(
            step!(self, before, most, over!(), output: [output_of!(over!())], rows: [STEPS_OF_RUNS, flows_of!(over!())], RUNS),
        )
    }

    /// Forgets some of what runs printed that were over before a time; of at most so many, and returns of how many.
    pub async fn forget_output(&self, before: Millis, most: i64) -> Result<u64, StoreError> {
        Ok(
            step!(self, before, most, over!("output_kept"), output: [output_of!(over!("output_kept"))], rows: [], PRINTED),
        )
    }

    /// Forgets some of where runs went that were over before a time; of at most so many, and returns of how many. How many
    /// there were stays known, as dropped ones.
    pub async fn forget_flows(&self, before: Millis, most: i64) -> Result<u64, StoreError> {
        Ok(
            step!(self, before, most, over!("flows_kept"), output: [], rows: [flows_of!(over!("flows_kept"))], WENT),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

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

    /// Rows of runs as they are at most, and how they leave.
    #[tokio::test]
    async fn a_step_forgets_a_bounded_number_of_rows_however_many_a_run_has() {
        const FLOWS: i64 = 50_000;
        each(async |store| {
            let w = workspace(&store).await;
            let many = "INSERT INTO flows (run_id, seq, workspace_id, at, outcome, is_open, door, protocol, name, port, up, down, times) \
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $3) \
                SELECT $1, i, $2, i, 'permitted', $4, 'tcp', 'tcp', 'registry.example.com', 443, 0, 0, 1 FROM n";
            for run in ["a", "b"] {
                over(&store, &w, run, DAY).await;
                on!(&store, pool => sqlx::query(many).bind(run).bind(&w).bind(FLOWS).bind(false).execute(pool).await.map(|_| ()))
                    .unwrap();
            }
            let long = vec![7_u8; 3 << 20];
            for starts in 1..=4_i64 {
                let output = "INSERT INTO run_output (run_id, starts, stream, at, data) VALUES ('b', $1, 'out', 0, $2)";
                on!(&store, pool => sqlx::query(output).bind(starts << 22).bind(&long).execute(pool).await.map(|_| ())).unwrap();
            }
            let count = async |table: &'static str| -> i64 {
                let count = match table {
                    "flows" => "SELECT count(*) FROM flows",
                    _ => "SELECT count(*) FROM run_output",
                };
                on!(&store, pool => sqlx::query_scalar(count).fetch_one(pool).await).unwrap()
            };
            let (mut longest, mut there) = (Duration::ZERO, 2 * FLOWS);
            for _ in 0..10 {
                let begun = Instant::now();
                assert_eq!(store.forget_flows(2 * DAY, 20).await.unwrap(), 2);
                longest = longest.max(begun.elapsed());
                let left = count("flows").await;
                assert!((1..=ROWS).contains(&(there - left)), "{there} {left}");
                there = left;
            }
            println!("{}: at most {longest:?} for {ROWS} flows", store.engine());
            assert!(longest < Duration::from_secs(1), "{longest:?}");
            // of output it is bytes that count: two of these rows, and not five
            assert_eq!(count("output").await, 6);
            store.forget_output(2 * DAY, 20).await.unwrap();
            assert_eq!(count("output").await, 2);
            let run = store.run(&w, "b").await.unwrap().unwrap();
            assert!(run.output_kept > 0 && run.flows_kept > 0, "{run:?}");
            // runs go when nothing is left of them
            let mut steps = 0;
            while store.forget_runs(2 * DAY, 20).await.unwrap() > 0 {
                steps += 1;
                assert!(steps <= 2 * FLOWS / ROWS + 2, "it comes to an end");
            }
            assert!(steps >= 80, "{steps}");
            assert_eq!((count("flows").await, count("output").await), (0, 0));
            assert_eq!(store.held().await.unwrap().runs, 0);
        })
        .await;
    }

    #[tokio::test]
    async fn of_what_passes_by_its_time_a_step_takes_no_more_either() {
        each(async |store| {
            let events = "INSERT INTO events (topic, kind, data, at) \
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) SELECT 't', 'k', '{}', i FROM n";
            on!(&store, pool => sqlx::query(events).execute(pool).await.map(|_| ())).unwrap();
            let mut steps = Vec::new();
            loop {
                match store.forget(Passing::Events, 2_401).await.unwrap() {
                    0 => break,
                    some => steps.push(some),
                }
            }
            assert_eq!(steps, [1_000, 1_000, 400]);
            let all = [Passing::Attempts, Passing::Answers, Passing::Deliveries, Passing::FlowRates];
            for what in Passing::ENDING.into_iter().chain(all) {
                assert_eq!(store.forget(what, 1).await.unwrap(), 0, "{what:?}");
            }
        })
        .await;
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
