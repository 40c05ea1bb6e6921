//! Whom a workspace tells about what, and what is still to be told.
//!
//! An event becomes deliveries in the transaction that notes it as read, so each event is told once, whatever ends in
//! between; a delivery is claimed for a while, so one whose sender died is sent again, under the same id.
//! Who is due is told workspace by workspace in turn, and of a receiver that takes nothing no more than [`MOST_WAITING`]
//! wait: what is news after them is dropped for it.

use super::change::{about, change};
use super::denials::{Denied, KNOW};
use super::sealed::put_sealed;
use super::{Lock, Store, StoreError, on, row, transact};
use crate::clock::{Millis, id};
use crate::vault::Sealed;

/// The kind of a webhook's sealed signing key.
pub const KIND: &str = "notification";
/// A workspace with more has a program that makes them.
pub const MOST: i64 = 50;
/// Receivers that are looked at in one go; many more than are told something at the same time.
const DUE: i64 = 1000;
/// What waits for one receiver: weeks of it, where one takes anything at all.
const MOST_WAITING: i64 = 1000;

row! {
    /// Whom to tell.
    pub struct Notification {
        /// Its id.
        pub id: String,
        /// The workspace.
        pub workspace_id: String,
        /// What it is called.
        pub name: String,
        /// `webhook` or `email`.
        pub kind: String,
        /// A URL or an address.
        pub address: String,
        /// About what, as a JSON list.
        pub topics: String,
        /// When it was made.
        pub created_at: Millis,
    }
}

row! {
    /// Whose turn it is to be told something.
    pub struct Due {
        /// Whom.
        pub id: String,
        /// In which workspace.
        pub workspace_id: String,
        /// Who owned it first: who has many workspaces is one person.
        pub owner: String,
        /// `webhook` or `email`.
        pub kind: String,
        /// A URL or an address.
        pub address: String,
    }
}

row! {
    /// Something that is to be told, or was.
    pub struct Delivery {
        /// Its id; the same at each attempt.
        pub id: String,
        /// Whom.
        pub notification_id: String,
        /// About what.
        pub topic: String,
        /// What, as JSON.
        pub body: String,
        /// `waiting`, `done` or `failed`.
        pub state: String,
        /// How often it was tried.
        pub attempts: i64,
        /// When it is tried next.
        pub next_at: Millis,
        /// How the last attempt ended, in words.
        pub outcome: String,
        /// When it happened.
        pub created_at: Millis,
    }
}

/// What is to be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct News {
    /// In which workspace; empty: in all of them.
    pub workspace: String,
    /// About what.
    pub topic: &'static str,
    /// What, as JSON.
    pub body: String,
    /// Who is told, by their names, whatever they ask for; `None`: those who ask for the topic.
    pub to: Option<Vec<String>>,
    /// What is no news of this job any more.
    pub denied: Option<Denied>,
}

impl News {
    /// For those who ask for it.
    pub fn asked(workspace: &str, topic: &'static str, body: &serde_json::Value) -> Self {
        Self {
            workspace: workspace.to_owned(),
            topic,
            body: body.to_string(),
            to: None,
            denied: None,
        }
    }

    fn is_for(&self, name: &str, topics: &str) -> bool {
        if let Some(names) = &self.to {
            return names.iter().any(|one| one == name);
        }
        let topics: Vec<String> = serde_json::from_str(topics).unwrap_or_default();
        topics.iter().any(|topic| topic == self.topic)
    }
}

/// Every column.
macro_rules! notifications_where {
    ($rest:literal) => {
        concat!("SELECT id, workspace_id, name, kind, address, topics, created_at FROM notifications WHERE ", $rest)
    };
}

/// Every column.
macro_rules! deliveries_where {
    ($rest:literal) => {
        concat!("SELECT id, notification_id, topic, body, state, attempts, next_at, outcome, created_at FROM deliveries WHERE ", $rest)
    };
}

const DELIVER: &str = "INSERT INTO deliveries (id, notification_id, topic, body, state, attempts, next_at, outcome, created_at) \
     VALUES ($1, $2, $3, $4, 'waiting', 0, $5, '', $5)";

/// The same for a receiver for which fewer than [`MOST_WAITING`] wait.
const DELIVER_NEWS: &str = "INSERT INTO deliveries (id, notification_id, topic, body, state, attempts, next_at, outcome, created_at) \
     SELECT $1, $2, $3, $4, 'waiting', 0, $5, '', $5 \
     WHERE (SELECT count(*) FROM deliveries WHERE notification_id = $2 AND state = 'waiting') < $6";

