//! Answers kept by `Idempotency-Key`, so that a request that is sent again is answered again and done once.
//!
//! A key is its actor's own. The store has its digest, that of the request, and the answer's head and body for a day. A
//! claim is held while the request is carried out; the change marks it in its own transaction, so after a console that
//! died it is known whether the change was made. Failure stance: what is not known is never done again.

use super::{Lock, Store, StoreError, on, row, transact};
use crate::clock::{DAY, MINUTE, Millis, id};

/// A claim that is older is of a console that died; requests are given up long before.
const ABANDONED: Millis = 2 * MINUTE;
/// Answers are kept for so long.
pub const KEPT: Millis = DAY;
/// Marks a claim as changed, if it is still held.
pub(super) const CHANGED: &str = "UPDATE replays SET changed = TRUE WHERE actor = $1 AND key = $2 AND claim = $3 AND status IS NULL";

row! {
    /// An answer.
    pub struct Kept {
        /// The request that it answers.
        pub request: Vec<u8>,
        /// Who carries it out.
        pub claim: String,
        /// Whether a change was made.
        pub changed: bool,
        /// The status, once it is answered.
        pub status: Option<i64>,
        /// Headers, as a JSON object.
        pub head: Option<String>,
        /// The body; none if it holds what is shown once.
        pub body: Option<Vec<u8>>,
        /// When it was claimed.
        pub created_at: Millis,
    }
}

/// A claim on a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claimed {
    /// Whose key.
    pub actor: String,
    /// Of the key.
    pub digest: Vec<u8>,
    /// Which attempt.
    pub claim: String,
}

/// What a key stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It is free: do it.
    Mine(Claimed),
    /// It is being done.
    Busy,
    /// It was done.
    Done(Kept),
    /// It was done by a console that died before it answered.
    Lost,
    /// It was used for another request.
    Other,
}

impl Store {
    /// Takes a key, or says what it stands for.
    pub async fn claim_key(
        &self,
        actor: &str,
        digest: &[u8],
        request: &[u8],
        now: Millis,
    ) -> Result<Turn, StoreError> {
        let claimed = Claimed {
            actor: actor.to_owned(),
            digest: digest.to_owned(),
            claim: id(),
        };
        Ok(transact!(self, Lock::Replays, tx => {
            sqlx::query("DELETE FROM replays WHERE actor = $1 AND key = $2 AND created_at <= $3")
                .bind(actor)
                .bind(digest)
                .bind(now - KEPT)
                .execute(&mut *tx)
                .await?;
            let there: Option<Kept> = sqlx::query_as(
                "SELECT request, claim, changed, status, head, body, created_at FROM replays WHERE actor = $1 AND key = $2",
            )
            .bind(actor)
            .bind(digest)
            .fetch_optional(&mut *tx)
            .await?;
            let statement = match there {
                Some(kept) if kept.request != request => return Ok(Turn::Other),
                Some(kept) if kept.status.is_some() => return Ok(Turn::Done(kept)),
                Some(kept) if now - kept.created_at < ABANDONED => return Ok(Turn::Busy),
                Some(kept) if kept.changed => return Ok(Turn::Lost),
                Some(_) => "UPDATE replays SET request = $3, claim = $4, created_at = $5 WHERE actor = $1 AND key = $2",
                None => "INSERT INTO replays (actor, key, request, claim, changed, created_at) VALUES ($1, $2, $3, $4, FALSE, $5)",
            };
            sqlx::query(statement)
                .bind(actor)
                .bind(digest)
                .bind(request)
                .bind(&claimed.claim)
                .bind(now)
                .execute(&mut *tx)
                .await?;
            Turn::Mine(claimed)
        }))
    }

    /// Keeps the answer of a claim.
    pub async fn keep_answer(
        &self,
        key: &Claimed,
        status: i64,
        head: &str,
        body: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        on!(self, pool => sqlx::query(
            "UPDATE replays SET status = $4, head = $5, body = $6 WHERE actor = $1 AND key = $2 AND claim = $3")
            .bind(&key.actor).bind(&key.digest).bind(&key.claim).bind(status).bind(head).bind(body)
            .execute(pool).await.map(|_| ()))?;
        Ok(())
    }

    /// Gives a claim back after which nothing was changed.
    pub async fn release_key(&self, key: &Claimed) -> Result<(), StoreError> {
        on!(self, pool => sqlx::query(
            "DELETE FROM replays WHERE actor = $1 AND key = $2 AND claim = $3 AND changed = FALSE")
            .bind(&key.actor).bind(&key.digest).bind(&key.claim).execute(pool).await.map(|_| ()))?;
        Ok(())
    }
}
