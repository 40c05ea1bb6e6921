//! How a run comes into the queue: from a trigger, or as another attempt.

use crate::clock::{Millis, id};
use crate::jobs::spec::{JobSpec, Lane};
use crate::store::change::Effect;
use crate::store::within::Within;
use crate::store::{Lock, Store, StoreError, change};

/// Runs of one workspace that wait; further ones are refused.
pub const MOST_WAITING: i64 = 1_000;

/// Why there is a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Somebody asked for it.
    Person,
    /// A token did.
    Token,
    /// Its time had come.
    Schedule,
    /// A webhook was called.
    Webhook,
    /// The attempt before failed.
    Retry,
}

impl Cause {
    /// As the store and the API write it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Token => "token",
            Self::Schedule => "schedule",
            Self::Webhook => "webhook",
            Self::Retry => "retry",
        }
    }
}

/// A run to be.
#[derive(Clone, Copy, Debug)]
pub struct NewRun<'a> {
    /// Where.
    pub workspace: &'a str,
    /// Of which job, if of one.
    pub job: Option<&'a str>,
    /// The job's name, or what else to call it.
    pub name: &'a str,
    /// What to run; from here on it does not change.
    pub spec: &'a JobSpec,
    /// Why.
    pub cause: Cause,
    /// Who asked for it.
    pub by: Option<&'a str>,
    /// For which time of the schedule.
    pub slot: Option<Millis>,
    /// Which attempt, from 1.
    pub attempt: i64,
    /// The run that it is another attempt of.
    pub retry_of: Option<&'a str>,
    /// What the trigger sent.
    pub input: Option<&'a [u8]>,
    /// Not before.
    pub ready_at: Millis,
}

/// What became of a run to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Submitted {
    /// It waits.
    Queued(String),
    /// Another one was there: it is over before it began.
    Skipped(String),
    /// This time of the schedule has its run already.
    Fired,
    /// Too many wait.
    Full,
}

impl Effect for Submitted {
    fn changed(&self) -> bool {
        matches!(self, Self::Queued(_) | Self::Skipped(_))
    }
}

/// Entering the queue, in a transaction that excludes others of [`Lock::Queue`].
pub(in crate::store) trait Enter {
    /// Makes the rows of a run.
    async fn enter(&mut self, new: &NewRun<'_>, now: Millis) -> Result<Submitted, sqlx::Error>;
}

macro_rules! enter {
    ($engine:ty) => {
        impl Enter for sqlx::Transaction<'_, $engine> {
            async fn enter(
                &mut self,
                new: &NewRun<'_>,
                now: Millis,
            ) -> Result<Submitted, sqlx::Error> {
                let id = id();
                let lane = new.spec.lane(new.workspace, new.job.unwrap_or(&id));
                if new.cause != Cause::Retry {
                    let waiting: i64 = sqlx::query_scalar(WAITING)
                        .bind(new.workspace)
                        .fetch_one(&mut **self)
                        .await?;
                    if waiting >= MOST_WAITING {
                        return Ok(Submitted::Full);
                    }
                }
                let there: i64 = sqlx::query_scalar("SELECT count(*) FROM queue WHERE lane = $1")
                    .bind(&lane.name)
                    .fetch_one(&mut **self)
                    .await?;
                let skipped = lane.skips && there > 0;
                let spec = serde_json::to_string(new.spec)
                    .map_err(|e| sqlx::Error::Encode(Box::new(e)))?;
                let made = sqlx::query(INSERT)
                    .bind(&id)
                    .bind(new.workspace)
                    .bind(new.job)
                    .bind(new.name)
                    .bind(if skipped { "skipped" } else { "queued" })
                    .bind(skipped.then_some("overlap"))
                    .bind(new.cause.word())
                    .bind(new.by)
                    .bind(new.slot)
                    .bind(new.attempt)
                    .bind(new.retry_of)
                    .bind(spec)
                    .bind(new.input)
                    .bind(now)
                    .bind(skipped.then_some(now))
                    .execute(&mut **self)
                    .await?;
                if made.rows_affected() == 0 {
                    return Ok(Submitted::Fired);
                }
                if skipped {
                    return Ok(Submitted::Skipped(id));
                }
                let Lane { name, most, .. } = lane;
                sqlx::query(QUEUE)
                    .bind(&id)
                    .bind(new.workspace)
                    .bind(name)
                    .bind(most)
                    .bind(new.ready_at)
                    .execute(&mut **self)
                    .await?;
                Ok(Submitted::Queued(id))
            }
        }
    };
}

const WAITING: &str = "SELECT count(*) FROM queue WHERE workspace_id = $1 AND state = 'queued'";

const INSERT: &str = "INSERT INTO runs (id, workspace_id, job_id, job_name, state, reason, cause, caused_by, slot, attempt, \
    retry_of, spec, input, queued_at, ended_at, fence, output_bytes, output_kept, flows_kept, flows_dropped, denied, up, down) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, 0, 0, 0, 0, 0, 0, 0, 0) \
    ON CONFLICT (job_id, slot) DO NOTHING";

const QUEUE: &str = "INSERT INTO queue (run_id, workspace_id, lane, lane_most, ready_at, state, runner_id, fence, lease_until, \
    claims, output_next, output_kept, output_rows, flow_seq, flows_kept, flows_dropped, denied, up, down, step_seq, steps_kept) \
    VALUES ($1, $2, $3, $4, $5, 'queued', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)";

enter!(sqlx::Sqlite);
enter!(sqlx::Postgres);

/// Enters a run in a transaction that excludes others of [`Lock::Queue`], and tells it.
macro_rules! enter_told {
    ($tx:ident, $new:expr, $now:expr) => {{
        let submitted = $crate::store::queue::Enter::enter(&mut $tx, $new, $now).await?;
        let entered = match &submitted {
            Submitted::Queued(run) => Some((run, "queued", None)),
            Submitted::Skipped(run) => Some((run, "skipped", Some("overlap"))),
            Submitted::Fired | Submitted::Full => None,
        };
        if let Some((run, state, reason)) = entered {
            let told = $crate::store::queue::told(run, state, reason);
            $crate::store::change::about(format!("run={run}"));
            let topics = (
                $crate::store::runs::topic($new.workspace, run),
                $crate::store::runs::workspace_topic($new.workspace),
            );
            $tx.tell(
                &[(&topics.0, "state", &told), (&topics.1, "run", &told)],
                $now,
            )
            .await?;
        }
        submitted
    }};
}
pub(in crate::store) use enter_told;

impl Store {
    /// Submits a run.
    pub async fn submit_run(&self, new: &NewRun<'_>, now: Millis) -> Result<Submitted, StoreError> {
        Ok(change!(self, Lock::Queue, tx => { enter_told!(tx, new, now) }))
    }
}
