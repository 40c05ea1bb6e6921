//! How a run ends: its runner says so, somebody cancels it, or nobody hears of its runner any more. Counters move from the
//! queue's row to the run's; what the job's retry rule says follows in the same transaction.

use super::entering::{Cause, Enter, NewRun, Submitted};
use super::{HOLD, Held, Hold, told};
use crate::clock::Millis;
use crate::jobs::spec::JobSpec;
use crate::store::change::Effect;
use crate::store::flows::plain;
use crate::store::runs::{topic, workspace_topic};
use crate::store::within::Within;
use crate::store::{Lock, Store, StoreError, change, on, row, transact};

/// A run that is claimed and dropped this often has something that ends its runners.
const MOST_CLAIMS: i64 = 5;

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End<'a> {
    /// `succeeded`, `failed`, `timed_out`, `cancelled` or `lost`.
    pub state: &'a str,
    /// Why, by a word that does not change.
    pub reason: Option<&'a str>,
    /// Why, for people.
    pub message: Option<&'a str>,
    /// What the command exited with.
    pub exit_code: Option<i64>,
}

/// What became of telling an end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finished {
    /// The run is over; another attempt may have been queued.
    Done {
        /// That attempt.
        retry: Option<String>,
    },
    /// It was told already, by this very claim.
    Again,
    /// It is not this runner's any more.
    Stale,
}

/// What became of cancelling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancel {
    /// It had not begun: it is over.
    Done,
    /// Its runner is told.
    Asked,
    /// It was over.
    Over,
    /// There is no such run.
    NotThere,
}

impl Effect for Cancel {
    fn changed(&self) -> bool {
        matches!(self, Self::Done | Self::Asked)
    }
}

row! {
    /// What another attempt needs to know.
    pub struct Attempted {
        /// Of which job.
        pub job_id: Option<String>,
        /// What it is called.
        pub job_name: String,
        /// Which attempt.
        pub attempt: i64,
        /// What ran.
        pub spec: String,
        /// What the trigger sent.
        pub input: Option<Vec<u8>>,
        /// Where.
        pub workspace_id: String,
        /// Whose.
        pub caused_by: Option<String>,
    }
}

row! {
    /// A lease that has ended.
    pub struct Expired {
        /// Which run.
        pub run_id: String,
        /// Where.
        pub workspace_id: String,
        /// Where it was.
        pub state: String,
        /// How often it was claimed.
        pub claims: i64,
        /// Since when somebody wants it to end.
        pub cancel_at: Option<Millis>,
    }
}

const EXPIRED: &str = "SELECT run_id, workspace_id, state, claims, cancel_at FROM queue \
    WHERE state IN ('claimed', 'preparing', 'running') AND lease_until < $1 ORDER BY lease_until LIMIT 1";

const CLOSE: &str = "UPDATE runs SET state = $2, reason = $3, message = $4, exit_code = $5, ended_at = $6, \
    output_bytes = q.output_next, output_kept = q.output_kept, flows_kept = q.flows_kept, flows_dropped = q.flows_dropped, \
    denied = q.denied, up = q.up, down = q.down FROM queue q WHERE q.run_id = runs.id AND runs.id = $1";

/// Leaving the queue, in a transaction that excludes others of [`Lock::Queue`].
trait Leave {
    /// Ends a run; returns the attempt that follows.
    async fn leave(
        &mut self,
        run: &str,
        end: &End<'_>,
        now: Millis,
    ) -> Result<Option<String>, sqlx::Error>;
}

