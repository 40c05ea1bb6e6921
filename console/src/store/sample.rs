//! The workspace of the sample, which is there before anybody is; the first owner owns it with the instance.

use super::{Lock, Store, StoreError, transact};
use crate::clock::{Millis, id};

/// Its name.
const NAME: &str = "Sample";

impl Store {
    /// The workspace in which the sample runs: one that nobody is in, or, once somebody has it, the oldest of this name.
    pub async fn sample_workspace(&self, now: Millis) -> Result<String, StoreError> {
        let made = id();
        Ok(transact!(self, Lock::Accounts, tx => {
            let there: Option<String> = sqlx::query_scalar(
                "SELECT id FROM workspaces WHERE name = $1 AND kind = 'organisation' ORDER BY id LIMIT 1")
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
}
