//! Names that a job was denied: which of a run's are new, so that people are told of a name once and not at each run.
//!
//! A sandbox chooses names, so a job has so many that are kept ([`MOST_KNOWN`]); beyond them nothing is news, and that is
//! told once ([`FULL`]). A run's own are looked for when it is over, at most [`MOST_NEW`] of them, newest first: the order
//! of names is a sandbox's to choose. What is kept goes with its job, at the latest when the console is tidied.

use super::{Store, StoreError, on, row};

/// Names that are kept of a job.
const MOST_KNOWN: i64 = 5_000;
/// Names of one run that are told.
const MOST_NEW: i64 = 50;

/// Kept of a job, in place of names, once people were told that no more of them are kept. No name is empty.
const FULL: &str = "";

/// Keeps a name of a job that still is there.
pub(super) const KNOW: &str = "INSERT INTO denied_names (job_id, name, first_at) SELECT id, $2, $3 FROM jobs WHERE id = $1 \
    ON CONFLICT (job_id, name) DO NOTHING";

/// Names that a job was denied for the first time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// The job.
    pub job: String,
    /// They.
    pub names: Vec<String>,
}

/// What a run was denied and its job was not before.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fresh {
    /// The names, newest first.
    pub names: Vec<String>,
    /// Whether there are more.
    pub more: bool,
    /// Whether the job has as many names as are kept: no further one is told.
    pub full: bool,
}

impl Fresh {
    /// What is to be kept once it is told.
    pub fn keeps(&self) -> Vec<String> {
        if self.full {
            vec![FULL.to_owned()]
        } else {
            self.names.clone()
        }
    }
}

row! {
    /// A run as news tell it.
    pub struct Told {
        /// Its job, if it is of one.
        pub job_id: Option<String>,
        /// What it is called.
        pub job_name: String,
        /// What ran.
        pub spec: String,
    }
}

impl Store {
    /// A run that something is told about.
    pub async fn told_run(&self, workspace: &str, run: &str) -> Result<Option<Told>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT job_id, job_name, spec FROM runs WHERE id = $1 AND workspace_id = $2")
            .bind(run).bind(workspace).fetch_optional(pool).await)?)
    }

    /// What a run was denied and its job was not before; nothing once the job's names are full and that was told.
    pub async fn fresh_denials(&self, job: &str, run: &str) -> Result<Fresh, StoreError> {
        let (known, told): (i64, i64) = on!(self, pool => sqlx::query_as(
            "SELECT (SELECT count(*) FROM denied_names WHERE job_id = $1), \
             (SELECT count(*) FROM denied_names WHERE job_id = $1 AND name = $2)")
            .bind(job).bind(FULL).fetch_one(pool).await)?;
        if told > 0 {
            return Ok(Fresh::default());
        }
        let mut names: Vec<String> = on!(self, pool => sqlx::query_scalar(
            "SELECT name FROM flows WHERE run_id = $1 AND outcome = 'denied' AND name IS NOT NULL AND name <> $4 \
             AND NOT EXISTS (SELECT 1 FROM denied_names WHERE job_id = $2 AND denied_names.name = flows.name) \
             GROUP BY name ORDER BY max(seq) DESC LIMIT $3")
            .bind(run).bind(job).bind(MOST_NEW + 1).bind(FULL).fetch_all(pool).await)?;
        let most = usize::try_from(MOST_NEW).unwrap_or_default();
        let more = names.len() > most;
        names.truncate(most);
        Ok(Fresh {
            full: known >= MOST_KNOWN && !names.is_empty(),
            names,
            more,
        })
    }

    /// Which of these names no notification of a workspace has.
    pub async fn unknown_notifications(
        &self,
        workspace: &str,
        names: &[String],
    ) -> Result<Vec<String>, StoreError> {
        let known: Vec<String> = on!(self, pool => sqlx::query_scalar("SELECT name FROM notifications WHERE workspace_id = $1")
            .bind(workspace).fetch_all(pool).await)?;
        let unknown = names.iter().filter(|name| !known.contains(name));
        Ok(unknown.cloned().collect())
    }
}
