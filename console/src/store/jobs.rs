//! Jobs: what a workspace keeps to run, each with its schedule's next time and its webhook.

use super::change::about;
use super::queue::{NewRun, Submitted, enter_told};
use super::runs::workspace_topic;
use super::within::Within;
use super::{Lock, Store, StoreError, change, on, row, transact};
use crate::clock::{Millis, id};

/// Jobs of one workspace; further ones are refused.
pub const MOST: i64 = 1_000;

row! {
    /// A job.
    pub struct Job {
        /// Its id.
        pub id: String,
        /// In which workspace.
        pub workspace_id: String,
        /// Its name, of which there is one in the workspace.
        pub name: String,
        /// A [`crate::jobs::spec::JobSpec`] as JSON.
        pub spec: String,
        /// Whether it may be triggered.
        pub enabled: bool,
        /// When its schedule is due next.
        pub next_at: Option<Millis>,
        /// Whether it has a webhook.
        pub has_hook: bool,
        /// Who made it.
        pub created_by: Option<String>,
        /// When it was made.
        pub created_at: Millis,
        /// When it was changed.
        pub updated_at: Millis,
        /// Counts its changes.
        pub version: i64,
    }
}

/// What a job is to be.
#[derive(Clone, Copy, Debug)]
pub struct JobWrite<'a> {
    /// Where.
    pub workspace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// What it runs, as JSON.
    pub spec: &'a str,
    /// Whether it may be triggered.
    pub enabled: bool,
    /// When its schedule is due next.
    pub next_at: Option<Millis>,
}

/// Every column, for [`Job`].
macro_rules! jobs_where {
    ($($rest:tt)+) => {
        concat!(
            "SELECT id, workspace_id, name, spec, enabled, next_at, hook IS NOT NULL AS has_hook, created_by, created_at, \
             updated_at, version FROM jobs WHERE ",
            $($rest)+
        )
    };
}

/// Whether the job's workspace has a member whose account is not deactivated.
macro_rules! somebody_is_there {
    () => {
        "EXISTS (SELECT 1 FROM members m JOIN users u ON u.id = m.user_id WHERE m.workspace_id = jobs.workspace_id \
         AND u.deactivated_at IS NULL)"
    };
}

fn told(job: &str, change: &str) -> String {
    serde_json::json!({ "job": job, "change": change }).to_string()
}

impl Store {
    /// Keeps a job and returns its id; `None`: the workspace has [`MOST`] already.
    pub async fn add_job(
        &self,
        write: &JobWrite<'_>,
        by: Option<&str>,
        now: Millis,
    ) -> Result<Option<String>, StoreError> {
        let made = id();
        Ok(change!(self, Lock::Queue, tx => {
            let there: i64 = sqlx::query_scalar("SELECT count(*) FROM jobs WHERE workspace_id = $1")
                .bind(write.workspace)
                .fetch_one(&mut *tx)
                .await?;
            if there >= MOST {
                return Ok(None);
            }
            sqlx::query("INSERT INTO jobs (id, workspace_id, name, spec, enabled, next_at, created_by, created_at, updated_at, version) \
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, 1)")
                .bind(&made)
                .bind(write.workspace)
                .bind(write.name)
                .bind(write.spec)
                .bind(write.enabled)
                .bind(write.next_at)
                .bind(by)
                .bind(now)
                .execute(&mut *tx)
                .await?;
            about(format!("job={made}"));
            tx.tell(&[(&workspace_topic(write.workspace), "job", &told(&made, "added"))], now).await?;
            Some(made)
        }))
    }

