//! Counts that the hardening checklist is made of.

use super::{Store, StoreError, on, row};
use crate::clock::Millis;

row! {
    /// What there is of it.
    pub struct Hardening {
        /// Active administrators of the instance.
        pub administrators: i64,
        /// Enabled jobs that may reach the whole internet.
        pub open_jobs: i64,
        /// Enabled jobs that may reach private networks.
        pub private_jobs: i64,
        /// Enabled jobs whose policy is in git.
        pub git_jobs: i64,
        /// Notifications about lost enforcement.
        pub watchers: i64,
    }
}

/// Definitions are JSON that the console wrote itself: a quote within a text of one has a backslash before it, so none
/// looks like these.
const COUNTS: &str = "SELECT \
    (SELECT count(*) FROM users WHERE instance_admin = $1 AND deactivated_at IS NULL) AS administrators, \
    (SELECT count(*) FROM jobs WHERE enabled = $1 AND spec LIKE '%\"network\":{\"mode\":\"internet\"%') AS open_jobs, \
    (SELECT count(*) FROM jobs WHERE enabled = $1 AND spec LIKE '%\"allow_private\":true%') AS private_jobs, \
    (SELECT count(*) FROM jobs WHERE enabled = $1 AND spec LIKE '%\"policy_name\":\"%\"},\"root\":%') AS git_jobs, \
    (SELECT count(*) FROM notifications WHERE topics LIKE '%\"gateway.enforcement\"%') AS watchers";

impl Store {
    /// All of them, of all workspaces.
    pub async fn hardening(&self) -> Result<Hardening, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(COUNTS).bind(true).fetch_one(pool).await)?)
    }

    /// Notes that a backup was made then, for the checklist.
    pub async fn note_backup(&self, at: Millis) -> Result<(), StoreError> {
        on!(self, pool => sqlx::query(
            "INSERT INTO notified (id, seq) VALUES ('backup', $1) ON CONFLICT (id) DO UPDATE SET seq = $1")
            .bind(at).execute(pool).await.map(|_| ()))?;
        Ok(())
    }

    /// When the newest backup was made that was noted.
    pub async fn last_backup(&self) -> Result<Option<Millis>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_scalar("SELECT seq FROM notified WHERE id = 'backup'")
            .fetch_optional(pool).await)?,
        )
    }
}
