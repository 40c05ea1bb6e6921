//! The audit log: what people and tokens changed, each entry chained to the one before by SHA-256.
//!
//! Apart from the record of flows, which is the gateway's. The chain shows an entry that was changed or taken out; that
//! the newest entries are missing shows only against a head that somebody kept elsewhere.

use std::borrow::Cow;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Lock, Store, StoreError, on, row, transact};
use crate::clock::Millis;

/// What is to be told.
#[derive(Clone, Debug)]
pub struct Told<'a> {
    /// In which workspace, if in one.
    pub workspace: Option<String>,
    /// Which user, if anybody was signed in.
    pub actor: Option<String>,
    /// By which credential.
    pub credential: String,
    /// From which address.
    pub address: String,
    /// What.
    pub action: &'a str,
    /// To whom or what.
    pub subject: Cow<'a, str>,
    /// How it was answered.
    pub status: i64,
}

row! {
    /// An entry.
    #[derive(Serialize, Deserialize)]
    pub struct Entry {
        /// Its number, from 1 without gaps.
        pub seq: i64,
        /// When.
        pub at: Millis,
        /// In which workspace, if in one.
        pub workspace_id: Option<String>,
        /// Which user, if anybody was signed in.
        pub actor: Option<String>,
        /// By which credential.
        pub credential: String,
        /// From which address.
        pub address: String,
        /// What.
        pub action: String,
        /// To whom or what.
        pub subject: String,
        /// How it was answered.
        pub status: i64,
        /// The hash of the entry before.
        pub previous: String,
        /// Its own.
        pub hash: String,
    }
}

/// Where a chain is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the audit log does not hold at entry {0}: it, or the one before it, was changed or taken out"
)]
pub struct Broken(pub i64);

impl Entry {
    /// The entry that comes after the last one.
    pub(super) fn after(last: Option<(i64, String)>, told: &Told<'_>, now: Millis) -> Self {
        let (seq, previous) = last.unwrap_or_default();
        let mut entry = Self {
            seq: seq + 1,
            at: now,
            workspace_id: told.workspace.clone(),
            actor: told.actor.clone(),
            credential: told.credential.clone(),
            address: told.address.clone(),
            action: told.action.to_owned(),
            subject: told.subject.clone().into_owned(),
            status: told.status,
            previous,
            hash: String::new(),
        };
        entry.hash = entry.computed();
        entry
    }