impl Store {
    /// Keeps whom to tell, with the key that signs; `None`: there are as many as there may be, `Some(false)`: seal again.
    pub async fn add_notification(
        &self,
        new: &Notification,
        sealed: &Sealed,
    ) -> Result<Option<bool>, StoreError> {
        Ok(change!(self, Lock::Sealed, tx => {
            let there: i64 = sqlx::query_scalar("SELECT count(*) FROM notifications WHERE workspace_id = $1")
                .bind(&new.workspace_id)
                .fetch_one(&mut *tx)
                .await?;
            if there >= MOST {
                return Ok(None);
            }
            sqlx::query("INSERT INTO notifications (id, workspace_id, name, kind, address, topics, created_at) \
                         VALUES ($1, $2, $3, $4, $5, $6, $7)")
                .bind(&new.id)
                .bind(&new.workspace_id)
                .bind(&new.name)
                .bind(&new.kind)
                .bind(&new.address)
                .bind(&new.topics)
                .bind(new.created_at)
                .execute(&mut *tx)
                .await?;
            if !put_sealed!(tx, KIND, &new.id, &new.workspace_id, 1_i64, sealed) {
                return Ok(Some(false));
            }
            about(format!("notification={}", new.id));
            Some(true)
        }))
    }

    /// Tells them nothing any more.
    pub async fn end_notification(&self, workspace: &str, id: &str) -> Result<bool, StoreError> {
        Ok(change!(self, Lock::Sealed, tx => {
            let done = sqlx::query("DELETE FROM notifications WHERE id = $1 AND workspace_id = $2")
                .bind(id)
                .bind(workspace)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            if done == 1 {
                sqlx::query("DELETE FROM sealed WHERE id = $1 AND kind = $2").bind(id).bind(KIND).execute(&mut *tx).await?;
            }
            done == 1
        }))
    }

