//! The queue: which run is next, who holds it, and until when.
//!
//! A run waits (`queued`), is taken by a runner (`claimed`), is prepared (`preparing`), runs (`running`) and ends. While
//! it has not ended it has a row in `queue`, which holds what changes often. Whoever claims it gets a [`Hold`]: every
//! claim has a higher fence than the one before, and only the newest one changes anything, however late the others come.
//! A lease that ends without a heartbeat is given up ([`Store::give_up`]): a run that was claimed and has not begun is
//! queued again, for a runner starts nothing before [`Store::begin_run`] was acknowledged; a run that has begun is `lost`
//! and never silently run again, another attempt is a run of its own by the job's retry rule.
//!
//! Who is next is decided by one transaction at a time ([`Lock::Queue`]): limits of jobs, groups, workspaces and runners
//! are counts over rows, which skipping locked rows would miscount. Workspaces take turns, within one the oldest run is next.
//!
//! A lane is what a limit of a job or group counts. The table `lanes` has those in which something waits, with their live
//! runs and the one that is next; triggers of the store keep it as `queue` is, whoever changes that, so that asking for
//! work costs the same however many runs wait for others to end. On PostgreSQL their function has every plan use an index:
//! plans are kept, and one that was made while the queue was short would read all of a long one.

mod ending;
mod entering;
#[cfg(test)]
mod tests;

pub use ending::{Cancel, End, Finished};
pub use entering::{Cause, MOST_WAITING, NewRun, Submitted};
pub(super) use entering::{Enter, enter_told};

use super::runs::{Run, topic, workspace_topic};
use super::within::Within;
use super::{Lock, Store, StoreError, on, row, transact};
use crate::clock::{Millis, SECOND};

/// What holds for every claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueRules {
    /// How long a runner may be silent. Longer than a console needs to be started again.
    pub lease: Millis,
    /// Runs of one workspace at once.
    pub per_workspace: i64,
}

impl Default for QueueRules {
    fn default() -> Self {
        Self {
            lease: 60 * SECOND,
            per_workspace: 50,
        }
    }
}

/// A runner that asks for work.
#[derive(Clone, Copy, Debug)]
pub struct Claimer<'a> {
    /// Its id.
    pub runner: &'a str,
    /// The one workspace that it works for; `None`: any.
    pub workspace: Option<&'a str>,
    /// Runs that it holds at once.
    pub most: i64,
}

/// A runner's right to tell about a run. Worth nothing once a later one was given, or the run is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// Which run.
    pub run: String,
    /// Whose.
    pub runner: String,
    /// The number of the claim.
    pub fence: i64,
}

/// A run that was claimed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claimed {
    /// To tell about it with.
    pub hold: Hold,
    /// The run.
    pub run: Run,
    /// What to run: a [`crate::jobs::spec::JobSpec`] as JSON.
    pub spec: String,
    /// What its trigger sent.
    pub input: Option<Vec<u8>>,
    /// When it is given to somebody else, unless the runner is heard of.
    pub lease_until: Millis,
}

/// An answer to a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beat {
    /// The lease's new end.
    pub lease_until: Millis,
    /// Somebody wants the run to end.
    pub cancelled: bool,
}

/// Whether a run may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// It may.
    Yes,
    /// Somebody has cancelled it meanwhile: finish it so.
    Cancelled,
    /// It is not this runner's any more.
    Stale,
}

row! {
    /// What a holder's row says; locked for the rest of the transaction.
    pub struct Held {
        /// In which workspace.
        pub workspace_id: String,
        /// Where it is.
        pub state: String,
        /// Since when somebody wants it to end.
        pub cancel_at: Option<Millis>,
        /// Bytes of output that were told.
        pub output_next: i64,
        /// Of them, kept.
        pub output_kept: i64,
        /// In so many rows.
        pub output_rows: i64,
        /// The last record that was told.
        pub flow_seq: i64,
        /// Rows of flows.
        pub flows_kept: i64,
        /// The last step that was told.
        pub step_seq: i64,
        /// Rows of steps.
        pub steps_kept: i64,
    }
}

/// Locks a holder's row: the update takes the row's lock on PostgreSQL.
pub(super) const HOLD: &str = "UPDATE queue SET fence = fence \
    WHERE run_id = $1 AND runner_id = $2 AND fence = $3 AND state <> 'queued' \
    RETURNING workspace_id, state, cancel_at, output_next, output_kept, output_rows, flow_seq, flows_kept, step_seq, steps_kept";

