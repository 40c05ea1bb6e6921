//! The event log: what streams tell, by topic, numbered so that a reader who was away goes on where it was.
//!
//! Topics are paths: `workspace/ID` and what is below it, `user/ID`, `instance`. Numbers become visible in their order
//! (appending is exclusive), so a reader that has seen `n` has missed nothing below. Every commit of this process rings
//! [`rung`]; on PostgreSQL an append also notifies the other consoles, in its own transaction.

use std::sync::LazyLock;

use sqlx::postgres::PgListener;
use tokio::sync::watch;

use super::{Lock, Store, StoreError, on, row, transact};
use crate::clock::Millis;

/// The channel of LISTEN and NOTIFY.
pub const CHANNEL: &str = "sallyport_events";
/// A reader gets this many at once.
pub const MOST: i64 = 500;
/// What an event says is at most so long; readers of a longer one look for themselves.
const LONGEST: usize = 64 << 10;

/// Something was committed by this process.
static COMMITTED: LazyLock<watch::Sender<()>> = LazyLock::new(|| watch::Sender::new(()));

/// Wakes whoever follows the log in this process.
pub(crate) fn ring() {
    COMMITTED.send_replace(());
}

/// Rings after every commit of this process.
pub fn rung() -> watch::Receiver<()> {
    COMMITTED.subscribe()
}

row! {
    /// One event.
    pub struct Event {
        /// Its number; of all topics.
        pub seq: i64,
        /// What it is about.
        pub topic: String,
        /// What kind of thing happened.
        pub kind: String,
        /// What happened, as JSON.
        pub data: String,
        /// When.
        pub at: i64,
    }
}

/// What is kept of what an event says.
pub(super) fn kept(data: &serde_json::Value) -> String {
    let text = data.to_string();
    if text.len() <= LONGEST {
        text
    } else {
        r#"{"too_long":true}"#.to_owned()
    }
}

/// Appends an event in a transaction of something else, as the last thing but its audit entry:
/// `append_event!(self, tx, topic, kind, &json, now)`. Comes to the event's number.
macro_rules! append_event {
    ($store:expr, $tx:expr, $topic:expr, $kind:expr, $data:expr, $now:expr) => {{
        if matches!($store, $crate::store::Store::Postgres(_)) {
            sqlx::query("SELECT pg_advisory_xact_lock($1)")
                .bind($crate::store::Lock::Events as i64)
                .execute(&mut *$tx)
                .await?;
            sqlx::query("SELECT pg_notify($1, '')")
                .bind($crate::store::events::CHANNEL)
                .execute(&mut *$tx)
                .await?;
        }
        sqlx::query_scalar::<_, i64>(
            "INSERT INTO events (topic, kind, data, at) VALUES ($1, $2, $3, $4) RETURNING seq",
        )
        .bind($topic)
        .bind($kind)
        .bind($crate::store::events::kept($data))
        .bind($now)
        .fetch_one(&mut *$tx)
        .await?
    }};
}
pub(crate) use append_event;

impl Store {
    /// Appends an event and returns its number.
    pub async fn append_event(
        &self,
        topic: &str,
        kind: &str,
        data: &serde_json::Value,
        now: Millis,
    ) -> Result<i64, StoreError> {
        Ok(transact!(self, Lock::Events, tx => { append_event!(self, tx, topic, kind, data, now) }))
    }

    /// The events of every topic after a number, oldest first, at most [`MOST`].
    pub async fn events_since(&self, seq: i64) -> Result<Vec<Event>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT seq, topic, kind, data, at FROM events WHERE seq > $1 ORDER BY seq LIMIT $2",
        )
        .bind(seq)
        .bind(MOST)
        .fetch_all(pool)
        .await)?)
    }

    /// The events of some topics after a number, oldest first, at most [`MOST`].
    pub async fn events_after<T: AsRef<str> + Sync>(
        &self,
        topics: &[T],
        seq: i64,
    ) -> Result<Vec<Event>, StoreError> {
        let topics: Vec<&str> = topics.iter().map(AsRef::as_ref).collect();
        let topics = serde_json::json!(topics).to_string();
        let statement = match self {
            Self::Sqlite(_) => {
                "SELECT seq, topic, kind, data, at FROM events \
                 WHERE topic IN (SELECT value FROM json_each($1)) AND seq > $2 ORDER BY seq LIMIT $3"
            }
            Self::Postgres(_) => {
                "SELECT seq, topic, kind, data, at FROM events \
                 WHERE topic IN (SELECT jsonb_array_elements_text(CAST($1 AS jsonb))) AND seq > $2 ORDER BY seq LIMIT $3"
            }
        };
        Ok(
            on!(self, pool => sqlx::query_as(statement).bind(&topics).bind(seq).bind(MOST).fetch_all(pool).await)?,
        )
    }

    /// The numbers of the oldest and the newest event of any topic; `None`: there is none.
    pub async fn kept_events(&self) -> Result<Option<(i64, i64)>, StoreError> {
        let (first, last): (Option<i64>, Option<i64>) = on!(self, pool => sqlx::query_as("SELECT min(seq), max(seq) FROM events").fetch_one(pool).await)?;
        Ok(first.zip(last))
    }

    /// The number of the newest event of any topic; 0 if there is none.
    pub async fn last_event(&self) -> Result<i64, StoreError> {
        Ok(self.kept_events().await?.map_or(0, |(_, last)| last))
    }

    /// Listens for what other consoles append; `None`: no other console can.
    pub async fn listen(&self) -> Result<Option<PgListener>, StoreError> {
        let Self::Postgres(pool) = self else {
            return Ok(None);
        };
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen(CHANNEL).await?;
        Ok(Some(listener))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::forget::Passing;
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
            let seen = store.events_after(&["w/1"], first).await.unwrap();
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
            assert_eq!(store.forget(Passing::Events, 11).await.unwrap(), 1);
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
                    for event in store.events_after(&["t"], last).await.unwrap() {
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
