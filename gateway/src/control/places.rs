//! How many changes of networks one user may have under way at once.
//!
//! A policy that is parsed and composed costs a gateway more than an answer from memory: it takes a place of its user's
//! first; who has none free waits behind itself and nobody else. Invariant: a place is held until the work is over,
//! whether or not its client still waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::access::{Peer, is_ours};
use super::api::Problem;

/// For so long a request waits for its user's others.
const PATIENCE: Duration = Duration::from_secs(10);

/// Places of changes.
#[derive(Debug)]
pub struct Places {
    each: usize,
    users: Mutex<HashMap<u32, Arc<Semaphore>>>,
}

/// For each user.
const EACH: usize = 4;
/// Root and the gateway's own user may have this many times as much: they attach for everybody's runs.
const OURS: usize = 4;

impl Default for Places {
    fn default() -> Self {
        Self::new(EACH)
    }
}

impl Places {
    fn new(each: usize) -> Self {
        Self {
            each,
            users: Mutex::default(),
        }
    }

    fn most(&self, peer: Peer) -> usize {
        if is_ours(peer.uid) {
            self.each * OURS
        } else {
            self.each
        }
    }

    fn of(&self, peer: Peer) -> Arc<Semaphore> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Arc::new(Semaphore::new(self.most(peer)));
        users.entry(peer.uid).or_insert_with(fresh).clone()
    }

    /// A place, now or soon.
    pub async fn take(&self, peer: Peer) -> Result<OwnedSemaphorePermit, Problem> {
        let waited = tokio::time::timeout(PATIENCE, self.of(peer).acquire_owned());
        if let Ok(Ok(place)) = waited.await {
            return Ok(place);
        }
        let most = self.most(peer);
        let message = format!("{most} changes of this user are under way already");
        Err(Problem::new(429, "full", message).hint("ask again when they are done"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_has_no_place_left_waits_for_its_own_work_and_nobody_else_does() {
        let places = Places::new(2);
        let (greedy, other) = (Peer { uid: 4_000_001 }, Peer { uid: 4_000_002 });
        let (first, _second) = (places.take(greedy).await, places.take(greedy).await);
        let mut waiting = Box::pin(places.take(greedy));
        let now = Duration::ZERO;
        assert!(tokio::time::timeout(now, &mut waiting).await.is_err());
        assert!(matches!(
            tokio::time::timeout(now, places.take(other)).await,
            Ok(Ok(_))
        ));
        drop(first.unwrap());
        assert!(waiting.await.is_ok());
    }
}
