//! Codes by which a person lets a program in: what the program asks for, until somebody who is signed in has said yes or
//! no, or the time is over.
//!
//! The store has the digest of the token to be from the start and makes it a token in the transaction of whoever says
//! yes, under their rights and with their audit entry. A code is settled once.

use super::change::about;
use super::sessions::NewToken;
use super::{Lock, Store, StoreError, change, on, row};
use crate::clock::{Millis, id};

row! {
    /// A code.
    pub struct Code {
        /// Its id.
        pub id: String,
        /// What a person types.
        pub code: String,
        /// The digest of the token to be.
        pub digest: Vec<u8>,
        /// What the program calls itself.
        pub name: String,
        /// `read` or `write`: the most that it asks for.
        pub scope: String,
        /// For how many days it asks, if it says.
        pub days: Option<i64>,
        /// From which address it was asked.
        pub address: String,
        /// What the program is.
        pub agent: String,
        /// `waiting`, `approved` or `refused`.
        pub state: String,
        /// When it was asked.
        pub created_at: Millis,
        /// When it is over.
        pub expires_at: Millis,
    }
}

/// A code to be.
#[derive(Clone, Copy, Debug)]
pub struct NewCode<'a> {
    /// What a person types.
    pub code: &'a str,
    /// The digest of the token to be.
    pub digest: &'a [u8],
    /// What the program calls itself.
    pub name: &'a str,
    /// `read` or `write`.
    pub scope: &'a str,
    /// For how many days.
    pub days: Option<i64>,
    /// From which address.
    pub address: &'a str,
    /// What the program is.
    pub agent: &'a str,
    /// When it is over.
    pub ends: Millis,
}

/// How many may wait at once.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Of one address.
    pub of_address: i64,
    /// Of everybody.
    pub of_all: i64,
}

/// Every column, for [`Code`].
macro_rules! codes_where {
    ($rest:literal) => {
        concat!("SELECT id, code, digest, name, scope, days, address, agent, state, created_at, expires_at FROM codes WHERE ", $rest)
    };
}

impl Store {
    /// Keeps a code; `None`: too many wait.
    pub async fn add_code(
        &self,
        new: NewCode<'_>,
        most: Most,
        now: Millis,
    ) -> Result<Option<String>, StoreError> {
        let made = id();
        about(format!("code={made}"));
        Ok(change!(self, Lock::Accounts, tx => {
            sqlx::query("DELETE FROM codes WHERE expires_at <= $1").bind(now).execute(&mut *tx).await?;
            let own: i64 = sqlx::query_scalar("SELECT count(*) FROM codes WHERE address = $1")
                .bind(new.address)
                .fetch_one(&mut *tx)
                .await?;
            let all: i64 = sqlx::query_scalar("SELECT count(*) FROM codes").fetch_one(&mut *tx).await?;
            if own >= most.of_address || all >= most.of_all {
                return Ok(None);
            }
            sqlx::query(
                "INSERT INTO codes (id, code, digest, name, scope, days, address, agent, state, created_at, expires_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'waiting', $9, $10)")
                .bind(&made)
                .bind(new.code)
                .bind(new.digest)
                .bind(new.name)
                .bind(new.scope)
                .bind(new.days)
                .bind(new.address)
                .bind(new.agent)
                .bind(now)
                .bind(new.ends)
                .execute(&mut *tx)
                .await?;
            Some(made)
        }))
    }

    /// The code that somebody typed, while it waits.
    pub async fn code(&self, code: &str, now: Millis) -> Result<Option<Code>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            codes_where!("code = $1 AND state = 'waiting' AND expires_at > $2"))
            .bind(code).bind(now).fetch_optional(pool).await)?)
    }

    /// What became of a code.
    pub async fn code_state(&self, id: &str, now: Millis) -> Result<Option<String>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_scalar("SELECT state FROM codes WHERE id = $1 AND expires_at > $2")
            .bind(id).bind(now).fetch_optional(pool).await)?,
        )
    }

    /// Says yes: the code's token is a token from now on. `None`: it does not wait any more.
    pub async fn approve_code(
        &self,
        code: &str,
        token: NewToken<'_>,
        now: Millis,
    ) -> Result<Option<String>, StoreError> {
        let made = id();
        about(format!("workspace={} token={made}", token.workspace));
        Ok(change!(self, Lock::Accounts, tx => {
            let settled = sqlx::query(
                "UPDATE codes SET state = 'approved' WHERE id = $1 AND digest = $2 AND state = 'waiting' AND expires_at > $3")
                .bind(code)
                .bind(token.digest)
                .bind(now)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            if settled != 1 {
                return Ok(None);
            }
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
            Some(made)
        }))
    }

    /// Says no; `false`: it does not wait any more.
    pub async fn refuse_code(&self, code: &str, now: Millis) -> Result<bool, StoreError> {
        about(format!("code={code}"));
        Ok(change!(self, Lock::Accounts, tx => {
            let settled = sqlx::query(
                "UPDATE codes SET state = 'refused' WHERE id = $1 AND state = 'waiting' AND expires_at > $2")
                .bind(code)
                .bind(now)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            settled == 1
        }))
    }
}
