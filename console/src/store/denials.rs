//! Names that a job was denied: which of a run's are new, so that people are told of a name once and not at each run.
//!
//! A sandbox chooses names, so a job has so many that are kept ([`MOST_KNOWN`]); beyond them nothing is news. A run's own
//! are looked for when it is over, at most [`MOST_NEW`] of them, newest first: the order of names is a sandbox's to choose.

use super::{Store, StoreError, on, row};

/// Names that are kept of a job.
const MOST_KNOWN: i64 = 5_000;
/// Names of one run that are told.
const MOST_NEW: i64 = 50;

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

    /// The names that a run was denied and its job was not before, newest first, and whether there are more.
    pub async fn fresh_denials(
        &self,
        job: &str,
        run: &str,
    ) -> Result<(Vec<String>, bool), StoreError> {
        let mut names: Vec<String> = on!(self, pool => sqlx::query_scalar(
            "SELECT name FROM flows WHERE run_id = $1 AND outcome = 'denied' AND name IS NOT NULL \
             AND NOT EXISTS (SELECT 1 FROM denied_names WHERE job_id = $2 AND denied_names.name = flows.name) \
             AND (SELECT count(*) FROM denied_names WHERE job_id = $2) < $3 GROUP BY name ORDER BY max(seq) DESC LIMIT $4")
            .bind(run).bind(job).bind(MOST_KNOWN).bind(MOST_NEW + 1).fetch_all(pool).await)?;
        let most = usize::try_from(MOST_NEW).unwrap_or_default();
        let more = names.len() > most;
        names.truncate(most);
        Ok((names, more))
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
