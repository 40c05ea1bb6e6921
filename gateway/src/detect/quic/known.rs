//! Which handshakes were begun lately, by any session: the pieces of one may not come through two.
//!
//! A server knows a handshake by the connection id that its client chose, whatever port it comes from. If one session
//! could send one half of a hello and another session the other half, each with something harmless around it, the server
//! would put together what nobody judged. So an id belongs to the session that used it first, for longer than servers
//! wait for the rest. Ids are random and long; nobody meets another's by chance.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netpolicy::ids::NetworkId;

/// Servers give a handshake up after ten to thirty seconds.
const KEPT: Duration = Duration::from_mins(2);
/// Ids of one network that are remembered; further handshakes wait for the oldest to go.
const MOST_OF_ONE: usize = 4096;
/// Ids of all networks.
const MOST: usize = 256 * 1024;

/// Ids of all sessions.
#[derive(Debug, Default)]
pub struct Known(Mutex<Ids>);

type Id = Box<[u8]>;

#[derive(Debug, Default)]
struct Ids {
    used: HashMap<Id, Instant>,
    of_network: HashMap<NetworkId, usize>,
    /// In the order in which they were first used.
    order: VecDeque<(Instant, NetworkId, Id)>,
}

impl Ids {
    fn forget_old(&mut self, now: Instant) {
        while let Some((at, _, _)) = self.order.front()
            && now.saturating_duration_since(*at) >= KEPT
            && let Some((at, network, id)) = self.order.pop_front()
        {
            if self.used.get(&id) == Some(&at) {
                self.used.remove(&id);
            }
            if let Some(count) = self.of_network.get_mut(&network) {
                *count -= 1;
                if *count == 0 {
                    self.of_network.remove(&network);
                }
            }
        }
    }
}

impl Known {
    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an id for one session; `None` where another has it, or too many are taken.
    fn claim(self: &Arc<Self>, network: &NetworkId, id: &[u8], now: Instant) -> Option<Claim> {
        let mut ids = self.ids();
        ids.forget_old(now);
        let of_network = ids.of_network.get(network).copied().unwrap_or_default();
        if ids.used.contains_key(id) || of_network >= MOST_OF_ONE || ids.order.len() >= MOST {
            return None;
        }
        let id: Id = id.into();
        ids.used.insert(id.clone(), now);
        ids.order.push_back((now, network.clone(), id.clone()));
        *ids.of_network.entry(network.clone()).or_default() += 1;
        Some(Claim {
            known: self.clone(),
            id: Some(id),
        })
    }
}

/// One id of one session.
#[derive(Debug)]
pub(super) struct Claim {
    known: Arc<Known>,
    /// `None` once a part of the handshake was sent: then it stays taken.
    id: Option<Id>,
}

impl Claim {
    /// A part of the handshake is sent.
    pub(super) fn keep(&mut self) {
        self.id = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.known.ids().used.remove(&id);
        }
    }
}

/// Claims for one session.
#[derive(Clone, Debug)]
pub struct Claims {
    known: Arc<Known>,
    network: NetworkId,
}

impl Claims {
    /// Of a session of this network.
    pub fn new(known: Arc<Known>, network: NetworkId) -> Self {
        Self { known, network }
    }

    pub(super) fn claim(&self, id: &[u8]) -> Option<Claim> {
        self.known.claim(&self.network, id, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> NetworkId {
        text.parse().expect("an id")
    }

    #[test]
    fn an_id_is_one_sessions_until_servers_have_forgotten_it() {
        let known = Arc::<Known>::default();
        let (a, b, now) = (network("a"), network("b"), Instant::now());
        // nothing of it was sent: free again
        drop(known.claim(&a, b"12345678", now).expect("free"));
        let mut claim = known.claim(&a, b"12345678", now).expect("free again");
        claim.keep();
        drop(claim);
        let later = now + KEPT / 2;
        assert!(known.claim(&b, b"12345678", later).is_none());
        assert!(known.claim(&b, b"12345678", now + KEPT).is_some());
    }

    #[test]
    fn one_network_cannot_take_all_and_nothing_stays_behind() {
        let known = Arc::<Known>::default();
        let (a, b, now) = (network("a"), network("b"), Instant::now());
        let mut claims = 0;
        for number in 0_u64..10_000 {
            if let Some(mut claim) = known.claim(&a, &number.to_be_bytes(), now) {
                claim.keep();
                claims += 1;
            }
        }
        assert_eq!(claims, MOST_OF_ONE);
        assert!(known.claim(&b, b"another one", now).is_some());
        assert!(known.claim(&a, b"afterwards", now + KEPT).is_some());
        let ids = known.ids();
        assert_eq!((ids.used.len(), ids.order.len()), (0, 1));
    }
}
