//! Places of those who read the record: reading is work on threads that all share, and a curious user has few of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::access::{Peer, is_ours};

/// Reads of one user at once; its other readers wait.
const OF_USER: usize = 2;
/// The same of root.
const OURS: usize = 16;

/// The places, by user. There are as many users as may observe.
#[derive(Debug, Default)]
pub struct Readers(Mutex<HashMap<u32, Arc<Semaphore>>>);

impl Readers {
    /// Where a user's reads wait for each other.
    pub(super) fn of(&self, peer: Peer) -> Arc<Semaphore> {
        let places = if is_ours(peer.uid) { OURS } else { OF_USER };
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        users
            .entry(peer.uid)
            .or_insert_with(|| Arc::new(Semaphore::new(places)))
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_reads_wait_for_each_other_and_never_for_another_users() {
        let readers = Readers::default();
        let take = |uid| readers.of(Peer { uid }).try_acquire_owned();
        let held: Vec<_> = (0..OF_USER).map(|_| take(1000).unwrap()).collect();
        assert!(take(1000).is_err());
        assert!(take(1001).is_ok());
        assert!(take(0).is_ok());
        drop(held);
        assert!(take(1000).is_ok());
    }
}
