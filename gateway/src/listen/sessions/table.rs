//! Which sessions there are, and which of a network is idle for longest.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::limits::{FlowSlot, Taken};
use crate::network::Network;

/// A session that moved something within this time does not make room for another: a client that uses all its places is
/// told so, instead of its sessions pushing each other out.
const BUSY_MS: u64 = 1_000;

/// A datagram or an echo request that waits, with its place among all that do.
#[derive(Debug)]
pub(in crate::listen) struct Held {
    pub bytes: Vec<u8>,
    /// Of an echo request; 0 for a datagram.
    pub sequence: u16,
    pub _place: Taken,
}

/// Between whom. A source belongs to one network at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::listen) struct Key {
    pub source: SocketAddr,
    pub destination: SocketAddr,
}

/// A session's place among its network's flows.
#[derive(Debug)]
pub(in crate::listen) struct Place {
    slot: Mutex<Option<FlowSlot>>,
    active_ms: AtomicU64,
    /// Fires when another session needs the place.
    pub give_way: CancellationToken,
}

impl Place {
    pub fn new(slot: FlowSlot, now_ms: u64) -> Self {
        Self {
            slot: Mutex::new(Some(slot)),
            active_ms: AtomicU64::new(now_ms),
            give_way: CancellationToken::new(),
        }
    }

    /// Something moved.
    pub fn touch(&self, now_ms: u64) {
        self.active_ms.store(now_ms, Ordering::Relaxed);
    }

    /// When something moved last.
    pub fn active_ms(&self) -> u64 {
        self.active_ms.load(Ordering::Relaxed)
    }

    /// How much of a limit of idleness is left at a moment.
    pub fn idle_left(&self, now_ms: u64, limit: Duration) -> Duration {
        let idle = now_ms.saturating_sub(self.active_ms());
        limit.saturating_sub(Duration::from_millis(idle))
    }

    fn vacate(&self) {
        let slot = self
            .slot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(slot);
        self.give_way.cancel();
    }
}

#[derive(Debug)]
struct Entry {
    serial: u64,
    network: Arc<Network>,
    inbox: mpsc::Sender<Held>,
    place: Arc<Place>,
}

/// All sessions of the gateway.
#[derive(Debug, Default)]
pub(in crate::listen) struct Table {
    entries: HashMap<Key, Entry>,
    next: u64,
}

impl Table {
    /// Where datagrams of a session go; one of an earlier network with the same address does not count.
    pub fn find(&self, key: Key, network: &Arc<Network>) -> Option<mpsc::Sender<Held>> {
        let entry = self.entries.get(&key)?;
        let same = Arc::ptr_eq(&entry.network, network) && !entry.place.give_way.is_cancelled();
        same.then(|| entry.inbox.clone())
    }

    /// Adds a session; one that stood there gives way.
    pub fn add(
        &mut self,
        key: Key,
        network: Arc<Network>,
        inbox: mpsc::Sender<Held>,
        place: Arc<Place>,
    ) -> u64 {
        self.next += 1;
        let serial = self.next;
        let entry = Entry {
            serial,
            network,
            inbox,
            place,
        };
        if let Some(before) = self.entries.insert(key, entry) {
            before.place.vacate();
        }
        serial
    }

    /// Removes a session unless another stands in its place.
    pub fn remove(&mut self, key: Key, serial: u64) {
        if self.entries.get(&key).is_some_and(|e| e.serial == serial) {
            self.entries.remove(&key);
        }
    }

    /// Makes the session of a network that is idle for longest give its place up; `false` when all are busy.
    pub fn give_way(&mut self, network: &Arc<Network>, now_ms: u64) -> bool {
        let idle = self.entries.iter().filter(|(_, entry)| {
            Arc::ptr_eq(&entry.network, network)
                && !entry.place.give_way.is_cancelled()
                && now_ms.saturating_sub(entry.place.active_ms()) >= BUSY_MS
        });
        let oldest = idle.min_by_key(|(_, entry)| entry.place.active_ms());
        let Some(key) = oldest.map(|(key, _)| *key) else {
            return false;
        };
        if let Some(entry) = self.entries.remove(&key) {
            entry.place.vacate();
        }
        true
    }
}
