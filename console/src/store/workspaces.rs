//! Workspaces and who is in them.

use super::change::about;
use super::users::Changed;
use super::{Lock, Store, StoreError, change, on, row, transact};
use crate::access::Role;
use crate::clock::{Millis, id};

row! {
    /// A workspace as one of its members sees it.
    pub struct Workspace {
        /// Its id.
        pub id: String,
        /// Its name.
        pub name: String,
        /// `personal`, `organisation` or `shared`.
        pub kind: String,
        /// The member's role.
        pub role: String,
        /// When it was made.
        pub created_at: Millis,
        /// Counts its changes.
        pub version: i64,
    }
}

row! {
    /// A member.
    pub struct Member {
        /// The user.
        pub user_id: String,
        /// Its address.
        pub email: String,
        /// Its name.
        pub name: String,
        /// Its role.
        pub role: String,
        /// Since when.
        pub created_at: Millis,
    }
}

/// Which workspaces there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visible {
    /// All.
    Every,
    /// The one that everybody shares.
    Shared,
}

impl Visible {
    /// By the setting.
    pub const fn of(enabled: bool) -> Self {
        if enabled { Self::Every } else { Self::Shared }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Every => "%",
            Self::Shared => "shared",
        }
    }
}

/// A change of a membership; `role` `None` takes it away.
#[derive(Clone, Copy, Debug)]
pub struct MemberChange<'a> {
    /// Where.
    pub workspace: &'a str,
    /// Who changes it; their role is read again in the transaction.
    pub by: &'a str,
    /// Whose.
    pub user: &'a str,
    /// To what.
    pub role: Option<Role>,
}

/// What became of a change of a membership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Membership {
    /// Done, or not there.
    Became(Changed),
    /// Only an owner gives or takes an owner's role, and only an admin changes others at all.
    NotYours,
}