macro_rules! leave {
    ($engine:ty) => {
        impl Leave for sqlx::Transaction<'_, $engine> {
            async fn leave(
                &mut self,
                run: &str,
                end: &End<'_>,
                now: Millis,
            ) -> Result<Option<String>, sqlx::Error> {
                sqlx::query(CLOSE)
                    .bind(run)
                    .bind(end.state)
                    .bind(end.reason.map(plain))
                    .bind(end.message.map(plain))
                    .bind(end.exit_code)
                    .bind(now)
                    .execute(&mut **self)
                    .await?;
                sqlx::query("DELETE FROM queue WHERE run_id = $1").bind(run).execute(&mut **self).await?;
                let was: Attempted = sqlx::query_as(
                    "SELECT job_id, job_name, attempt, spec, input, workspace_id, caused_by FROM runs WHERE id = $1")
                    .bind(run)
                    .fetch_one(&mut **self)
                    .await?;
                let Ok(spec) = JobSpec::read(&was.spec) else { return Ok(None) };
                let Some(wait) = spec.retry.wait(end.state, was.attempt) else { return Ok(None) };
                let next = NewRun {
                    workspace: &was.workspace_id,
                    job: was.job_id.as_deref(),
                    name: &was.job_name,
                    spec: &spec,
                    cause: Cause::Retry,
                    by: was.caused_by.as_deref(),
                    slot: None,
                    attempt: was.attempt + 1,
                    retry_of: Some(run),
                    input: was.input.as_deref(),
                    ready_at: now + wait,
                };
                Ok(match self.enter(&next, now).await? {
                    Submitted::Queued(next) | Submitted::Skipped(next) => Some(next),
                    Submitted::Fired | Submitted::Full => None,
                })
            }
        }
    };
}

leave!(sqlx::Sqlite);
leave!(sqlx::Postgres);

/// Says in a transaction that a run is over, and what follows it.
macro_rules! tell_end {
    ($tx:ident, $run:expr, $workspace:expr, $end:expr, $retry:expr, $now:expr) => {{
        let over = told($run, $end.state, $end.reason);
        let of = (topic($workspace, $run), workspace_topic($workspace));
        let next = $retry
            .as_deref()
            .map(|next| (topic($workspace, next), told(next, "queued", Some("retry"))));
        let mut events = vec![(&*of.0, "state", &*over), (&*of.1, "run", &*over)];
        if let Some((topic, told)) = &next {
            events.extend([(&**topic, "state", &**told), (&*of.1, "run", &**told)]);
        }
        $tx.tell(&events, $now).await?;
    }};
}

impl Store {
    /// The runner says how its run ended. Said again, it is not done again.
    pub async fn finish_run(
        &self,
        hold: &Hold,
        end: &End<'_>,
        now: Millis,
    ) -> Result<Finished, StoreError> {
        let retry = transact!(self, Lock::Queue, tx => {
            let held: Option<Held> = sqlx::query_as(HOLD)
                .bind(&hold.run)
                .bind(&hold.runner)
                .bind(hold.fence)
                .fetch_optional(&mut *tx)
                .await?;
            let Some(held) = held else {
                let ended: i64 = sqlx::query_scalar(
                    "SELECT count(*) FROM runs WHERE id = $1 AND runner_id = $2 AND fence = $3 AND ended_at IS NOT NULL")
                    .bind(&hold.run)
                    .bind(&hold.runner)
                    .bind(hold.fence)
                    .fetch_one(&mut *tx)
                    .await?;
                return Ok(if ended == 1 { Finished::Again } else { Finished::Stale });
            };
            let retry = tx.leave(&hold.run, end, now).await?;
            tell_end!(tx, &hold.run, &held.workspace_id, end, retry, now);
            retry
        });
        Ok(Finished::Done { retry })
    }

