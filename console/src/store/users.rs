//! Users, the first owner's link, and how often somebody guessed.

use super::change::about;
use super::{Lock, Store, StoreError, change, on, row, transact};
use crate::access::Role;
use crate::clock::{Millis, id};

row! {
    /// A person.
    pub struct User {
        /// Its id.
        pub id: String,
        /// Its address, lower case.
        pub email: String,
        /// Its name.
        pub name: String,
        /// Argon2id, if it signs in with a password.
        pub password: Option<String>,
        /// Whether it administers the instance.
        pub instance_admin: bool,
        /// Since when it may not sign in.
        pub deactivated_at: Option<Millis>,
        /// When it was made.
        pub created_at: Millis,
        /// Counts its changes.
        pub version: i64,
    }
}

/// Who is to be made.
#[derive(Clone, Debug)]
pub struct NewUser {
    /// Its address, lower case.
    pub email: String,
    /// Its name.
    pub name: String,
    /// Argon2id.
    pub password: Option<String>,
    /// Whether it administers the instance.
    pub instance_admin: bool,
}

/// Which workspaces a new user gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// One of its own.
    Personal,
    /// The one that everybody shares, with this role.
    Shared(Role),
}

/// What became of a claim of the first owner's link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The owner was made.
    Made(String),
    /// There is no such link, or it is over.
    NoLink,
    /// There is an owner already.
    TooLate,
}

/// A change of a user by an administrator.
#[derive(Clone, Debug, Default)]
pub struct UserChange {
    /// Another name.
    pub name: Option<String>,
    /// Administers the instance or not.
    pub instance_admin: Option<bool>,
    /// May not sign in any more, or again.
    pub deactivated: Option<bool>,
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// Done.
    Done,
    /// There is no such row, or it has changed since it was read.
    NotThere,
    /// Nobody would be left who may undo it.
    LastOne,
}

/// Every column, for [`User`].
macro_rules! users_where {
    ($rest:literal) => {
        concat!(
            "SELECT id, email, name, password, instance_admin, deactivated_at, created_at, version FROM users WHERE ",
            $rest
        )
    };
}

macro_rules! insert_user {
    ($tx:expr, $user:expr, $home:expr, $now:expr) => {{
        let (user_id, own) = (id(), id());
        about(format!("user={user_id}"));
        sqlx::query(
            "INSERT INTO users (id, email, name, password, instance_admin, created_at, version) \
             VALUES ($1, $2, $3, $4, $5, $6, 1)",
        )
        .bind(&user_id)
        .bind(&$user.email)
        .bind(&$user.name)
        .bind(&$user.password)
        .bind($user.instance_admin)
        .bind($now)
        .execute(&mut *$tx)
        .await?;
        let (workspace, role) = match $home {
            Home::Personal => (None, Role::Owner),
            Home::Shared(role) => {
                let shared: Option<String> = sqlx::query_scalar("SELECT id FROM workspaces WHERE kind = 'shared'")
                    .fetch_optional(&mut *$tx)
                    .await?;
                (shared, role)
            }
        };
        let workspace = match workspace {
            Some(there) => there,
            None => {
                let (kind, name) = match $home {
                    Home::Personal => ("personal", $user.name.as_str()),
                    Home::Shared(_) => ("shared", "Everybody"),
                };
                sqlx::query("INSERT INTO workspaces (id, name, kind, created_at, version) VALUES ($1, $2, $3, $4, 1)")
                    .bind(&own)
                    .bind(name)
                    .bind(kind)
                    .bind($now)
                    .execute(&mut *$tx)
                    .await?;
                own
            }
        };
        sqlx::query("INSERT INTO members (workspace_id, user_id, role, created_at) VALUES ($1, $2, $3, $4)")
            .bind(&workspace)
            .bind(&user_id)
            .bind(role.word())
            .bind($now)
            .execute(&mut *$tx)
            .await?;
        user_id
    }};
}
pub(super) use insert_user;

impl Store {
    /// Makes a user with its workspace; an address that is taken is [`StoreError::is_taken`].
    pub async fn add_user(
        &self,
        user: &NewUser,
        home: Home,
        now: Millis,
    ) -> Result<String, StoreError> {
        Ok(change!(self, Lock::Accounts, tx => { insert_user!(tx, user, home, now) }))
    }