/// Workspaces with a run whose time has come and whose lane has room, fewest live runs first, then who waited longest for
/// a turn: whoever has thousands waiting gets no more than whoever has one. From one workspace to the next it is one step
/// in the index of open lanes, so that lanes without room cost nothing.
const TURNS: &str = "WITH RECURSIVE w(id) AS (SELECT min(workspace_id) FROM lanes WHERE live < most UNION ALL \
    SELECT (SELECT min(workspace_id) FROM lanes WHERE live < most AND workspace_id > w.id) FROM w WHERE w.id IS NOT NULL) \
    SELECT o.id FROM (SELECT w.id, (SELECT count(*) FROM queue WHERE workspace_id = w.id \
    AND state IN ('claimed', 'preparing', 'running')) AS live FROM w WHERE w.id IS NOT NULL AND ($2 = '' OR w.id = $2) \
    AND EXISTS (SELECT 1 FROM lanes WHERE workspace_id = w.id AND live < most AND ready_at <= $1)) o \
    LEFT JOIN turns t ON t.workspace_id = o.id WHERE o.live < $3 ORDER BY o.live, COALESCE(t.turn, 0), o.id";

/// The oldest run of a workspace's lanes that have room; the store keeps the head of each (`lanes`).
const NEXT: &str = "SELECT head FROM lanes WHERE workspace_id = $1 AND live < most AND ready_at <= $2 \
    ORDER BY ready_at, head LIMIT 1";

/// A workspace had its turn.
const TURN: &str = "INSERT INTO turns (workspace_id, turn) VALUES ($1, (SELECT COALESCE(max(turn), 0) + 1 FROM turns)) \
    ON CONFLICT (workspace_id) DO UPDATE SET turn = excluded.turn";

/// The run that is next, on a pool or in a transaction.
macro_rules! next {
    ($on:expr, $claimer:expr, $rules:expr, $now:expr) => {{
        let turns: Vec<String> = sqlx::query_scalar(TURNS)
            .bind($now)
            .bind($claimer.workspace.unwrap_or_default())
            .bind($rules.per_workspace)
            .fetch_all($on)
            .await?;
        let mut next: Option<String> = None;
        for workspace in &turns {
            next = sqlx::query_scalar(NEXT)
                .bind(workspace)
                .bind($now)
                .fetch_optional($on)
                .await?;
            if next.is_some() {
                break;
            }
        }
        next
    }};
}

impl Store {
    /// Takes the next run for a runner, if there is one that limits permit.
    pub async fn claim_run(
        &self,
        claimer: Claimer<'_>,
        rules: &QueueRules,
        now: Millis,
    ) -> Result<Option<Claimed>, StoreError> {
        // asked often and mostly in vain: nothing is locked for it
        let waiting = on!(self, pool => next!(pool, claimer, rules, now));
        if waiting.is_none() {
            return Ok(None);
        }
        let lease_until = now + rules.lease;
        let taken = transact!(self, Lock::Queue, tx => {
            let held: i64 = sqlx::query_scalar("SELECT count(*) FROM queue WHERE runner_id = $1 AND state <> 'queued'")
                .bind(claimer.runner)
                .fetch_one(&mut *tx)
                .await?;
            let next = if held < claimer.most { next!(&mut *tx, claimer, rules, now) } else { None };
            let Some(run) = next else { return Ok(None) };
            let (fence, workspace): (i64, String) = sqlx::query_as(
                "UPDATE queue SET state = 'claimed', runner_id = $1, fence = fence + 1, lease_until = $2, claims = claims + 1 \
                 WHERE run_id = $3 RETURNING fence, workspace_id")
                .bind(claimer.runner)
                .bind(lease_until)
                .bind(&run)
                .fetch_one(&mut *tx)
                .await?;
            sqlx::query(TURN).bind(&workspace).execute(&mut *tx).await?;
            sqlx::query("UPDATE runs SET state = 'claimed', runner_id = $1, fence = $2, claimed_at = $3 WHERE id = $4")
                .bind(claimer.runner)
                .bind(fence)
                .bind(now)
                .bind(&run)
                .execute(&mut *tx)
                .await?;
            let told = told(&run, "claimed", None);
            tx.tell(&[(&topic(&workspace, &run), "state", &told), (&workspace_topic(&workspace), "run", &told)], now).await?;
            Hold { run, runner: claimer.runner.to_owned(), fence }
        });
        self.claimed(taken, lease_until).await.map(Some)
    }

