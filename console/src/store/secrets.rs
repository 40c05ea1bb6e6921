//! Secrets of workspaces: names, hosts and ages; the values lie sealed beside them.

use super::change::about;
use super::sealed::put_sealed;
use super::users::Changed;
use super::{Lock, Store, StoreError, change, on, row};
use crate::clock::Millis;
use crate::vault::Sealed;

/// The kind of a secret's sealed value.
pub const KIND: &str = "secret";
/// A workspace with more has a program that makes them.
pub const MOST: i64 = 500;

row! {
    /// A secret, without its value.
    pub struct Secret {
        /// Its id.
        pub id: String,
        /// Its name, and that of the variable.
        pub name: String,
        /// Hosts at which it may be used, as a JSON list.
        pub hosts: String,
        /// Counts its changes.
        pub version: i64,
        /// Counts its values.
        pub value_version: i64,
        /// When it was made.
        pub created_at: Millis,
        /// When its value was set.
        pub changed_at: Millis,
        /// When a run was last given it.
        pub used_at: Option<Millis>,
    }
}

/// A secret to be.
#[derive(Clone, Copy, Debug)]
pub struct NewSecret<'a> {
    /// Its id.
    pub id: &'a str,
    /// Where.
    pub workspace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Hosts at which it may be used, as a JSON list.
    pub hosts: &'a str,
    /// Its value.
    pub sealed: &'a Sealed,
}

/// A change of a secret.
#[derive(Clone, Copy, Debug)]
pub struct SecretChange<'a> {
    /// Where.
    pub workspace: &'a str,
    /// As it was read.
    pub secret: &'a Secret,
    /// Hosts from now on, as a JSON list.
    pub hosts: &'a str,
    /// Another value, sealed for the version after the secret's.
    pub sealed: Option<&'a Sealed>,
}

/// What became of writing a sealed value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// Done, or not there.
    Became(Changed),
    /// The instance key was turned meanwhile: seal again.
    Stale,
    /// There are as many as there may be.
    TooMany,
}

/// Every column.
macro_rules! secrets_where {
    ($rest:literal) => {
        concat!("SELECT id, name, hosts, version, value_version, created_at, changed_at, used_at FROM secrets WHERE ", $rest)
    };
}

impl Store {
    /// Makes a secret. A name that is taken is the error of a unique key.
    pub async fn add_secret(&self, new: NewSecret<'_>, now: Millis) -> Result<Kept, StoreError> {
        Ok(change!(self, Lock::Sealed, tx => {
            let there: i64 = sqlx::query_scalar("SELECT count(*) FROM secrets WHERE workspace_id = $1")
                .bind(new.workspace)
                .fetch_one(&mut *tx)
                .await?;
            if there >= MOST {
                return Ok(Kept::TooMany);
            }
            sqlx::query(
                "INSERT INTO secrets (id, workspace_id, name, hosts, version, value_version, created_at, changed_at) \
                 VALUES ($1, $2, $3, $4, 1, 1, $5, $5)")
                .bind(new.id)
                .bind(new.workspace)
                .bind(new.name)
                .bind(new.hosts)
                .bind(now)
                .execute(&mut *tx)
                .await?;
            if !put_sealed!(tx, KIND, new.id, new.workspace, 1_i64, new.sealed) {
                return Ok(Kept::Stale);
            }
            about(format!("secret={}", new.id));
            Kept::Became(Changed::Done)
        }))
    }

    /// Other hosts, perhaps another value, if the secret is still as it was read.
    pub async fn change_secret(
        &self,
        change: SecretChange<'_>,
        now: Millis,
    ) -> Result<Kept, StoreError> {
        let SecretChange {
            workspace,
            secret,
            hosts,
            sealed,
        } = change;
        let value_version = secret.value_version + i64::from(sealed.is_some());
        let changed_at = if sealed.is_some() {
            now
        } else {
            secret.changed_at
        };
        Ok(change!(self, Lock::Sealed, tx => {
            let done = sqlx::query(
                "UPDATE secrets SET hosts = $1, version = version + 1, value_version = $2, changed_at = $3 \
                 WHERE id = $4 AND workspace_id = $5 AND version = $6")
                .bind(hosts)
                .bind(value_version)
                .bind(changed_at)
                .bind(&secret.id)
                .bind(workspace)
                .bind(secret.version)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            if done == 0 {
                return Ok(Kept::Became(Changed::NotThere));
            }
            if let Some(sealed) = sealed
                && !put_sealed!(tx, KIND, &secret.id, workspace, value_version, sealed)
            {
                return Ok(Kept::Stale);
            }
            Kept::Became(Changed::Done)
        }))
    }

    /// Deletes a secret with its value; whether there was one.
    pub async fn end_secret(&self, workspace: &str, id: &str) -> Result<bool, StoreError> {
        Ok(change!(self, Lock::Sealed, tx => {
            let done = sqlx::query("DELETE FROM secrets WHERE id = $1 AND workspace_id = $2")
                .bind(id)
                .bind(workspace)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            if done == 1 {
                sqlx::query("DELETE FROM sealed WHERE id = $1 AND kind = $2")
                    .bind(id)
                    .bind(KIND)
                    .execute(&mut *tx)
                    .await?;
            }
            done == 1
        }))
    }

    /// Secrets of a workspace after an id.
    pub async fn secrets(
        &self,
        workspace: &str,
        after: &str,
        most: i64,
    ) -> Result<Vec<Secret>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(secrets_where!("workspace_id = $1 AND id > $2 ORDER BY id LIMIT $3"))
            .bind(workspace).bind(after).bind(most).fetch_all(pool).await)?,
        )
    }

    /// One secret.
    pub async fn secret(&self, workspace: &str, id: &str) -> Result<Option<Secret>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(secrets_where!("workspace_id = $1 AND id = $2"))
            .bind(workspace).bind(id).fetch_optional(pool).await)?,
        )
    }

    /// One secret by its name.
    pub async fn secret_named(
        &self,
        workspace: &str,
        name: &str,
    ) -> Result<Option<Secret>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(secrets_where!("workspace_id = $1 AND name = $2"))
            .bind(workspace).bind(name).fetch_optional(pool).await)?,
        )
    }

    /// Notes that a run was given it.
    pub async fn secret_used(&self, id: &str, now: Millis) -> Result<(), StoreError> {
        on!(self, pool => sqlx::query("UPDATE secrets SET used_at = $1 WHERE id = $2")
            .bind(now).bind(id).execute(pool).await.map(|_| ()))?;
        Ok(())
    }
}