    /// Makes the first owner, if the link is good and there is none yet. The link is used up.
    pub async fn claim_instance(
        &self,
        digest: &[u8],
        user: &NewUser,
        home: Home,
        now: Millis,
    ) -> Result<Claim, StoreError> {
        Ok(change!(self, Lock::Accounts, tx => {
            let users: i64 = sqlx::query_scalar("SELECT count(*) FROM users").fetch_one(&mut *tx).await?;
            let used = sqlx::query("DELETE FROM owner_links WHERE digest = $1 AND expires_at > $2")
                .bind(digest)
                .bind(now)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            match (users, used) {
                (_, 0) => Claim::NoLink,
                (0, _) => {
                    let made = insert_user!(tx, user, home, now);
                    // what was there before anybody was
                    sqlx::query("INSERT INTO members (workspace_id, user_id, role, created_at) \
                        SELECT w.id, $1, 'owner', $2 FROM workspaces w \
                        WHERE NOT EXISTS (SELECT 1 FROM members m WHERE m.workspace_id = w.id)")
                        .bind(&made)
                        .bind(now)
                        .execute(&mut *tx)
                        .await?;
                    Claim::Made(made)
                }
                _ => Claim::TooLate,
            }
        }))
    }

    /// Keeps a link in place of earlier ones; `false`: there is an owner, and no link is kept.
    pub async fn offer_instance(
        &self,
        digest: &[u8],
        now: Millis,
        ends: Millis,
    ) -> Result<bool, StoreError> {
        Ok(transact!(self, Lock::Accounts, tx => {
            let users: i64 = sqlx::query_scalar("SELECT count(*) FROM users").fetch_one(&mut *tx).await?;
            sqlx::query("DELETE FROM owner_links").execute(&mut *tx).await?;
            if users == 0 {
                sqlx::query("INSERT INTO owner_links (digest, created_at, expires_at) VALUES ($1, $2, $3)")
                    .bind(digest)
                    .bind(now)
                    .bind(ends)
                    .execute(&mut *tx)
                    .await?;
            }
            users == 0
        }))
    }

    /// Whether nobody is there yet, and whether a link is still good.
    pub async fn unclaimed(&self, now: Millis) -> Result<Option<bool>, StoreError> {
        let users: i64 = on!(self, pool => sqlx::query_scalar("SELECT count(*) FROM users").fetch_one(pool).await)?;
        let links: i64 = on!(self, pool => sqlx::query_scalar("SELECT count(*) FROM owner_links WHERE expires_at > $1")
            .bind(now).fetch_one(pool).await)?;
        Ok((users == 0).then_some(links > 0))
    }

