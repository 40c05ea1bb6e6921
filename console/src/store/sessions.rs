//! Sessions of browsers and tokens of programs: whose, until when, found by the digest of their secret.

use super::change::about;
use super::{Lock, Store, StoreError, change, on, row};
use crate::clock::{MINUTE, Millis, id};

row! {
    /// A session.
    pub struct Session {
        /// Its id.
        pub id: String,
        /// Whose.
        pub user_id: String,
        /// The client's address when it began.
        pub address: String,
        /// What the browser calls itself.
        pub agent: String,
        /// When it began.
        pub created_at: Millis,
        /// When it was last used, to the minute.
        pub seen_at: Millis,
        /// When it ends.
        pub expires_at: Millis,
    }
}

row! {
    /// A token.
    pub struct Token {
        /// Its id.
        pub id: String,
        /// The one workspace that it acts in.
        pub workspace_id: String,
        /// Whose role it acts with.
        pub user_id: String,
        /// What its creator calls it.
        pub name: String,
        /// `read` or `write`.
        pub scope: String,
        /// When it was made.
        pub created_at: Millis,
        /// When it ends, if ever.
        pub expires_at: Option<Millis>,
        /// When it was last used, to the minute.
        pub used_at: Option<Millis>,
    }
}

/// A session that begins.
#[derive(Clone, Copy, Debug)]
pub struct NewSession<'a> {
    /// Whose.
    pub user: &'a str,
    /// The user's version when it was proven who it is; `None` if whatever became of it meanwhile does not matter.
    pub proven: Option<i64>,
    /// Of its secret.
    pub digest: &'a [u8],
    /// The client's address.
    pub address: &'a str,
    /// What the browser calls itself.
    pub agent: &'a str,
    /// When it ends.
    pub ends: Millis,
}

/// A token to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewToken<'a> {
    /// Where it acts.
    pub workspace: &'a str,
    /// Whose it is.
    pub user: &'a str,
    /// What it is called.
    pub name: &'a str,
    /// `read` or `write`.
    pub scope: &'a str,
    /// Of its secret.
    pub digest: &'a [u8],
    /// When it ends, if ever.
    pub ends: Option<Millis>,
}

/// Every column, for [`Session`].
macro_rules! sessions_where {
    ($rest:literal) => {
        concat!("SELECT id, user_id, address, agent, created_at, seen_at, expires_at FROM sessions WHERE ", $rest)
    };
}

/// Every column, for [`Token`].
macro_rules! tokens_where {
    ($rest:literal) => {
        concat!("SELECT id, workspace_id, user_id, name, scope, created_at, expires_at, used_at FROM tokens WHERE ", $rest)
    };
}

impl Store {
    /// Begins a session and returns its id; `None`: what was proven does not hold any more (another password, or the user
    /// was deactivated), and whoever ended the sessions then has ended this one.
    pub async fn add_session(
        &self,
        session: NewSession<'_>,
        now: Millis,
    ) -> Result<Option<String>, StoreError> {
        let made = id();
        about(format!("user={}", session.user));
        Ok(change!(self, Lock::Accounts, tx => {
            let is: Option<i64> = sqlx::query_scalar("SELECT version FROM users WHERE id = $1 AND deactivated_at IS NULL")
                .bind(session.user)
                .fetch_optional(&mut *tx)
                .await?;
            if session.proven.is_some_and(|proven| is != Some(proven)) {
                return Ok(None);
            }
            sqlx::query(
            "INSERT INTO sessions (id, user_id, digest, address, agent, created_at, seen_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $6, $7)")
            .bind(&made)
            .bind(session.user)
            .bind(session.digest)
            .bind(session.address)
            .bind(session.agent)
            .bind(now)
            .bind(session.ends)
            .execute(&mut *tx)
            .await?;
            Some(made)
        }))
    }

    /// The live session of a secret, unless the user's provider has not confirmed them for [`CONFIRMED`]; that it was used
    /// is noted once a minute.
    ///
    /// [`CONFIRMED`]: super::identities::CONFIRMED
    pub async fn session(&self, digest: &[u8], now: Millis) -> Result<Option<Session>, StoreError> {
        let found: Option<Session> = on!(self, pool => sqlx::query_as(sessions_where!(
            "digest = $1 AND expires_at > $2 AND NOT EXISTS \
             (SELECT 1 FROM identities i WHERE i.user_id = sessions.user_id AND i.checked_at <= $2 - 900000)"))
            .bind(digest).bind(now).fetch_optional(pool).await)?;
        if let Some(session) = found.as_ref().filter(|s| now - s.seen_at > MINUTE) {
            on!(self, pool => sqlx::query("UPDATE sessions SET seen_at = $1 WHERE id = $2")
                .bind(now).bind(&session.id).execute(pool).await.map(|_| ()))?;
        }
        Ok(found)
    }

