//! The workspace of the sample, which is there before anybody is; the first owner owns it with the instance.

use super::{Lock, Store, StoreError, transact};
use crate::clock::{Millis, id};

/// Its name.
const NAME: &str = "Sample";

impl Store {
    /// The workspace in which the sample runs: the oldest of its name that nobody is in but administrators of the
    /// instance. What the operator runs is nobody else's to see, whatever they call a workspace of theirs.
    pub async fn sample_workspace(&self, now: Millis) -> Result<String, StoreError> {
        let made = id();
        Ok(transact!(self, Lock::Accounts, tx => {
            let there: Option<String> = sqlx::query_scalar(
                "SELECT w.id FROM workspaces w WHERE w.name = $1 AND w.kind = 'organisation' AND NOT EXISTS ( \
                 SELECT 1 FROM members m JOIN users u ON u.id = m.user_id WHERE m.workspace_id = w.id AND NOT u.instance_admin) \
                 ORDER BY w.id LIMIT 1")
                .bind(NAME)
                .fetch_optional(&mut *tx)
                .await?;
            if let Some(there) = there {
                there
            } else {
                sqlx::query("INSERT INTO workspaces (id, name, kind, created_at, version) VALUES ($1, $2, 'organisation', $3, 1)")
                    .bind(&made)
                    .bind(NAME)
                    .bind(now)
                    .execute(&mut *tx)
                    .await?;
                sqlx::query("INSERT INTO members (workspace_id, user_id, role, created_at) \
                             SELECT $1, u.id, 'owner', $2 FROM users u WHERE u.instance_admin AND u.deactivated_at IS NULL")
                    .bind(&made)
                    .bind(now)
                    .execute(&mut *tx)
                    .await?;
                made
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::each;
    use super::super::users::{Claim, Home, NewUser};
    use super::super::workspaces::Visible;

    #[tokio::test]
    async fn the_sample_is_the_first_owners() {
        each(async |store| {
            let place = store.sample_workspace(1).await.unwrap();
            assert_eq!(store.sample_workspace(2).await.unwrap(), place);
            store.offer_instance(b"link", 1, 100).await.unwrap();
            let ada = NewUser {
                email: "ada@example.com".into(),
                name: "Ada".into(),
                password: None,
                instance_admin: true,
            };
            let claimed = store
                .claim_instance(b"link", &ada, Home::Personal, 3)
                .await
                .unwrap();
            let Claim::Made(ada) = claimed else {
                panic!("{claimed:?}")
            };
            let seen = store
                .workspace_of(&ada, &place, Visible::Every)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(seen.role, "owner");
        })
        .await;
    }

    #[tokio::test]
    async fn a_workspace_that_somebody_calls_sample_is_not_it() {
        each(async |store| {
            let new = |name: &str, instance_admin| NewUser {
                email: format!("{name}@example.com"),
                name: name.into(),
                password: None,
                instance_admin,
            };
            let ada = store
                .add_user(&new("ada", true), Home::Personal, 1)
                .await
                .unwrap();
            let eve = store
                .add_user(&new("eve", false), Home::Personal, 1)
                .await
                .unwrap();
            let hers = store.add_workspace("Sample", &eve, 1).await.unwrap();
            let role = crate::access::Role::Admin;
            assert!(store.add_member(&hers, &ada, role, 1).await.unwrap());
            let place = store.sample_workspace(2).await.unwrap();
            assert_ne!(place, hers);
            let seen = async |user: &str| {
                let found = store.workspace_of(user, &place, Visible::Every).await;
                found.unwrap().is_some()
            };
            assert!(seen(&ada).await && !seen(&eve).await);
            assert_eq!(store.sample_workspace(3).await.unwrap(), place);
        })
        .await;
    }
}
