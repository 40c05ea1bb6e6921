//! Runners: who may pull work, found by the digest of their token; which of their processes is the newest; when they were
//! heard of.

use super::audit::{Told, append};
use super::change::about;
use super::{Lock, Store, StoreError, change, on, row, transact};
use crate::clock::{Millis, id};

/// A runner that was heard of is noted so often, at most.
const NOTED: Millis = 10_000;
/// Other keys of one runner are told so often, at most: who has its token has any number of keys.
const TOLD: Millis = 3_600_000;

row! {
    /// A runner.
    pub struct Runner {
        /// Its id.
        pub id: String,
        /// What it is called.
        pub name: String,
        /// The one workspace that it works for, if not for all.
        pub workspace_id: Option<String>,
        /// Its X25519 key, once it has said it.
        pub public_key: Option<String>,
        /// The newest process with its token.
        pub session: Option<String>,
        /// Its version.
        pub version: Option<String>,
        /// Engine and isolation classes, as JSON.
        pub facts: Option<String>,
        /// Runs at once.
        pub most: i64,
        /// When it was made.
        pub created_at: Millis,
        /// When it was last heard of, to some seconds.
        pub seen_at: Option<Millis>,
        /// Another key that somebody with its token said.
        pub refused_key: Option<String>,
        /// When that was told.
        pub refused_at: Option<Millis>,
    }
}

row! {
    /// Who the runner is until now.
    pub struct Known {
        /// The newest process.
        pub session: Option<String>,
        /// Its key.
        pub public_key: Option<String>,
        /// When another one was told.
        pub refused_at: Option<Millis>,
    }
}

/// What a process says about itself.
#[derive(Clone, Copy, Debug)]
pub struct Greeting<'a> {
    /// The name of the process.
    pub session: &'a str,
    /// Its public key.
    pub key: &'a str,
    /// Its version.
    pub version: &'a str,
    /// Engine and isolation classes, as JSON.
    pub facts: &'a str,
    /// Runs at once.
    pub most: i64,
}

/// What became of a greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Greeted {
    /// This process is the runner now.
    Welcome,
    /// The runner is known by another key: nothing was changed. `told`: the audit log has just been told.
    OtherKey {
        /// See above.
        told: bool,
    },
}

/// Every column, for [`Runner`].
macro_rules! runners_where {
    ($rest:literal) => {
        concat!(
            "SELECT id, name, workspace_id, public_key, session, version, facts, most, created_at, seen_at, refused_key, refused_at \
             FROM runners WHERE ",
            $rest
        )
    };
}

impl Store {
    /// Keeps a runner and returns its id.
    pub async fn add_runner(
        &self,
        name: &str,
        workspace: Option<&str>,
        digest: &[u8],
        now: Millis,
    ) -> Result<String, StoreError> {
        let made = id();
        about(format!("runner={made}"));
        Ok(change!(self, Lock::Accounts, tx => {
            sqlx::query("INSERT INTO runners (id, name, workspace_id, digest, most, created_at) VALUES ($1, $2, $3, $4, 0, $5)")
                .bind(&made)
                .bind(name)
                .bind(workspace)
                .bind(digest)
                .bind(now)
                .execute(&mut *tx)
                .await?;
            made
        }))
    }

