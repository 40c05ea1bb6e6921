//! Servers with which QUIC connections of a network ended: their client goes on sending, and would begin a session anew,
//! from the same port or another.
//!
//! Owns: which servers these are, for as long as a client may go on, within a limit of memory. Refuses to own: what may
//! still be sent to one (the UDP door). Asked for every datagram that shows no name, so what was known is known without
//! a lock until something changes.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longer than clients go on without an answer.
pub const KEPT: Duration = Duration::from_mins(5);
/// Of each kind; the oldest make room.
const MOST: usize = 4 * 1024;
/// What was known is asked anew after this long, because it is also forgotten.
const FRESH: Duration = Duration::from_secs(1);

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// A newer policy cut it.
    Cut,
    /// By itself.
    Other,
}

/// A server as the sandbox calls it and as it was dialled: it may come by another name.
pub type Server = [SocketAddr; 2];

/// The ends of a network's connections.
#[derive(Debug, Default)]
pub struct EndedConnections {
    kinds: Mutex<Kinds>,
    /// Counts changes; moved while the lock is held, so who reads it first and then looks misses none.
    changes: AtomicU64,
}

/// Apart, so that connections that a sandbox ends itself push nothing out that was cut.
#[derive(Debug, Default)]
struct Kinds {
    cut: Ends,
    other: Ends,
}

/// What is known of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// A connection with it was cut.
    pub cut: bool,
    /// One ended otherwise.
    pub other: bool,
}

/// An answer that is good for a while.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    known: Known,
    changes: u64,
    at: Instant,
}

impl EndedConnections {
    fn kinds(&self) -> MutexGuard<'_, Kinds> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers one.
    pub fn add(&self, ending: Ending, server: Server, now: Instant) {
        let mut kinds = self.kinds();
        let ends = match ending {
            Ending::Cut => &mut kinds.cut,
            Ending::Other => &mut kinds.other,
        };
        let [asked, dialled] = canonical(server);
        ends.add(asked, now);
        if dialled != asked {
            ends.add(dialled, now);
        }
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// What is known of a server now; `last` is the asker's latest answer about it, and the next one afterwards.
    pub fn known(&self, server: Server, last: &mut Option<Answer>, now: Instant) -> Known {
        let changes = self.changes.load(Ordering::Acquire);
        if let Some(answer) = last
            && answer.changes == changes
            && now.saturating_duration_since(answer.at) < FRESH
        {
            return answer.known;
        }
        let known = if changes == 0 {
            Known::default()
        } else {
            let (kinds, server) = (self.kinds(), canonical(server));
            let has = |ends: &Ends| server.iter().any(|address| ends.has(*address, now));
            Known {
                cut: has(&kinds.cut),
                other: has(&kinds.other),
            }
        };
        *last = Some(Answer {
            known,
            changes,
            at: now,
        });
        known
    }
}

fn canonical(server: Server) -> Server {
    server.map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()))
}

#[derive(Debug, Default)]
struct Ends {
    at: HashMap<SocketAddr, Instant>,
    order: VecDeque<(Instant, SocketAddr)>,
}

impl Ends {
    fn has(&self, server: SocketAddr, now: Instant) -> bool {
        let at = self.at.get(&server);
        at.is_some_and(|at| now.saturating_duration_since(*at) < KEPT)
    }

    fn add(&mut self, server: SocketAddr, now: Instant) {
        let is_old = |at: &Instant| now.saturating_duration_since(*at) >= KEPT;
        while self.order.len() >= MOST || self.order.front().is_some_and(|(at, _)| is_old(at)) {
            self.forget_oldest();
        }
        self.at.insert(server, now);
        self.order.push_back((now, server));
    }

    fn forget_oldest(&mut self) {
        if let Some((at, old)) = self.order.pop_front()
            && self.at.get(&old) == Some(&at)
        {
            self.at.remove(&old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(n: u32) -> Server {
        let [_, a, b, c] = n.to_be_bytes();
        [SocketAddr::from(([10, a, b, c], 443)); 2]
    }

    fn is_cut(ended: &EndedConnections, n: u32, now: Instant) -> bool {
        ended.known(server(n), &mut None, now).cut
    }

    #[test]
    fn ends_are_known_for_minutes_and_never_without_bound() {
        let (ended, now) = (EndedConnections::default(), Instant::now());
        assert!(!is_cut(&ended, 1, now));
        ended.add(Ending::Cut, server(1), now);
        assert!(is_cut(&ended, 1, now) && !is_cut(&ended, 2, now));
        // said again, it is known from then on
        ended.add(Ending::Cut, server(1), now + KEPT / 2);
        ended.add(Ending::Cut, server(2), now + KEPT);
        assert!(is_cut(&ended, 1, now + KEPT));
        assert!(!is_cut(&ended, 1, now + KEPT * 2));
        ended.add(Ending::Cut, server(3), now + KEPT * 3);
        let kinds = ended.kinds();
        assert_eq!((kinds.cut.at.len(), kinds.cut.order.len()), (1, 1));
    }

    #[test]
    fn what_ended_by_itself_pushes_nothing_out_that_was_cut() {
        let (ended, now) = (EndedConnections::default(), Instant::now());
        ended.add(Ending::Cut, server(0), now);
        let newest = u32::try_from(MOST).unwrap() + 1;
        for n in 1..=newest {
            ended.add(Ending::Other, server(n), now);
        }
        let both = |n| ended.known(server(n), &mut None, now);
        assert!(both(0).cut && !both(0).other);
        assert!(!both(1).other, "the oldest made room");
        assert!(both(newest).other);
    }

    #[test]
    fn a_server_is_known_by_both_its_addresses_however_they_are_written() {
        let (ended, now) = (EndedConnections::default(), Instant::now());
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (lease, real) = (at("198.19.0.7:443"), at("[::ffff:93.184.216.34]:443"));
        ended.add(Ending::Cut, [lease, real], now);
        for asked in [
            [lease, at("9.9.9.9:443")],
            [at("93.184.216.34:443"), at("93.184.216.34:443")],
        ] {
            assert!(ended.known(asked, &mut None, now).cut, "{asked:?}");
        }
        let other_port = [at("93.184.216.34:444"); 2];
        assert!(!ended.known(other_port, &mut None, now).cut);
    }

    #[test]
    fn an_answer_needs_no_lock_until_something_changes_or_may_be_forgotten() {
        let (ended, now) = (EndedConnections::default(), Instant::now());
        ended.add(Ending::Other, server(9), now);
        let mut last = None;
        assert!(!ended.known(server(1), &mut last, now).cut);
        {
            // whoever waited for it would wait for ever
            let _held = ended.kinds();
            assert!(!ended.known(server(1), &mut last, now + FRESH / 2).cut);
        }
        ended.add(Ending::Cut, server(1), now);
        assert!(ended.known(server(1), &mut last, now + FRESH / 2).cut);
        assert!(!ended.known(server(1), &mut last, now + KEPT).cut);
    }
}