    /// Ends a run that waits, or tells its runner to.
    pub async fn cancel_run(
        &self,
        workspace: &str,
        run: &str,
        now: Millis,
    ) -> Result<Cancel, StoreError> {
        let end = End {
            state: "cancelled",
            reason: Some("cancelled"),
            message: None,
            exit_code: None,
        };
        Ok(change!(self, Lock::Queue, tx => {
            let state: Option<String> = sqlx::query_scalar(
                "UPDATE queue SET cancel_at = COALESCE(cancel_at, $3) WHERE run_id = $1 AND workspace_id = $2 RETURNING state")
                .bind(run)
                .bind(workspace)
                .bind(now)
                .fetch_optional(&mut *tx)
                .await?;
            match state.as_deref() {
                Some("queued") => {
                    let retry = tx.leave(run, &end, now).await?;
                    tell_end!(tx, run, workspace, end, retry, now);
                    Cancel::Done
                }
                Some(_) => {
                    let told = told(run, "cancelling", None);
                    tx.tell(&[(&topic(workspace, run), "state", &told), (&workspace_topic(workspace), "run", &told)], now).await?;
                    Cancel::Asked
                }
                None => {
                    let there: i64 = sqlx::query_scalar("SELECT count(*) FROM runs WHERE id = $1 AND workspace_id = $2")
                        .bind(run)
                        .bind(workspace)
                        .fetch_one(&mut *tx)
                        .await?;
                    if there == 1 { Cancel::Over } else { Cancel::NotThere }
                }
            }
        }))
    }

    /// Gives up leases that ended without a heartbeat; returns how many there were. Any console may, at any time.
    pub async fn give_up(&self, now: Millis) -> Result<u64, StoreError> {
        let mut given_up = 0;
        while self.give_up_one(now).await? {
            given_up += 1;
        }
        Ok(given_up)
    }

    /// One in a transaction: two rows and the event log's lock in one could wait for each other.
    async fn give_up_one(&self, now: Millis) -> Result<bool, StoreError> {
        let any: Option<Expired> =
            on!(self, pool => sqlx::query_as(EXPIRED).bind(now).fetch_optional(pool).await)?;
        if any.is_none() {
            return Ok(false);
        }
        transact!(self, Lock::Queue, tx => {
            let expired: Option<Expired> = sqlx::query_as(EXPIRED).bind(now).fetch_optional(&mut *tx).await?;
            let Some(gone) = expired else { return Ok(false) };
            // a heartbeat may have come since: the row is locked by its new fence, which nobody has
            let fenced = sqlx::query("UPDATE queue SET fence = fence + 1 WHERE run_id = $1 AND lease_until < $2")
                .bind(&gone.run_id)
                .bind(now)
                .execute(&mut *tx)
                .await?;
            if fenced.rows_affected() == 0 {
                return Ok(true);
            }
            sqlx::query("UPDATE runs SET fence = fence + 1 WHERE id = $1").bind(&gone.run_id).execute(&mut *tx).await?;
            if let Some(end) = gone.end() {
                let retry = tx.leave(&gone.run_id, &end, now).await?;
                tell_end!(tx, &gone.run_id, &gone.workspace_id, end, retry, now);
            } else {
                sqlx::query("UPDATE queue SET state = 'queued', runner_id = '', lease_until = 0 WHERE run_id = $1")
                    .bind(&gone.run_id)
                    .execute(&mut *tx)
                    .await?;
                sqlx::query("UPDATE runs SET state = 'queued', runner_id = NULL, claimed_at = NULL WHERE id = $1")
                    .bind(&gone.run_id)
                    .execute(&mut *tx)
                    .await?;
                let told = told(&gone.run_id, "queued", Some("runner_lost"));
                let topics = (topic(&gone.workspace_id, &gone.run_id), workspace_topic(&gone.workspace_id));
                tx.tell(&[(&topics.0, "state", &told), (&topics.1, "run", &told)], now).await?;
            }
        });
        Ok(true)
    }
}

impl Expired {
    /// How it ends; `None`: it has not begun, somebody else may take it.
    fn end(&self) -> Option<End<'static>> {
        if self.cancel_at.is_some() {
            return Some(End {
                state: "cancelled",
                reason: Some("cancelled"),
                message: Some("its runner was not heard of any more before it had ended it"),
                exit_code: None,
            });
        }
        if self.state == "claimed" && self.claims < MOST_CLAIMS {
            return None;
        }
        let message = if self.state == "claimed" {
            "every runner that took it was not heard of any more before it began"
        } else {
            "its runner was not heard of any more; whether the command ended is not known"
        };
        Some(End {
            state: "lost",
            reason: Some("runner_lost"),
            message: Some(message),
            exit_code: None,
        })
    }
}
