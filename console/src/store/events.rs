//! The event log: what streams tell, by topic, numbered so that a reader who was away goes on where it was.
//!
//! Numbers become visible in their order (appending is exclusive), so a reader that has seen `n` has missed nothing
//! below. On PostgreSQL every console is woken by NOTIFY; in the process that appended, by whoever appended.

use super::{Lock, Store, StoreError, on, row, transact};
use crate::clock::Millis;

/// The channel of LISTEN and NOTIFY.
pub const CHANNEL: &str = "sallyport_events";
/// A reader gets this many at once.
pub const MOST: i64 = 500;

row! {
    /// One event.
    pub struct Event {
        /// Its number; of all topics.
        pub seq: i64,
        /// What kind of thing happened.
        pub kind: String,
        /// What happened, as JSON.
        pub data: String,
        /// When.
        pub at: i64,
    }
}

impl Store {
    /// Appends an event and returns its number.
    pub async fn append_event(
        &self,
        topic: &str,
        kind: &str,
        data: &serde_json::Value,
        now: Millis,
    ) -> Result<i64, StoreError> {
        let data = data.to_string();
        let seq = transact!(self, Lock::Events, tx => {
            sqlx::query_scalar::<_, i64>(
                "INSERT INTO events (topic, kind, data, at) VALUES ($1, $2, $3, $4) RETURNING seq",
            )
            .bind(topic)
            .bind(kind)
            .bind(&data)
            .bind(now)
            .fetch_one(&mut *tx)
            .await?
        });
        if let Self::Postgres(pool) = self {
            sqlx::query("SELECT pg_notify($1, '')")
                .bind(CHANNEL)
                .execute(pool)
                .await?;
        }
        Ok(seq)
    }

    /// The events of a topic after a number, oldest first, at most [`MOST`].
    pub async fn events_after(&self, topic: &str, seq: i64) -> Result<Vec<Event>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT seq, kind, data, at FROM events WHERE topic = $1 AND seq > $2 ORDER BY seq LIMIT $3",
        )
        .bind(topic)
        .bind(seq)
        .bind(MOST)
        .fetch_all(pool)
        .await)?)
    }

    /// The number of the newest event of any topic; 0 if there is none.
    pub async fn last_event(&self) -> Result<i64, StoreError> {
        let last: Option<i64> = on!(self, pool => sqlx::query_scalar("SELECT max(seq) FROM events").fetch_one(pool).await)?;
        Ok(last.unwrap_or(0))
    }

    /// Forgets events from before a time. Their numbers are never used again.
    pub async fn forget_events(&self, before: Millis) -> Result<u64, StoreError> {
        Ok(
            on!(self, pool => sqlx::query("DELETE FROM events WHERE at < $1")
            .bind(before)
            .execute(pool)
            .await
            .map(|done| done.rows_affected()))?,
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::each;

    #[tokio::test]
    async fn a_reader_goes_on_after_what_it_has_seen_and_sees_no_other_topic() {
        each(async |store| {
            let first = store
                .append_event("w/1", "made", &json!({ "n": 1 }), 10)
                .await
                .unwrap();
            store
                .append_event("w/2", "made", &json!({ "n": 2 }), 11)
                .await
                .unwrap();
            let third = store
                .append_event("w/1", "gone", &json!({ "n": 3 }), 12)
                .await
                .unwrap();
            let seen = store.events_after("w/1", first).await.unwrap();
            assert_eq!(seen.len(), 1);
            assert_eq!(
                (seen[0].seq, seen[0].kind.as_str(), seen[0].at),
                (third, "gone", 12)
            );
            assert_eq!(store.last_event().await.unwrap(), third);
        })
        .await;
    }

    #[tokio::test]
    async fn forgotten_events_leave_their_numbers_unused() {
        each(async |store| {
            let last = store.append_event("t", "a", &json!({}), 10).await.unwrap();
            assert_eq!(store.forget_events(11).await.unwrap(), 1);
            assert!(store.append_event("t", "b", &json!({}), 12).await.unwrap() > last);
        })
        .await;
    }

    #[tokio::test]
    async fn numbers_become_visible_in_their_order() {
        each(async |store| {
            let writers = (0..8).map(|_| {
                let store = store.clone();
                async move {
                    for _ in 0..10 {
                        store.append_event("t", "k", &json!({}), 1).await.unwrap();
                    }
                }
            });
            let reader = async {
                let (mut last, mut seen) = (0, 0);
                while seen < 80 {
                    for event in store.events_after("t", last).await.unwrap() {
                        last = event.seq;
                        seen += 1;
                    }
                }
            };
            let writing = futures_util::future::join_all(writers);
            let done = tokio::time::timeout(
                std::time::Duration::from_mins(1),
                futures_util::future::join(writing, reader),
            );
            done.await
                .expect("every event is seen by who follows the numbers");
        })
        .await;
    }
}