    /// By address.
    pub async fn user_by_email(&self, email: &str) -> Result<Option<User>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(users_where!("email = $1"))
            .bind(email).fetch_optional(pool).await)?)
    }

    /// By id.
    pub async fn user(&self, id: &str) -> Result<Option<User>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(users_where!("id = $1"))
            .bind(id).fetch_optional(pool).await)?)
    }

    /// Users after an id, in the order of their making; those whose address or name holds a text.
    pub async fn users(
        &self,
        after: &str,
        holding: &str,
        most: i64,
    ) -> Result<Vec<User>, StoreError> {
        let like = format!("%{}%", super::literal(&holding.to_lowercase()));
        Ok(on!(self, pool => sqlx::query_as(users_where!(
            "id > $1 AND (email LIKE $2 ESCAPE '!' OR lower(name) LIKE $2 ESCAPE '!') ORDER BY id LIMIT $3"
        ))
        .bind(after)
        .bind(&like)
        .bind(most)
        .fetch_all(pool)
        .await)?)
    }

    /// Changes a user. The last administrator of the instance stays one; who is deactivated is signed out everywhere,
    /// and has no tokens any more.
    pub async fn change_user(
        &self,
        user: &User,
        change: &UserChange,
        now: Millis,
    ) -> Result<Changed, StoreError> {
        let name = change.name.as_ref().unwrap_or(&user.name);
        let admin = change.instance_admin.unwrap_or(user.instance_admin);
        let deactivated = match change.deactivated {
            Some(true) => Some(user.deactivated_at.unwrap_or(now)),
            Some(false) => None,
            None => user.deactivated_at,
        };
        Ok(change!(self, Lock::Accounts, tx => {
            let others: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM users WHERE instance_admin = $1 AND deactivated_at IS NULL AND id <> $2",
            )
            .bind(true)
            .bind(&user.id)
            .fetch_one(&mut *tx)
            .await?;
            if others == 0 && (!admin || deactivated.is_some()) {
                return Ok(Changed::LastOne);
            }
            let done = sqlx::query(
                "UPDATE users SET name = $1, instance_admin = $2, deactivated_at = $3, version = version + 1 \
                 WHERE id = $4 AND version = $5",
            )
            .bind(name)
            .bind(admin)
            .bind(deactivated)
            .bind(&user.id)
            .bind(user.version)
            .execute(&mut *tx)
            .await?
            .rows_affected();
            if done == 1 && deactivated.is_some() {
                for over in ["DELETE FROM sessions WHERE user_id = $1", "DELETE FROM tokens WHERE user_id = $1"] {
                    sqlx::query(over).bind(&user.id).execute(&mut *tx).await?;
                }
            }
            if done == 1 { Changed::Done } else { Changed::NotThere }
        }))
    }

    /// Another password in place of the one that was proven; every session but one ends, and every API token: who changes
    /// a password because somebody else knows it is rid of all that was made with it. `false`: it was replaced by another
    /// meanwhile.
    pub async fn change_password(
        &self,
        user: &str,
        proven: Option<&str>,
        password: &str,
        keep: &str,
    ) -> Result<bool, StoreError> {
        Ok(change!(self, Lock::Accounts, tx => {
            let was: Option<Option<String>> = sqlx::query_scalar("SELECT password FROM users WHERE id = $1")
                .bind(user)
                .fetch_optional(&mut *tx)
                .await?;
            if was.flatten().as_deref() != proven {
                return Ok(false);
            }
            sqlx::query("UPDATE users SET password = $1, version = version + 1 WHERE id = $2")
                .bind(password)
                .bind(user)
                .execute(&mut *tx)
                .await?;
            sqlx::query("DELETE FROM sessions WHERE user_id = $1 AND id <> $2")
                .bind(user)
                .bind(keep)
                .execute(&mut *tx)
                .await?;
            sqlx::query("DELETE FROM tokens WHERE user_id = $1")
                .bind(user)
                .execute(&mut *tx)
                .await?;
            true
        }))
    }

    /// Counts one attempt, if there are fewer than so many since a time; `false`: there are as many. What is refused is
    /// not counted: it would grow the store as fast as somebody asks, and put the end of the waiting off for ever.
    pub async fn count_attempt(
        &self,
        counted: &str,
        most: i64,
        since: Millis,
        now: Millis,
    ) -> Result<bool, StoreError> {
        let made = id();
        // kept first, so that many at once see each other
        on!(self, pool => sqlx::query("INSERT INTO attempts (id, counted, at) VALUES ($1, $2, $3)")
            .bind(&made).bind(counted).bind(now).execute(pool).await.map(|_| ()))?;
        let there: i64 = on!(self, pool => sqlx::query_scalar("SELECT count(*) FROM attempts WHERE counted = $1 AND at > $2")
            .bind(counted).bind(since).fetch_one(pool).await)?;
        if there > most {
            on!(self, pool => sqlx::query("DELETE FROM attempts WHERE id = $1")
                .bind(&made).execute(pool).await.map(|_| ()))?;
        }
        Ok(there <= most)
    }

    /// Who proved it is who it says has guessed nothing.
    pub async fn forget_attempts(&self, counted: &str) -> Result<(), StoreError> {
        on!(self, pool => sqlx::query("DELETE FROM attempts WHERE counted = $1")
            .bind(counted).execute(pool).await.map(|_| ()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::each;
    use super::*;

    fn ada(admin: bool) -> NewUser {
        NewUser {
            email: format!("{}@example.com", id()),
            name: "Ada".into(),
            password: None,
            instance_admin: admin,
        }
    }

    #[tokio::test]
    async fn two_claims_of_one_link_make_one_owner() {
        each(async |store| {
            assert!(store.offer_instance(b"link", 1, 100).await.unwrap());
            let (one, two) = (ada(true), ada(true));
            let claims = futures_util::future::join(
                store.claim_instance(b"link", &one, Home::Personal, 2),
                store.claim_instance(b"link", &two, Home::Personal, 2),
            )
            .await;
            let made = [claims.0.unwrap(), claims.1.unwrap()]
                .iter()
                .filter(|c| matches!(c, Claim::Made(_)))
                .count();
            assert_eq!(made, 1);
            assert!(!store.offer_instance(b"other", 3, 100).await.unwrap());
            assert_eq!(
                store
                    .claim_instance(b"other", &ada(true), Home::Personal, 4)
                    .await
                    .unwrap(),
                Claim::NoLink
            );
        })
        .await;
    }

    #[tokio::test]
    async fn a_link_that_is_over_or_was_replaced_makes_nobody() {
        each(async |store| {
            store.offer_instance(b"first", 1, 100).await.unwrap();
            store.offer_instance(b"second", 2, 100).await.unwrap();
            for (digest, at) in [(b"first".as_slice(), 3), (b"second".as_slice(), 100)] {
                let claim = store
                    .claim_instance(digest, &ada(true), Home::Personal, at)
                    .await
                    .unwrap();
                assert_eq!(claim, Claim::NoLink);
            }
            assert_eq!(store.unclaimed(99).await.unwrap(), Some(true));
            assert_eq!(store.unclaimed(100).await.unwrap(), Some(false));
        })
        .await;
    }

    #[tokio::test]
    async fn one_administrator_always_stays() {
        each(async |store| {
            let one = store.add_user(&ada(true), Home::Personal, 1).await.unwrap();
            let two = store.add_user(&ada(true), Home::Personal, 1).await.unwrap();
            let (one, two) = (
                store.user(&one).await.unwrap().unwrap(),
                store.user(&two).await.unwrap().unwrap(),
            );
            let off = UserChange {
                deactivated: Some(true),
                ..UserChange::default()
            };
            let changes = futures_util::future::join(
                store.change_user(&one, &off, 2),
                store.change_user(&two, &off, 2),
            )
            .await;
            let mut changes = [changes.0.unwrap(), changes.1.unwrap()];
            changes.sort_by_key(|c| *c == Changed::LastOne);
            assert_eq!(changes, [Changed::Done, Changed::LastOne]);
        })
        .await;
    }

    #[tokio::test]
    async fn what_is_refused_is_not_counted_and_many_at_once_are_no_more_than_may_be() {
        each(async |store| {
            let many = (0..20).map(|_| store.count_attempt("account:a", 5, 0, 10));
            let may = futures_util::future::join_all(many).await;
            assert!(may.into_iter().filter(|may| *may.as_ref().unwrap()).count() <= 5);
            for _ in 0..20 {
                let _ = store.count_attempt("account:b", 5, 0, 10).await.unwrap();
            }
            let kept: i64 = on!(&store, pool => sqlx::query_scalar("SELECT count(*) FROM attempts WHERE counted = 'account:b'")
                .fetch_one(pool).await).unwrap();
            assert_eq!(kept, 5);
            // so the waiting ends when the guesses are old
            assert!(store.count_attempt("account:b", 5, 10, 20).await.unwrap());
        })
        .await;
    }

    #[tokio::test]
    async fn a_pattern_in_a_filter_is_only_text() {
        each(async |store| {
            store
                .add_user(&ada(false), Home::Shared(Role::Member), 1)
                .await
                .unwrap();
            for text in ["%", "_", "!", "' OR 1=1 --", "\\"] {
                assert_eq!(store.users("", text, 10).await.unwrap(), [], "{text}");
            }
            assert_eq!(store.users("", "aDA", 10).await.unwrap().len(), 1);
        })
        .await;
    }
}