    /// Those of a workspace after an id.
    pub async fn notifications(
        &self,
        workspace: &str,
        after: &str,
        most: i64,
    ) -> Result<Vec<Notification>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(notifications_where!("workspace_id = $1 AND id > $2 ORDER BY id LIMIT $3"))
            .bind(workspace).bind(after).bind(most).fetch_all(pool).await)?,
        )
    }

    /// One, of whatever workspace.
    pub async fn notification(&self, id: &str) -> Result<Option<Notification>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(notifications_where!("id = $1")).bind(id).fetch_optional(pool).await)?,
        )
    }

    /// Queues one delivery to one of them.
    pub async fn deliver(
        &self,
        notification: &str,
        topic: &str,
        body: &str,
        now: Millis,
    ) -> Result<String, StoreError> {
        let made = id();
        Ok(change!(self, Lock::Sealed, tx => {
            sqlx::query(DELIVER).bind(&made).bind(notification).bind(topic).bind(body).bind(now).execute(&mut *tx).await?;
            made
        }))
    }

    /// Up to which event everything was told. A store that has told nothing yet begins with what comes next; only then
    /// is something written, for whoever writes wakes those who ask.
    pub async fn notified(&self) -> Result<i64, StoreError> {
        let told: Option<i64> = on!(self, pool => sqlx::query_scalar("SELECT seq FROM notified WHERE id = 'events'")
            .fetch_optional(pool).await)?;
        if let Some(told) = told {
            return Ok(told);
        }
        let last = self.last_event().await?;
        Ok(transact!(self, Lock::Sealed, tx => {
            sqlx::query("INSERT INTO notified (id, seq) VALUES ('events', $1) ON CONFLICT (id) DO NOTHING")
                .bind(last)
                .execute(&mut *tx)
                .await?;
            sqlx::query_scalar::<_, i64>("SELECT seq FROM notified WHERE id = 'events'").fetch_one(&mut *tx).await?
        }))
    }

    /// What was last kept of a machine's enforcement.
    pub async fn watched(&self, machine: &str) -> Result<Option<i64>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_scalar("SELECT seq FROM notified WHERE id = $1")
            .bind(format!("enforcement/{machine}")).fetch_optional(pool).await)?,
        )
    }

    /// Keeps it.
    pub async fn keep_watched(&self, machine: &str, seen: i64) -> Result<(), StoreError> {
        on!(self, pool => sqlx::query(
            "INSERT INTO notified (id, seq) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET seq = $2")
            .bind(format!("enforcement/{machine}")).bind(seen).execute(pool).await.map(|_| ()))?;
        Ok(())
    }

    /// Queues what events are news, and notes them as read; `false`: another console has read them meanwhile.
    pub async fn queue_news(
        &self,
        (from, to): (i64, i64),
        news: &[News],
        now: Millis,
    ) -> Result<bool, StoreError> {
        Ok(transact!(self, Lock::Sealed, tx => {
            let turned = sqlx::query("UPDATE notified SET seq = $1 WHERE id = 'events' AND seq = $2")
                .bind(to)
                .bind(from)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            if turned == 1 {
                for one in news {
                    if let Some(denied) = &one.denied {
                        for name in &denied.names {
                            sqlx::query(KNOW).bind(&denied.job).bind(name).bind(now).execute(&mut *tx).await?;
                        }
                    }
                    let whom: Vec<(String, String, String)> = sqlx::query_as("SELECT id, name, topics FROM notifications WHERE workspace_id = $1 OR $1 = ''")
                        .bind(&one.workspace)
                        .fetch_all(&mut *tx)
                        .await?;
                    for (whom, name, topics) in whom {
                        if one.is_for(&name, &topics) {
                            sqlx::query(DELIVER_NEWS)
                                .bind(id())
                                .bind(&whom)
                                .bind(one.topic)
                                .bind(&one.body)
                                .bind(now)
                                .bind(MOST_WAITING)
                                .execute(&mut *tx)
                                .await?;
                        }
                    }
                }
            }
            turned == 1
        }))
    }

    /// Who is to be told something that is due: of every workspace who waits longest, then who waits longest after them,
    /// and so on.
    pub async fn due_notifications(&self, now: Millis) -> Result<Vec<Due>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT q.id, q.workspace_id, q.kind, q.address, coalesce((SELECT m.user_id FROM members m \
             WHERE m.workspace_id = q.workspace_id AND m.role = 'owner' ORDER BY m.created_at, m.user_id LIMIT 1), '') AS owner \
             FROM (SELECT n.id, n.workspace_id, n.kind, n.address, d.since, \
             row_number() OVER (PARTITION BY n.workspace_id ORDER BY d.since, n.id) AS turn FROM notifications n \
             JOIN (SELECT notification_id, min(next_at) AS since FROM deliveries WHERE state = 'waiting' AND next_at <= $1 \
             GROUP BY notification_id) d ON d.notification_id = n.id) q ORDER BY q.turn, q.since, q.id LIMIT $2")
            .bind(now).bind(DUE).fetch_all(pool).await)?)
    }

    /// Claims the next delivery to one of them until a time: nobody else tries it before then.
    pub async fn claim_delivery(
        &self,
        notification: &str,
        now: Millis,
        until: Millis,
    ) -> Result<Option<Delivery>, StoreError> {
        Ok(transact!(self, Lock::Sealed, tx => {
            let due: Option<Delivery> = sqlx::query_as(deliveries_where!(
                "notification_id = $1 AND state = 'waiting' AND next_at <= $2 ORDER BY next_at LIMIT 1"))
                .bind(notification)
                .bind(now)
                .fetch_optional(&mut *tx)
                .await?;
            if let Some(one) = &due {
                sqlx::query("UPDATE deliveries SET next_at = $1, attempts = attempts + 1 WHERE id = $2")
                    .bind(until)
                    .bind(&one.id)
                    .execute(&mut *tx)
                    .await?;
            }
            due
        }))
    }

    /// Notes how an attempt ended; `again`: when it is tried next.
    pub async fn delivered(
        &self,
        id: &str,
        state: &str,
        outcome: &str,
        again: Millis,
    ) -> Result<(), StoreError> {
        on!(self, pool => sqlx::query("UPDATE deliveries SET state = $1, outcome = $2, next_at = $3 WHERE id = $4")
            .bind(state).bind(outcome).bind(again).bind(id).execute(pool).await.map(|_| ()))?;
        Ok(())
    }

    /// Deliveries to one of them, newest first, before an id.
    pub async fn deliveries(
        &self,
        notification: &str,
        before: &str,
        most: i64,
    ) -> Result<Vec<Delivery>, StoreError> {
        Ok(
            on!(self, pool => sqlx::query_as(deliveries_where!("notification_id = $1 AND ($2 = '' OR id < $2) ORDER BY id DESC LIMIT $3"))
            .bind(notification).bind(before).bind(most).fetch_all(pool).await)?,
        )
    }
}
