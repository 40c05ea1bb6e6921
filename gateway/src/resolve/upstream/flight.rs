//! Single flight: equal look-ups at the same time are one look-up.
//!
//! The first caller's future is polled by whoever waits for it, so no task is spawned and nothing outlives its
//! callers. A flight is forgotten when it lands or when the last caller gives up.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

/// Flights by what they look up.
#[derive(Debug)]
pub(super) struct Flights<K, V>(Mutex<HashMap<K, Arc<OnceCell<V>>>>);

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Flights<K, V> {
    /// Joins the flight of `key`, or is its first passenger. If the one who flies gives up, the next takes over.
    pub(super) async fn join<F: Future<Output = V>>(&self, key: K, fly: impl FnOnce() -> F) -> V {
        let cell = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(key.clone())
            .or_default()
            .clone();
        let seat = Seat {
            flights: self,
            key,
            cell,
        };
        seat.cell.get_or_init(fly).await.clone()
    }
}

/// One caller's share in a flight.
struct Seat<'a, K: Hash + Eq, V> {
    flights: &'a Flights<K, V>,
    key: K,
    cell: Arc<OnceCell<V>>,
}

impl<K: Hash + Eq, V> Drop for Seat<'_, K, V> {
    fn drop(&mut self) {
        let mut flights = self
            .flights
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(cell) = flights
            .get(&self.key)
            .filter(|cell| Arc::ptr_eq(cell, &self.cell))
        else {
            return;
        };
        // two owners left: the table and this seat
        if cell.initialized() || Arc::strong_count(cell) <= 2 {
            flights.remove(&self.key);
        }
    }
}