    /// Runners after an id.
    pub async fn runners(&self, after: &str, most: i64) -> Result<Vec<Runner>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(runners_where!("id > $1 ORDER BY id LIMIT $2"))
            .bind(after).bind(most).fetch_all(pool).await)?,
        )
    }

    /// The runner of a token; that it was heard of is noted.
    pub async fn runner(&self, digest: &[u8], now: Millis) -> Result<Option<Runner>, StoreError> {
        let found: Option<Runner> = on!(self, pool => sqlx::query_as(runners_where!("digest = $1"))
            .bind(digest).fetch_optional(pool).await)?;
        if let Some(runner) = found
            .as_ref()
            .filter(|r| r.seen_at.is_none_or(|at| now - at > NOTED))
        {
            on!(self, pool => sqlx::query("UPDATE runners SET seen_at = $1 WHERE id = $2")
                .bind(now).bind(&runner.id).execute(pool).await.map(|_| ()))?;
        }
        Ok(found)
    }

    /// Revokes a runner's token; what it holds is given up. `false`: there is none.
    pub async fn end_runner(&self, runner: &str) -> Result<bool, StoreError> {
        Ok(change!(self, Lock::Accounts, tx => {
            let ended = sqlx::query("DELETE FROM runners WHERE id = $1").bind(runner).execute(&mut *tx).await?.rows_affected();
            sqlx::query("UPDATE queue SET lease_until = 0 WHERE runner_id = $1 AND state <> 'queued'")
                .bind(runner)
                .execute(&mut *tx)
                .await?;
            ended == 1
        }))
    }

    /// A process of a runner begins: it is the runner now, and what an earlier one held is given up. The key that it says
    /// first is its key for ever: secrets are sealed to it. Of another one the audit log has an entry, once in a while.
    pub async fn greet_runner(
        &self,
        runner: &str,
        greeting: &Greeting<'_>,
        refused: &Told<'_>,
        now: Millis,
    ) -> Result<Greeted, StoreError> {
        let shared = matches!(self, Self::Postgres(_));
        let greeted = transact!(self, Lock::Queue, tx => {
            let was: Option<Known> = sqlx::query_as("SELECT session, public_key, refused_at FROM runners WHERE id = $1")
                .bind(runner)
                .fetch_optional(&mut *tx)
                .await?;
            let known = was.as_ref().and_then(|was| was.public_key.as_deref());
            if known.is_some_and(|known| known != greeting.key) {
                let told = was.as_ref().and_then(|was| was.refused_at);
                let told = told.is_none_or(|at| now - at >= TOLD);
                if told {
                    sqlx::query("UPDATE runners SET refused_key = $1, refused_at = $2 WHERE id = $3")
                        .bind(greeting.key)
                        .bind(now)
                        .bind(runner)
                        .execute(&mut *tx)
                        .await?;
                    if shared {
                        sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(Lock::Audit as i64).execute(&mut *tx).await?;
                    }
                    append!(tx, refused, now);
                    tx.commit().await?;
                }
                return Ok(Greeted::OtherKey { told });
            }
            sqlx::query("UPDATE runners SET session = $1, public_key = $2, version = $3, facts = $4, most = $5, seen_at = $6 WHERE id = $7")
                .bind(greeting.session)
                .bind(greeting.key)
                .bind(greeting.version)
                .bind(greeting.facts)
                .bind(greeting.most)
                .bind(now)
                .bind(runner)
                .execute(&mut *tx)
                .await?;
            if was.and_then(|was| was.session).as_deref() != Some(greeting.session) {
                sqlx::query("UPDATE queue SET lease_until = 0 WHERE runner_id = $1 AND state <> 'queued'")
                    .bind(runner)
                    .execute(&mut *tx)
                    .await?;
            }
            Greeted::Welcome
        });
        self.give_up(now).await?;
        Ok(greeted)
    }

    /// Gives up what a runner was given and does not have: the answer got lost on the way.
    pub async fn give_up_unheld(
        &self,
        runner: &str,
        holding: &[String],
        now: Millis,
    ) -> Result<(), StoreError> {
        let claimed: Vec<String> = on!(self, pool => sqlx::query_scalar(
            "SELECT run_id FROM queue WHERE runner_id = $1 AND state = 'claimed'").bind(runner).fetch_all(pool).await)?;
        let lost: Vec<&String> = claimed
            .iter()
            .filter(|run| !holding.contains(run))
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        for run in lost {
            on!(self, pool => sqlx::query(
                "UPDATE queue SET lease_until = 0 WHERE run_id = $1 AND runner_id = $2 AND state = 'claimed'")
                .bind(run).bind(runner).execute(pool).await.map(|_| ()))?;
        }
        self.give_up(now).await.map(|_| ())
    }

    /// Whether this process is still the runner, and its token still good.
    pub async fn is_runner(&self, runner: &Runner) -> Result<bool, StoreError> {
        let there: i64 = on!(self, pool => sqlx::query_scalar("SELECT count(*) FROM runners WHERE id = $1 AND session = $2")
            .bind(&runner.id).bind(&runner.session).fetch_one(pool).await)?;
        Ok(there == 1)
    }

    /// Runs of a runner that somebody wants to end.
    pub async fn to_be_ended(&self, runner: &str) -> Result<Vec<String>, StoreError> {
        Ok(on!(self, pool => sqlx::query_scalar(
            "SELECT run_id FROM queue WHERE runner_id = $1 AND cancel_at IS NOT NULL AND state <> 'queued'")
            .bind(runner).fetch_all(pool).await)?)
    }

    /// Whether there is such a workspace.
    pub async fn is_workspace(&self, workspace: &str) -> Result<bool, StoreError> {
        let there: i64 = on!(self, pool => sqlx::query_scalar("SELECT count(*) FROM workspaces WHERE id = $1")
            .bind(workspace).fetch_one(pool).await)?;
        Ok(there == 1)
    }
}
