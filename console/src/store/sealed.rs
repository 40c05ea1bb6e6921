//! Sealed values, and the ids of the instance keys that wrap their keys.
//!
//! Nothing here can be read without a key that the store does not have (`vault`). A value is written only while the key
//! that it was sealed with is the current one, so that a rotation that has found nothing left has missed nothing.

use super::{Lock, Store, StoreError, on, row, transact};
use crate::clock::Millis;
use crate::vault::Sealed;

row! {
    /// An instance key that wraps something.
    pub struct RingKey {
        /// Its id.
        pub id: String,
        /// Whether it wraps what is sealed from now on.
        pub current: bool,
    }
}

row! {
    /// The wrapped key of a value.
    pub struct WrappedKey {
        /// The row.
        pub id: String,
        /// What it is.
        pub kind: String,
        /// The workspace.
        pub workspace_id: String,
        /// Which value of the row.
        pub version: i64,
        /// The instance key that wraps it.
        pub key_id: String,
        /// The key, wrapped.
        pub wrapped: Vec<u8>,
    }
}

/// Puts a sealed value in place of the one before, in a transaction of [`Lock::Sealed`]; `false`: its key is not the
/// current one any more, nothing was written.
macro_rules! put_sealed {
    ($tx:ident, $kind:expr, $id:expr, $workspace:expr, $version:expr, $sealed:expr) => {{
        let current: Option<String> = sqlx::query_scalar("SELECT id FROM keyring WHERE current")
            .fetch_optional(&mut *$tx)
            .await?;
        let fits = current.as_deref() == Some(&*$sealed.key_id);
        if fits {
            sqlx::query(
                "INSERT INTO sealed (id, kind, workspace_id, version, key_id, wrapped, body) VALUES ($1, $2, $3, $4, $5, $6, $7) \
                 ON CONFLICT (id) DO UPDATE SET version = $4, key_id = $5, wrapped = $6, body = $7",
            )
            .bind($id)
            .bind($kind)
            .bind($workspace)
            .bind($version)
            .bind(&$sealed.key_id)
            .bind(&$sealed.wrapped)
            .bind(&$sealed.body)
            .execute(&mut *$tx)
            .await?;
        }
        fits
    }};
}
pub(crate) use put_sealed;

impl Store {
    /// The keys that wrap something, and the current one.
    pub async fn ring(&self) -> Result<Vec<RingKey>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as("SELECT id, current FROM keyring ORDER BY created_at, id")
            .fetch_all(pool).await)?,
        )
    }

    /// The first key; nothing if there is one.
    pub async fn begin_ring(&self, id: &str, now: Millis) -> Result<(), StoreError> {
        transact!(self, Lock::Sealed, tx => {
            let there: i64 = sqlx::query_scalar("SELECT count(*) FROM keyring").fetch_one(&mut *tx).await?;
            if there == 0 {
                sqlx::query("INSERT INTO keyring (id, current, created_at) VALUES ($1, TRUE, $2)")
                    .bind(id)
                    .bind(now)
                    .execute(&mut *tx)
                    .await?;
            }
        });
        Ok(())
    }

    /// Another key wraps from now on, if the current one is still the one that is meant.
    pub async fn turn_ring(&self, from: &str, to: &str, now: Millis) -> Result<(), StoreError> {
        transact!(self, Lock::Sealed, tx => {
            let turned = sqlx::query("UPDATE keyring SET current = FALSE WHERE id = $1 AND current")
                .bind(from)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            if turned == 1 {
                sqlx::query("INSERT INTO keyring (id, current, created_at) VALUES ($1, TRUE, $2)")
                    .bind(to)
                    .bind(now)
                    .execute(&mut *tx)
                    .await?;
            }
        });
        Ok(())
    }

    /// Values whose key another one wraps.
    pub async fn wrapped_by_others(
        &self,
        current: &str,
        most: i64,
    ) -> Result<Vec<WrappedKey>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT id, kind, workspace_id, version, key_id, wrapped FROM sealed WHERE key_id <> $1 ORDER BY id LIMIT $2")
            .bind(current).bind(most).fetch_all(pool).await)?)
    }

    /// The key of a value, wrapped anew, if the value is still the one that was read.
    pub async fn wrapped_anew(
        &self,
        row: &WrappedKey,
        key_id: &str,
        wrapped: &[u8],
    ) -> Result<u64, StoreError> {
        Ok(on!(self, pool => sqlx::query(
            "UPDATE sealed SET key_id = $1, wrapped = $2 WHERE id = $3 AND version = $4 AND key_id = $5")
            .bind(key_id).bind(wrapped).bind(&row.id).bind(row.version).bind(&row.key_id)
            .execute(pool).await.map(|done| done.rows_affected()))?)
    }

    /// Lets every other key go if none wraps anything; whether there is none any more.
    pub async fn close_ring(&self, current: &str) -> Result<bool, StoreError> {
        Ok(transact!(self, Lock::Sealed, tx => {
            let left: i64 = sqlx::query_scalar("SELECT count(*) FROM sealed WHERE key_id <> $1")
                .bind(current)
                .fetch_one(&mut *tx)
                .await?;
            if left == 0 {
                sqlx::query("DELETE FROM keyring WHERE id <> $1 AND NOT current")
                    .bind(current)
                    .execute(&mut *tx)
                    .await?;
            }
            left == 0
        }))
    }

    /// Deletes every sealed value with what it belongs to, and every key's id.
    pub async fn forget_sealed(&self) -> Result<u64, StoreError> {
        Ok(transact!(self, Lock::Sealed, tx => {
            let lost = sqlx::query("DELETE FROM sealed").execute(&mut *tx).await?.rows_affected();
            for over in [
                "DELETE FROM secrets",
                "DELETE FROM notifications",
                "DELETE FROM keyring",
            ] {
                sqlx::query(over).execute(&mut *tx).await?;
            }
            lost
        }))
    }

    /// A sealed value; `None`: there is none of this kind in this workspace.
    pub async fn sealed(
        &self,
        kind: &str,
        id: &str,
        workspace: &str,
        version: i64,
    ) -> Result<Option<Sealed>, StoreError> {
        let found: Option<(String, Vec<u8>, Vec<u8>)> = on!(self, pool => sqlx::query_as(
            "SELECT key_id, wrapped, body FROM sealed WHERE kind = $1 AND id = $2 AND workspace_id = $3 AND version = $4")
            .bind(kind).bind(id).bind(workspace).bind(version).fetch_optional(pool).await)?;
        Ok(found.map(|(key_id, wrapped, body)| Sealed {
            key_id,
            wrapped,
            body,
        }))
    }
}