impl Store {
    /// The workspaces of a user, after an id.
    pub async fn workspaces_of(
        &self,
        user: &str,
        visible: Visible,
        after: &str,
        most: i64,
    ) -> Result<Vec<Workspace>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT w.id, w.name, w.kind, m.role, w.created_at, w.version FROM workspaces w \
             JOIN members m ON m.workspace_id = w.id \
             WHERE m.user_id = $1 AND w.kind LIKE $2 AND w.id > $3 ORDER BY w.id LIMIT $4",
        )
        .bind(user)
        .bind(visible.kind())
        .bind(after)
        .bind(most)
        .fetch_all(pool)
        .await)?)
    }

    /// One workspace, if the user is in it.
    pub async fn workspace_of(
        &self,
        user: &str,
        workspace: &str,
        visible: Visible,
    ) -> Result<Option<Workspace>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT w.id, w.name, w.kind, m.role, w.created_at, w.version FROM workspaces w \
             JOIN members m ON m.workspace_id = w.id \
             WHERE m.user_id = $1 AND w.kind LIKE $2 AND w.id = $3",
        )
        .bind(user)
        .bind(visible.kind())
        .bind(workspace)
        .fetch_optional(pool)
        .await)?)
    }

    /// Makes an organisation's workspace with its owner.
    pub async fn add_workspace(
        &self,
        name: &str,
        owner: &str,
        now: Millis,
    ) -> Result<String, StoreError> {
        let made = id();
        about(format!("workspace={made}"));
        Ok(change!(self, Lock::Accounts, tx => {
            sqlx::query("INSERT INTO workspaces (id, name, kind, created_at, version) VALUES ($1, $2, 'organisation', $3, 1)")
                .bind(&made)
                .bind(name)
                .bind(now)
                .execute(&mut *tx)
                .await?;
            sqlx::query("INSERT INTO members (workspace_id, user_id, role, created_at) VALUES ($1, $2, $3, $4)")
                .bind(&made)
                .bind(owner)
                .bind(Role::Owner.word())
                .bind(now)
                .execute(&mut *tx)
                .await?;
            made
        }))
    }

    /// How many organisations' workspaces somebody owns.
    pub async fn owned_workspaces(&self, user: &str) -> Result<i64, StoreError> {
        Ok(on!(self, pool => sqlx::query_scalar(
            "SELECT count(*) FROM members m JOIN workspaces w ON w.id = m.workspace_id \
             WHERE m.user_id = $1 AND m.role = 'owner' AND w.kind = 'organisation'")
            .bind(user).fetch_one(pool).await)?)
    }

    /// Another name, if it is still at this version.
    pub async fn rename_workspace(
        &self,
        id: &str,
        name: &str,
        version: i64,
    ) -> Result<Changed, StoreError> {
        Ok(change!(self, Lock::Accounts, tx => {
            let done = sqlx::query("UPDATE workspaces SET name = $1, version = version + 1 WHERE id = $2 AND version = $3")
                .bind(name)
                .bind(id)
                .bind(version)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            if done == 1 { Changed::Done } else { Changed::NotThere }
        }))
    }

    /// Members after a user's id.
    pub async fn members(
        &self,
        workspace: &str,
        after: &str,
        most: i64,
    ) -> Result<Vec<Member>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT m.user_id, u.email, u.name, m.role, m.created_at FROM members m \
             JOIN users u ON u.id = m.user_id \
             WHERE m.workspace_id = $1 AND m.user_id > $2 ORDER BY m.user_id LIMIT $3",
        )
        .bind(workspace)
        .bind(after)
        .bind(most)
        .fetch_all(pool)
        .await)?)
    }

    /// Adds somebody who is not in it; `false`: they are already.
    pub async fn add_member(
        &self,
        workspace: &str,
        user: &str,
        role: Role,
        now: Millis,
    ) -> Result<bool, StoreError> {
        about(format!("workspace={workspace} user={user}"));
        Ok(change!(self, Lock::Accounts, tx => {
            let added = sqlx::query(
                "INSERT INTO members (workspace_id, user_id, role, created_at) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (workspace_id, user_id) DO NOTHING",
            )
            .bind(workspace)
            .bind(user)
            .bind(role.word())
            .bind(now)
            .execute(&mut *tx)
            .await?
            .rows_affected();
            added == 1
        }))
    }

    /// Changes or ends a membership. One owner who may sign in always stays, whoever changes what at the
    /// same instant. Who is taken out has no tokens there any more.
    pub async fn change_member(&self, change: MemberChange<'_>) -> Result<Membership, StoreError> {
        let MemberChange {
            workspace,
            by,
            user,
            role,
        } = change;
        Ok(change!(self, Lock::Accounts, tx => {
            let held = "SELECT role FROM members WHERE workspace_id = $1 AND user_id = $2";
            let of_whom: Option<String> = sqlx::query_scalar(held).bind(workspace).bind(user).fetch_optional(&mut *tx).await?;
            let of_actor: Option<String> = sqlx::query_scalar(held).bind(workspace).bind(by).fetch_optional(&mut *tx).await?;
            let Some(was) = of_whom.as_deref().and_then(Role::parse) else {
                return Ok(Membership::Became(Changed::NotThere));
            };
            let leaves = by == user && role.is_none();
            let actor = of_actor.as_deref().and_then(Role::parse);
            let needs = if was == Role::Owner || role == Some(Role::Owner) { Role::Owner } else { Role::Admin };
            if !leaves && actor.is_none_or(|actor| actor < needs) {
                return Ok(Membership::NotYours);
            }
            let others: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM members m JOIN users u ON u.id = m.user_id \
                 WHERE m.workspace_id = $1 AND m.role = 'owner' AND m.user_id <> $2 AND u.deactivated_at IS NULL")
                .bind(workspace)
                .bind(user)
                .fetch_one(&mut *tx)
                .await?;
            if others == 0 && was == Role::Owner && role != Some(Role::Owner) {
                return Ok(Membership::Became(Changed::LastOne));
            }
            if let Some(role) = role {
                sqlx::query("UPDATE members SET role = $1 WHERE workspace_id = $2 AND user_id = $3")
                    .bind(role.word())
                    .bind(workspace)
                    .bind(user)
                    .execute(&mut *tx)
                    .await?;
            } else {
                for over in [
                    "DELETE FROM members WHERE workspace_id = $1 AND user_id = $2",
                    "DELETE FROM tokens WHERE workspace_id = $1 AND user_id = $2",
                ] {
                    sqlx::query(over).bind(workspace).bind(user).execute(&mut *tx).await?;
                }
            }
            Membership::Became(Changed::Done)
        }))
    }

    /// Puts everybody in the shared workspace who is not in it; the first person owns it.
    pub async fn share_with_everybody(&self, now: Millis) -> Result<(), StoreError> {
        transact!(self, Lock::Accounts, tx => {
            let users: Vec<String> = sqlx::query_scalar("SELECT id FROM users ORDER BY id").fetch_all(&mut *tx).await?;
            let shared: Option<String> = sqlx::query_scalar("SELECT id FROM workspaces WHERE kind = 'shared'")
                .fetch_optional(&mut *tx)
                .await?;
            if users.is_empty() {
                return Ok(());
            }
            let (workspace, new) = shared.map_or_else(|| (id(), true), |there| (there, false));
            if new {
                sqlx::query("INSERT INTO workspaces (id, name, kind, created_at, version) VALUES ($1, 'Everybody', 'shared', $2, 1)")
                    .bind(&workspace)
                    .bind(now)
                    .execute(&mut *tx)
                    .await?;
            }
            for (place, user) in users.iter().enumerate() {
                let role = if new && place == 0 { Role::Owner } else { Role::Member };
                sqlx::query("INSERT INTO members (workspace_id, user_id, role, created_at) VALUES ($1, $2, $3, $4) \
                             ON CONFLICT (workspace_id, user_id) DO NOTHING")
                    .bind(&workspace)
                    .bind(user)
                    .bind(role.word())
                    .bind(now)
                    .execute(&mut *tx)
                    .await?;
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::each;
    use super::super::users::{Home, NewUser, UserChange};
    use super::*;

    async fn user(store: &Store, name: &str) -> String {
        let new = NewUser {
            email: format!("{name}@example.com"),
            name: name.into(),
            password: None,
            instance_admin: false,
        };
        store.add_user(&new, Home::Personal, 1).await.unwrap()
    }

    #[tokio::test]
    async fn two_owners_who_remove_each_other_leave_one() {
        each(async |store| {
            let (ada, bob) = (user(&store, "ada").await, user(&store, "bob").await);
            let workspace = store.add_workspace("Both", &ada, 2).await.unwrap();
            assert!(
                store
                    .add_member(&workspace, &bob, Role::Owner, 3)
                    .await
                    .unwrap()
            );
            let change = |by, user| MemberChange {
                workspace: &workspace,
                by,
                user,
                role: None,
            };
            let done = futures_util::future::join(
                store.change_member(change(&ada, &bob)),
                store.change_member(change(&bob, &ada)),
            )
            .await;
            let done = [done.0.unwrap(), done.1.unwrap()];
            assert_eq!(
                done.iter()
                    .filter(|d| **d == Membership::Became(Changed::Done))
                    .count(),
                1,
                "{done:?}"
            );
            assert_eq!(store.members(&workspace, "", 10).await.unwrap().len(), 1);
        })
        .await;
    }

    #[tokio::test]
    async fn an_owner_who_may_not_sign_in_is_no_owner_who_stays() {
        each(async |store| {
            let (ada, bob) = (user(&store, "ada").await, user(&store, "bob").await);
            let admin = NewUser {
                email: "root@example.com".into(),
                name: "root".into(),
                password: None,
                instance_admin: true,
            };
            store.add_user(&admin, Home::Personal, 1).await.unwrap();
            let workspace = store.add_workspace("Both", &ada, 2).await.unwrap();
            store
                .add_member(&workspace, &bob, Role::Owner, 3)
                .await
                .unwrap();
            let off = UserChange {
                deactivated: Some(true),
                ..UserChange::default()
            };
            let gone = store.user(&bob).await.unwrap().unwrap();
            assert_eq!(
                store.change_user(&gone, &off, 4).await.unwrap(),
                Changed::Done
            );
            let change = |user, role| MemberChange {
                workspace: &workspace,
                by: &ada,
                user,
                role,
            };
            for role in [None, Some(Role::Member)] {
                let left = store.change_member(change(&ada, role)).await.unwrap();
                assert_eq!(left, Membership::Became(Changed::LastOne), "{role:?}");
            }
            let removed = store.change_member(change(&bob, None)).await.unwrap();
            assert_eq!(removed, Membership::Became(Changed::Done));
        })
        .await;
    }

    #[tokio::test]
    async fn an_admin_neither_becomes_owner_nor_touches_one() {
        each(async |store| {
            let (ada, bob, eve) = (
                user(&store, "ada").await,
                user(&store, "bob").await,
                user(&store, "eve").await,
            );
            let workspace = store.add_workspace("Three", &ada, 2).await.unwrap();
            store
                .add_member(&workspace, &bob, Role::Admin, 3)
                .await
                .unwrap();
            store
                .add_member(&workspace, &eve, Role::Member, 3)
                .await
                .unwrap();
            for (by, user, role, fits) in [
                (&bob, &bob, Some(Role::Owner), false),
                (&bob, &ada, None, false),
                (&eve, &bob, Some(Role::Member), false),
                (&bob, &eve, Some(Role::Admin), true),
                (&eve, &eve, None, true),
                (&ada, &ada, None, false),
            ] {
                let done = store
                    .change_member(MemberChange {
                        workspace: &workspace,
                        by,
                        user,
                        role,
                    })
                    .await
                    .unwrap();
                assert_eq!(
                    done == Membership::Became(Changed::Done),
                    fits,
                    "{by} {user} {role:?}: {done:?}"
                );
            }
        })
        .await;
    }

    #[tokio::test]
    async fn everybody_comes_into_the_shared_workspace_and_the_first_person_owns_it() {
        each(async |store| {
            let (ada, bob) = (user(&store, "ada").await, user(&store, "bob").await);
            store.share_with_everybody(5).await.unwrap();
            store.share_with_everybody(6).await.unwrap();
            for (user, role) in [(&ada, "owner"), (&bob, "member")] {
                let seen = store
                    .workspaces_of(user, Visible::Shared, "", 10)
                    .await
                    .unwrap();
                assert_eq!(seen.len(), 1);
                assert_eq!(seen[0].role, role);
            }
            assert_eq!(
                store
                    .workspaces_of(&ada, Visible::Every, "", 10)
                    .await
                    .unwrap()
                    .len(),
                2
            );
        })
        .await;
    }
}