    /// Its hash as it ought to be.
    fn computed(&self) -> String {
        let fields = serde_json::json!([
            self.seq,
            self.at,
            self.workspace_id,
            self.actor,
            self.credential,
            self.address,
            self.action,
            self.subject,
            self.status,
            self.previous,
        ]);
        let digest = Sha256::digest(fields.to_string().as_bytes());
        digest.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

/// Follows a chain entry by entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    /// Entries that hold.
    pub entries: i64,
    /// The hash of the last one.
    pub head: String,
}

impl Chain {
    /// The next entry.
    pub fn follow(&mut self, entry: &Entry) -> Result<(), Broken> {
        let holds = entry.seq == self.entries + 1
            && entry.previous == self.head
            && entry.hash == entry.computed();
        if !holds {
            return Err(Broken(entry.seq));
        }
        self.entries = entry.seq;
        self.head.clone_from(&entry.hash);
        Ok(())
    }
}

/// Appends an entry in a transaction that holds [`Lock::Audit`].
macro_rules! append {
    ($tx:expr, $told:expr, $now:expr) => {{
        let last: Option<(i64, String)> = sqlx::query_as("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1")
            .fetch_optional(&mut *$tx)
            .await?;
        let entry = $crate::store::audit::Entry::after(last, $told, $now);
        sqlx::query(
            "INSERT INTO audit (seq, at, workspace_id, actor, credential, address, action, subject, status, previous, hash) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        )
        .bind(entry.seq)
        .bind(entry.at)
        .bind(&entry.workspace_id)
        .bind(&entry.actor)
        .bind(&entry.credential)
        .bind(&entry.address)
        .bind(&entry.action)
        .bind(&entry.subject)
        .bind(entry.status)
        .bind(&entry.previous)
        .bind(&entry.hash)
        .execute(&mut *$tx)
        .await?;
    }};
}
pub(super) use append;

impl Store {
    /// Appends an entry about something that changed nothing, or that was no request's.
    pub async fn tell_audit(&self, told: &Told<'_>, now: Millis) -> Result<(), StoreError> {
        transact!(self, Lock::Audit, tx => { append!(tx, told, now); });
        Ok(())
    }

    /// Entries before a number, newest first; of one workspace, or of all.
    pub async fn audit_before(
        &self,
        workspace: Option<&str>,
        seq: i64,
        most: i64,
    ) -> Result<Vec<Entry>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT seq, at, workspace_id, actor, credential, address, action, subject, status, previous, hash FROM audit \
             WHERE seq < $1 AND (CAST($2 AS TEXT) IS NULL OR workspace_id = $2) ORDER BY seq DESC LIMIT $3",
        )
        .bind(seq)
        .bind(workspace)
        .bind(most)
        .fetch_all(pool)
        .await)?)
    }

    /// Entries after a number, oldest first; of one workspace, or of all.
    pub async fn audit_after(
        &self,
        workspace: Option<&str>,
        seq: i64,
        most: i64,
    ) -> Result<Vec<Entry>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT seq, at, workspace_id, actor, credential, address, action, subject, status, previous, hash FROM audit \
             WHERE seq > $1 AND (CAST($2 AS TEXT) IS NULL OR workspace_id = $2) ORDER BY seq LIMIT $3",
        )
        .bind(seq)
        .bind(workspace)
        .bind(most)
        .fetch_all(pool)
        .await)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::each;
    use super::*;

    async fn tell(store: &Store, subject: &str) {
        let told = Told {
            workspace: Some("w".into()),
            actor: None,
            credential: "none".into(),
            address: "203.0.113.7".into(),
            action: "session.begin",
            subject: subject.into(),
            status: 401,
        };
        store.tell_audit(&told, 7).await.unwrap();
    }

    #[tokio::test]
    async fn entries_are_read_from_both_ends() {
        each(async |store| {
            for subject in ["one", "two", "three"] {
                tell(&store, subject).await;
            }
            let numbers = |entries: Vec<Entry>| entries.iter().map(|e| e.seq).collect::<Vec<_>>();
            let before =
                async |seq, most| numbers(store.audit_before(Some("w"), seq, most).await.unwrap());
            assert_eq!(before(i64::MAX, 2).await, [3, 2]);
            assert_eq!(before(2, 2).await, [1]);
            assert!(before(1, 2).await.is_empty());
            let other = store.audit_before(Some("other"), i64::MAX, 2).await;
            assert!(other.unwrap().is_empty());
            let after = store.audit_after(None, 1, 9).await.unwrap();
            assert_eq!(numbers(after), [2, 3]);
        })
        .await;
    }

    fn follow(entries: &[Entry]) -> Result<Chain, Broken> {
        let mut chain = Chain::default();
        entries
            .iter()
            .try_for_each(|entry| chain.follow(entry))
            .map(|()| chain)
    }

    #[tokio::test]
    async fn a_chain_holds_and_shows_what_was_changed_or_taken_out() {
        each(async |store| {
            let writers = (0..8).map(|n| {
                let store = store.clone();
                async move { tell(&store, &format!("user={n}")).await }
            });
            futures_util::future::join_all(writers).await;
            let entries = store.audit_after(None, 0, 100).await.unwrap();
            assert_eq!(follow(&entries).unwrap().entries, 8);
            let mut changed = entries.clone();
            changed[3].subject = "user=x".into();
            assert_eq!(follow(&changed), Err(Broken(4)));
            let mut taken = entries.clone();
            taken.remove(2);
            assert_eq!(follow(&taken), Err(Broken(4)));
            assert_eq!(store.audit_after(Some("w"), 7, 100).await.unwrap().len(), 1);
            assert_eq!(store.audit_after(Some("v"), 0, 100).await.unwrap(), []);
        })
        .await;
    }

    #[tokio::test]
    async fn a_line_of_the_export_is_one_line_whatever_was_written() {
        each(async |store| {
            tell(&store, "email=a\r\n{\"seq\":2}\u{1b}[31m\u{2028}").await;
            let entries = store.audit_after(None, 0, 10).await.unwrap();
            let line = serde_json::to_string(&entries[0]).unwrap();
            assert!(!line.contains(['\n', '\r', '\u{1b}']), "{line}");
            let read: Entry = serde_json::from_str(&line).unwrap();
            assert_eq!(read, entries[0]);
        })
        .await;
    }
}