    /// A job of a workspace.
    pub async fn job(&self, workspace: &str, job: &str) -> Result<Option<Job>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(jobs_where!("id = $1 AND workspace_id = $2"))
            .bind(job).bind(workspace).fetch_optional(pool).await)?,
        )
    }

    /// A job of a workspace by its name.
    pub async fn job_by_name(
        &self,
        workspace: &str,
        name: &str,
    ) -> Result<Option<Job>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(jobs_where!("name = $1 AND workspace_id = $2"))
            .bind(name).bind(workspace).fetch_optional(pool).await)?,
        )
    }

    /// Jobs of a workspace after an id whose name holds a text.
    pub async fn jobs(
        &self,
        workspace: &str,
        text: &str,
        after: &str,
        most: i64,
    ) -> Result<Vec<Job>, StoreError> {
        let pattern = format!("%{}%", super::literal(&text.to_lowercase()));
        Ok(on!(self, pool => sqlx::query_as(
            jobs_where!("workspace_id = $1 AND id > $2 AND lower(name) LIKE $3 ESCAPE '!' ORDER BY id LIMIT $4"))
            .bind(workspace).bind(after).bind(&pattern).bind(most).fetch_all(pool).await)?)
    }

    /// Changes a job that is still at this version; `false`: it is not.
    pub async fn change_job(
        &self,
        job: &str,
        version: i64,
        write: &JobWrite<'_>,
        now: Millis,
    ) -> Result<bool, StoreError> {
        Ok(change!(self, Lock::Queue, tx => {
            let done = sqlx::query("UPDATE jobs SET name = $1, spec = $2, enabled = $3, next_at = $4, updated_at = $5, \
                version = version + 1 WHERE id = $6 AND workspace_id = $7 AND version = $8")
                .bind(write.name)
                .bind(write.spec)
                .bind(write.enabled)
                .bind(write.next_at)
                .bind(now)
                .bind(job)
                .bind(write.workspace)
                .bind(version)
                .execute(&mut *tx)
                .await?;
            if done.rows_affected() == 0 {
                return Ok(false);
            }
            tx.tell(&[(&workspace_topic(write.workspace), "job", &told(job, "changed"))], now).await?;
            true
        }))
    }

    /// Forgets a job that is still at this version; its runs stay. `false`: it is not.
    pub async fn remove_job(
        &self,
        workspace: &str,
        job: &str,
        version: i64,
        now: Millis,
    ) -> Result<bool, StoreError> {
        Ok(change!(self, Lock::Queue, tx => {
            let done = sqlx::query("DELETE FROM jobs WHERE id = $1 AND workspace_id = $2 AND version = $3")
                .bind(job)
                .bind(workspace)
                .bind(version)
                .execute(&mut *tx)
                .await?;
            if done.rows_affected() == 0 {
                return Ok(false);
            }
            sqlx::query("DELETE FROM denied_names WHERE job_id = $1").bind(job).execute(&mut *tx).await?;
            tx.tell(&[(&workspace_topic(workspace), "job", &told(job, "removed"))], now).await?;
            true
        }))
    }

    /// Gives a job a webhook, or takes it away; the one before is over. `false`: there is no such job.
    pub async fn set_hook(
        &self,
        workspace: &str,
        job: &str,
        digest: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        Ok(change!(self, Lock::Queue, tx => {
            let done = sqlx::query("UPDATE jobs SET hook = $1 WHERE id = $2 AND workspace_id = $3")
                .bind(digest)
                .bind(job)
                .bind(workspace)
                .execute(&mut *tx)
                .await?;
            done.rows_affected() == 1
        }))
    }

    /// The job that a webhook triggers; none where nobody is left who could look at what it does.
    pub async fn job_of_hook(&self, digest: &[u8]) -> Result<Option<Job>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(jobs_where!("hook = $1 AND ", somebody_is_there!()))
            .bind(digest).fetch_optional(pool).await)?,
        )
    }

    /// Runs of a job that wait.
    pub async fn waiting_of_job(&self, job: &str) -> Result<Vec<String>, StoreError> {
        Ok(on!(self, pool => sqlx::query_scalar(
            "SELECT q.run_id FROM queue q JOIN runs r ON r.id = q.run_id WHERE r.job_id = $1 AND q.state = 'queued'")
            .bind(job).fetch_all(pool).await)?)
    }

    /// Jobs whose schedule is due, and in whose workspace somebody is left who could look at what they do. Others wait.
    pub async fn due_jobs(&self, now: Millis, most: i64) -> Result<Vec<Job>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(jobs_where!("next_at <= $1 AND enabled = $2 AND ", somebody_is_there!(), " ORDER BY next_at LIMIT $3"))
            .bind(now).bind(true).bind(most).fetch_all(pool).await)?,
        )
    }

    /// Moves a schedule on from the time that it was due, and submits the run for it in the same step (`None`: none).
    /// Whoever comes second, another console or a change of the job, finds it moved. `None`: somebody was first.
    pub async fn fire_job(
        &self,
        job: &Job,
        next_at: Option<Millis>,
        run: Option<&NewRun<'_>>,
        now: Millis,
    ) -> Result<Option<Submitted>, StoreError> {
        Ok(transact!(self, Lock::Queue, tx => {
            let moved = sqlx::query("UPDATE jobs SET next_at = $1 WHERE id = $2 AND version = $3 AND next_at = $4")
                .bind(next_at)
                .bind(&job.id)
                .bind(job.version)
                .bind(job.next_at)
                .execute(&mut *tx)
                .await?;
            if moved.rows_affected() == 0 {
                return Ok(None);
            }
            match run {
                Some(run) => Some(enter_told!(tx, run, now)),
                None => Some(Submitted::Fired),
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{each, workspace};
    use super::*;

    fn write<'a>(workspace: &'a str, name: &'a str) -> JobWrite<'a> {
        JobWrite {
            workspace,
            name,
            spec: "{}",
            enabled: true,
            next_at: None,
        }
    }

    #[tokio::test]
    async fn a_job_changes_only_at_the_version_that_was_read_and_only_in_its_workspace() {
        each(async |store| {
            let w = workspace(&store).await;
            let id = store
                .add_job(&write(&w, "a"), None, 5)
                .await
                .unwrap()
                .unwrap();
            assert!(
                !store
                    .change_job(&id, 1, &write("other", "b"), 6)
                    .await
                    .unwrap()
            );
            assert!(!store.change_job(&id, 2, &write(&w, "b"), 6).await.unwrap());
            assert!(store.change_job(&id, 1, &write(&w, "b"), 6).await.unwrap());
            let job = store.job(&w, &id).await.unwrap().unwrap();
            assert_eq!(
                (job.name.as_str(), job.version, job.updated_at),
                ("b", 2, 6)
            );
            assert_eq!(store.job("other", &id).await.unwrap(), None);
            assert!(!store.remove_job(&w, &id, 1, 7).await.unwrap());
            assert!(store.remove_job(&w, &id, 2, 7).await.unwrap());
        })
        .await;
    }

    #[tokio::test]
    async fn a_name_is_taken_once_in_a_workspace() {
        each(async |store| {
            let w = workspace(&store).await;
            store
                .add_job(&write(&w, "a"), None, 5)
                .await
                .unwrap()
                .unwrap();
            let again = store.add_job(&write(&w, "a"), None, 5).await.unwrap_err();
            assert!(again.is_taken(), "{again}");
        })
        .await;
    }

    #[tokio::test]
    async fn a_webhook_is_found_by_its_newest_digest_alone() {
        each(async |store| {
            let w = workspace(&store).await;
            let id = store
                .add_job(&write(&w, "a"), None, 5)
                .await
                .unwrap()
                .unwrap();
            assert!(store.set_hook(&w, &id, Some(b"one")).await.unwrap());
            assert!(store.set_hook(&w, &id, Some(b"two")).await.unwrap());
            assert!(!store.set_hook("other", &id, Some(b"three")).await.unwrap());
            assert_eq!(store.job_of_hook(b"one").await.unwrap(), None);
            let found = store.job_of_hook(b"two").await.unwrap().unwrap();
            assert!(found.has_hook && found.id == id);
        })
        .await;
    }

    #[tokio::test]
    async fn a_workspace_with_jobs_without_end_is_refused_and_another_is_not() {
        each(async |store| {
            let (w, v) = (workspace(&store).await, workspace(&store).await);
            for n in 0..MOST {
                let name = format!("j{n}");
                let added = store.add_job(&write(&w, &name), None, 5).await.unwrap();
                assert!(added.is_some(), "{n}");
            }
            assert_eq!(
                store.add_job(&write(&w, "more"), None, 5).await.unwrap(),
                None
            );
            assert!(
                store
                    .add_job(&write(&v, "more"), None, 5)
                    .await
                    .unwrap()
                    .is_some()
            );
        })
        .await;
    }
}
