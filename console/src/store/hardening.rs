//! Counts that the hardening checklist is made of.

use super::{Store, StoreError, on, row};

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
}