    /// A user's live sessions, oldest first.
    pub async fn sessions_of(&self, user: &str, now: Millis) -> Result<Vec<Session>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(sessions_where!("user_id = $1 AND expires_at > $2 ORDER BY id LIMIT 500"))
            .bind(user).bind(now).fetch_all(pool).await)?,
        )
    }

    /// Whether a user has a live session that began at this address.
    pub async fn is_signed_in_from(
        &self,
        user: &str,
        address: &str,
        now: Millis,
    ) -> Result<bool, StoreError> {
        let there: i64 = on!(self, pool => sqlx::query_scalar(
            "SELECT count(*) FROM sessions WHERE user_id = $1 AND address = $2 AND expires_at > $3")
            .bind(user).bind(address).bind(now).fetch_one(pool).await)?;
        Ok(there > 0)
    }

    /// Ends one session of a user; `false`: there is none.
    pub async fn end_session(&self, user: &str, session: &str) -> Result<bool, StoreError> {
        Ok(change!(self, Lock::Accounts, tx => {
            let ended = sqlx::query("DELETE FROM sessions WHERE user_id = $1 AND id = $2")
                .bind(user)
                .bind(session)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            ended == 1
        }))
    }

    /// Ends every session of a user.
    pub async fn end_sessions(&self, user: &str) -> Result<u64, StoreError> {
        Ok(change!(self, Lock::Accounts, tx => {
            sqlx::query("DELETE FROM sessions WHERE user_id = $1")
                .bind(user)
                .execute(&mut *tx)
                .await?
                .rows_affected()
        }))
    }

    /// Signs everybody out.
    pub async fn end_every_session(&self) -> Result<u64, StoreError> {
        Ok(on!(self, pool => sqlx::query("DELETE FROM sessions")
            .execute(pool).await.map(|done| done.rows_affected()))?)
    }

    /// Keeps a token and returns its id.
    pub async fn add_token(&self, token: NewToken<'_>, now: Millis) -> Result<String, StoreError> {
        let made = id();
        about(format!("workspace={} token={made}", token.workspace));
        Ok(change!(self, Lock::Accounts, tx => {
            sqlx::query(
            "INSERT INTO tokens (id, workspace_id, user_id, name, scope, digest, created_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)")
            .bind(&made)
            .bind(token.workspace)
            .bind(token.user)
            .bind(token.name)
            .bind(token.scope)
            .bind(token.digest)
            .bind(now)
            .bind(token.ends)
            .execute(&mut *tx)
            .await?;
            made
        }))
    }

    /// The live token of a secret; that it was used is noted once a minute.
    pub async fn token(&self, digest: &[u8], now: Millis) -> Result<Option<Token>, StoreError> {
        let found: Option<Token> = on!(self, pool => sqlx::query_as(
            tokens_where!("digest = $1 AND (expires_at IS NULL OR expires_at > $2)"))
            .bind(digest).bind(now).fetch_optional(pool).await)?;
        if let Some(token) = found
            .as_ref()
            .filter(|t| t.used_at.is_none_or(|at| now - at > MINUTE))
        {
            on!(self, pool => sqlx::query("UPDATE tokens SET used_at = $1 WHERE id = $2")
                .bind(now).bind(&token.id).execute(pool).await.map(|_| ()))?;
        }
        Ok(found)
    }

    /// The tokens of one user in a workspace, after an id.
    pub async fn tokens_of(
        &self,
        workspace: &str,
        user: &str,
        after: &str,
        most: i64,
    ) -> Result<Vec<Token>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            tokens_where!("workspace_id = $1 AND user_id = $2 AND id > $3 ORDER BY id LIMIT $4"))
            .bind(workspace).bind(user).bind(after).bind(most).fetch_all(pool).await)?)
    }

    /// Ends a user's token; `false`: there is none.
    pub async fn end_token(
        &self,
        workspace: &str,
        user: &str,
        token: &str,
    ) -> Result<bool, StoreError> {
        Ok(change!(self, Lock::Accounts, tx => {
            let ended = sqlx::query("DELETE FROM tokens WHERE workspace_id = $1 AND user_id = $2 AND id = $3")
                .bind(workspace)
                .bind(user)
                .bind(token)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            ended == 1
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::each;
    use super::super::users::{Home, NewUser};
    use super::super::workspaces::Visible;
    use super::*;

    #[tokio::test]
    async fn who_proved_it_with_what_was_changed_meanwhile_is_not_signed_in() {
        each(async |store| {
            let new = NewUser {
                email: "ada@example.com".into(),
                name: "Ada".into(),
                password: Some("old".into()),
                instance_admin: false,
            };
            let ada = store.add_user(&new, Home::Personal, 1).await.unwrap();
            let proven = Some(store.user(&ada).await.unwrap().unwrap().version);
            let session = |digest: &'static [u8]| NewSession {
                user: &ada,
                proven,
                digest,
                address: "",
                agent: "",
                ends: 100,
            };
            assert!(
                store
                    .add_session(session(b"one"), 2)
                    .await
                    .unwrap()
                    .is_some()
            );
            let token = NewToken {
                workspace: &store
                    .workspaces_of(&ada, Visible::Every, "", 1)
                    .await
                    .unwrap()[0]
                    .id,
                user: &ada,
                name: "ci",
                scope: "read",
                digest: b"token",
                ends: None,
            };
            store.add_token(token, 2).await.unwrap();
            assert!(store.token(b"token", 3).await.unwrap().is_some());
            store
                .change_password(&ada, Some("old"), "new", "")
                .await
                .unwrap();
            assert_eq!(store.add_session(session(b"two"), 3).await.unwrap(), None);
            assert_eq!(store.sessions_of(&ada, 4).await.unwrap(), []);
            assert_eq!(store.token(b"token", 4).await.unwrap(), None);
        })
        .await;
    }
}
