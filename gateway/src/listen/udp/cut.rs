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
/// Of one network, whose oldest make room: another's connections push nothing of it out.
const SHARE: usize = 4 * 1024;

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
    ends: Mutex<HashMap<NetworkId, Ends>>,
    /// Asked for every batch of datagrams, so nobody waits for the lock where nothing ever ended.
    any: AtomicBool,
}

/// Of one network.
#[derive(Debug, Default)]
struct Ends {
    at: HashMap<SocketAddr, Instant>,
    order: VecDeque<(Instant, SocketAddr)>,
}

impl Ends {
    fn add(&mut self, server: SocketAddr, now: Instant) {
        self.forget(now);
        while self.order.len() >= SHARE {
            self.forget_oldest();
        }
        self.at.insert(server, now);
        self.order.push_back((now, server));
    }

    /// Lets go of what is too old to matter.
    fn forget(&mut self, now: Instant) {
        let is_old = |at: &Instant| now.saturating_duration_since(*at) >= KEPT;
        while self.order.front().is_some_and(|(at, _)| is_old(at)) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((at, old)) = self.order.pop_front()
            && self.at.get(&old) == Some(&at)
        {
            self.at.remove(&old);
        }
    }
}

impl Cut {
    /// Remembers one; networks of which nothing is known any more are forgotten meanwhile.
    pub fn add(&self, (network, server): Server, now: Instant) {
        let mut all = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(&network) {
            all.retain(|_, ends| {
                ends.forget(now);
                !ends.order.is_empty()
            });
        }
        all.entry(network).or_default().add(server, now);
        self.any.store(true, Ordering::Release);
    }

    /// Whether one ended here lately.
    pub fn has(&self, (network, server): &Server, now: Instant) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let all = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.get(network).and_then(|ends| ends.at.get(server));
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
        let all = cut.ends.lock().unwrap();
        assert_eq!((all[&id].at.len(), all[&id].order.len()), (1, 1));
    }

    #[test]
    fn one_network_pushes_nothing_of_another_out_and_what_is_over_is_forgotten() {
        let (cut, now) = (Cut::default(), Instant::now());
        let id = |last: char| {
            format!("n000000000000000{last}")
                .parse::<NetworkId>()
                .unwrap()
        };
        let server = |n: u32| {
            let [_, a, b, c] = n.to_be_bytes();
            SocketAddr::from(([10, a, b, c], 443))
        };
        cut.add((id('1'), server(0)), now);
        for n in 0..=u32::try_from(SHARE).unwrap() {
            cut.add((id('2'), server(n)), now);
        }
        assert!(cut.has(&(id('1'), server(0)), now));
        assert!(
            !cut.has(&(id('2'), server(0)), now),
            "its own oldest made room"
        );
        assert!(cut.has(&(id('2'), server(1)), now));
        cut.add((id('3'), server(0)), now + KEPT);
        assert_eq!(cut.ends.lock().unwrap().len(), 1);
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