    /// What a claim gives. A run has one row, and it is not deleted while it is held.
    async fn claimed(&self, hold: Hold, lease_until: Millis) -> Result<Claimed, StoreError> {
        let run = self.run_by_id(&hold.run).await?;
        let run = run.ok_or(sqlx::Error::RowNotFound)?;
        let (spec, input) = on!(self, pool => sqlx::query_as("SELECT spec, input FROM runs WHERE id = $1")
            .bind(&hold.run).fetch_one(pool).await)?;
        Ok(Claimed {
            hold,
            run,
            spec,
            input,
            lease_until,
        })
    }

    /// Keeps the run; `None`: it is not this runner's any more.
    pub async fn keep_run(
        &self,
        hold: &Hold,
        rules: &QueueRules,
        now: Millis,
    ) -> Result<Option<Beat>, StoreError> {
        let lease_until = now + rules.lease;
        let kept: Option<Option<Millis>> = on!(self, pool => sqlx::query_scalar(
            "UPDATE queue SET lease_until = $1 WHERE run_id = $2 AND runner_id = $3 AND fence = $4 AND state <> 'queued' \
             RETURNING cancel_at")
            .bind(lease_until).bind(&hold.run).bind(&hold.runner).bind(hold.fence).fetch_optional(pool).await)?;
        Ok(kept.map(|cancel_at| Beat {
            lease_until,
            cancelled: cancel_at.is_some(),
        }))
    }

    /// The run's remains are about to be made: from here on it is never queued again.
    pub async fn begin_run(&self, hold: &Hold, now: Millis) -> Result<Begun, StoreError> {
        transact!(self, Lock::Queue, tx => {
            let held: Option<Held> = sqlx::query_as(HOLD)
                .bind(&hold.run)
                .bind(&hold.runner)
                .bind(hold.fence)
                .fetch_optional(&mut *tx)
                .await?;
            let Some(held) = held else { return Ok(Begun::Stale) };
            if held.cancel_at.is_some() {
                return Ok(Begun::Cancelled);
            }
            if held.state != "claimed" {
                return Ok(Begun::Yes);
            }
            for statement in [
                "UPDATE queue SET state = 'preparing' WHERE run_id = $1",
                "UPDATE runs SET state = 'preparing' WHERE id = $1",
            ] {
                sqlx::query(statement).bind(&hold.run).execute(&mut *tx).await?;
            }
            let told = told(&hold.run, "preparing", None);
            let topics = (topic(&held.workspace_id, &hold.run), workspace_topic(&held.workspace_id));
            tx.tell(&[(&topics.0, "state", &told), (&topics.1, "run", &told)], now).await?;
        });
        Ok(Begun::Yes)
    }

    /// Its command runs. `facts`: under what (policy, isolation, image). `false`: not this runner's any more, or not begun.
    pub async fn run_started(
        &self,
        hold: &Hold,
        facts: &serde_json::Value,
        now: Millis,
    ) -> Result<bool, StoreError> {
        let facts = facts.to_string();
        transact!(self, Lock::Queue, tx => {
            let held: Option<Held> = sqlx::query_as(HOLD)
                .bind(&hold.run)
                .bind(&hold.runner)
                .bind(hold.fence)
                .fetch_optional(&mut *tx)
                .await?;
            let Some(held) = held else { return Ok(false) };
            if held.state != "preparing" {
                return Ok(held.state == "running");
            }
            sqlx::query("UPDATE queue SET state = 'running' WHERE run_id = $1").bind(&hold.run).execute(&mut *tx).await?;
            sqlx::query("UPDATE runs SET state = 'running', started_at = $1, facts = $2 WHERE id = $3")
                .bind(now)
                .bind(&facts)
                .bind(&hold.run)
                .execute(&mut *tx)
                .await?;
            let told = told(&hold.run, "running", None);
            let topics = (topic(&held.workspace_id, &hold.run), workspace_topic(&held.workspace_id));
            tx.tell(&[(&topics.0, "state", &told), (&topics.1, "run", &told)], now).await?;
        });
        Ok(true)
    }
}

/// What an event says about a run.
pub(super) fn told(run: &str, state: &str, reason: Option<&str>) -> String {
    serde_json::json!({ "run": run, "state": state, "reason": reason }).to_string()
}
