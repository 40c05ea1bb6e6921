//! Servers with which QUIC connections of a network ended: their client goes on sending, and would begin a session anew,
//! from the same port or another.
//!
//! Where bytes show nothing (RFC 9287 lets even the bit be cleared that tells QUIC apart), only who sends them where can
//! tell. Where a newer policy ended one, nothing but a hello goes to that server until the client has given up.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use netpolicy::ids::NetworkId;

use crate::detect::quic::Look;

/// Longer than clients go on without an answer.
const KEPT: Duration = Duration::from_mins(5);
/// All networks together; the oldest make room.
const MOST: usize = 64 * 1024;

/// Whose connection, and with which server.
pub(super) type Server = (NetworkId, SocketAddr);

/// What is known of the connections that came before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Past {
    /// None that could go on.
    Clean,
    /// One may have been, whose name nobody knows any more: a short header may be of it.
    Unknown,
    /// A newer policy ended one with this server: whatever shows no hello may be of it.
    Cut,
}

impl Past {
    /// Whether a datagram may carry on what must not go on.
    pub fn forbids(self, look: &Look) -> bool {
        match self {
            Self::Clean => false,
            Self::Unknown => matches!(look, Look::Middle),
            Self::Cut => matches!(look, Look::Pass | Look::Middle | Look::NotQuic),
        }
    }
}

/// Whether connections of before a restart could go on still.
pub(super) fn is_young(adopted: Option<Instant>, now: Instant) -> bool {
    adopted.is_some_and(|at| now.saturating_duration_since(at) < KEPT)
}

/// The ends of such connections.
#[derive(Debug, Default)]
pub(super) struct Cut {
    ends: Mutex<Ends>,
    /// Asked for every batch of datagrams, so nobody waits for the lock where nothing ever ended.
    any: AtomicBool,
}

#[derive(Debug, Default)]
struct Ends {
    at: HashMap<Server, Instant>,
    order: VecDeque<(Instant, Server)>,
}

impl Cut {
    /// Remembers one.
    pub fn add(&self, server: Server, now: Instant) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        while ends.order.len() >= MOST
            || ends
                .order
                .front()
                .is_some_and(|(at, _)| now.saturating_duration_since(*at) >= KEPT)
        {
            let Some((at, old)) = ends.order.pop_front() else {
                break;
            };
            if ends.at.get(&old) == Some(&at) {
                ends.at.remove(&old);
            }
        }
        ends.at.insert(server.clone(), now);
        ends.order.push_back((now, server));
        self.any.store(true, Ordering::Release);
    }

    /// Whether one ended here lately.
    pub fn has(&self, server: &Server, now: Instant) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let at = ends.at.get(server);
        at.is_some_and(|at| now.saturating_duration_since(*at) < KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_known_for_minutes_and_never_without_bound() {
        let (cut, now) = (Cut::default(), Instant::now());
        let id = "n0000000000000007".parse::<NetworkId>().unwrap();
        let key = |port: u16| (id.clone(), SocketAddr::from(([93, 184, 216, 34], port)));
        cut.add(key(1), now);
        assert!(cut.has(&key(1), now) && !cut.has(&key(2), now));
        // said again, it is known from then on
        cut.add(key(1), now + KEPT / 2);
        cut.add(key(2), now + KEPT);
        assert!(cut.has(&key(1), now + KEPT));
        assert!(!cut.has(&key(1), now + KEPT * 2));
        cut.add(key(3), now + KEPT * 3);
        let ends = cut.ends.lock().unwrap();
        assert_eq!((ends.at.len(), ends.order.len()), (1, 1));
    }

    #[test]
    fn an_adopted_network_is_doubted_for_minutes_and_a_fresh_one_never() {
        let now = Instant::now();
        assert!(!is_young(None, now));
        assert!(is_young(Some(now), now + KEPT / 2) && !is_young(Some(now), now + KEPT));
    }

    #[test]
    fn what_may_go_on_depends_on_what_came_before() {
        let looks = [Look::Middle, Look::NotQuic, Look::Pass, Look::Need];
        let forbidden = |past: Past| looks.each_ref().map(|look| past.forbids(look));
        assert_eq!(forbidden(Past::Clean), [false; 4]);
        assert_eq!(forbidden(Past::Unknown), [true, false, false, false]);
        assert_eq!(forbidden(Past::Cut), [true, true, true, false]);
    }
}
