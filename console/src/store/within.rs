//! What a transaction of either engine can do besides running one SQL text.

use super::Lock;
use super::events::CHANNEL;
use crate::clock::Millis;

/// An open transaction.
pub(super) trait Within {
    /// Waits until no other transaction holds the lock; it is held to the end of this one.
    async fn exclude(&mut self, lock: Lock) -> Result<(), sqlx::Error>;

    /// Appends events (topic, kind, JSON), seen when the transaction is. The last thing that a transaction does: numbers
    /// become visible in their order because nobody else appends until it ends. Returns the last one's number.
    async fn tell(
        &mut self,
        events: &[(&str, &str, &str)],
        now: Millis,
    ) -> Result<i64, sqlx::Error>;
}

const APPEND: &str =
    "INSERT INTO events (topic, kind, data, at) VALUES ($1, $2, $3, $4) RETURNING seq";

impl Within for sqlx::Transaction<'_, sqlx::Sqlite> {
    async fn exclude(&mut self, _: Lock) -> Result<(), sqlx::Error> {
        // a transaction that writes is the only one
        Ok(())
    }

    async fn tell(
        &mut self,
        events: &[(&str, &str, &str)],
        now: Millis,
    ) -> Result<i64, sqlx::Error> {
        let mut last = 0;
        for (topic, kind, data) in events {
            last = sqlx::query_scalar(APPEND)
                .bind(*topic)
                .bind(*kind)
                .bind(*data)
                .bind(now)
                .fetch_one(&mut **self)
                .await?;
        }
        Ok(last)
    }
}

impl Within for sqlx::Transaction<'_, sqlx::Postgres> {
    async fn exclude(&mut self, lock: Lock) -> Result<(), sqlx::Error> {
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(lock as i64)
            .execute(&mut **self)
            .await
            .map(|_| ())
    }

    async fn tell(
        &mut self,
        events: &[(&str, &str, &str)],
        now: Millis,
    ) -> Result<i64, sqlx::Error> {
        self.exclude(Lock::Events).await?;
        let mut last = 0;
        for (topic, kind, data) in events {
            last = sqlx::query_scalar(APPEND)
                .bind(*topic)
                .bind(*kind)
                .bind(*data)
                .bind(now)
                .fetch_one(&mut **self)
                .await?;
        }
        // told to listeners when the transaction is committed
        sqlx::query("SELECT pg_notify($1, '')")
            .bind(CHANNEL)
            .execute(&mut **self)
            .await?;
        Ok(last)
    }
}
