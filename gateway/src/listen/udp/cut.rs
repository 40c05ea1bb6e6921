//! QUIC connections that a newer policy ended: their client goes on sending, and would begin a session anew.
//!
//! Where bytes show nothing (RFC 9287 lets even the bit be cleared that tells QUIC apart), only who sends them where can
//! tell. So between such ends a session begins with a hello and with nothing else, until the client has given up.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::table::Key;

/// Longer than clients go on without an answer.
const KEPT: Duration = Duration::from_mins(5);
/// All networks together; the oldest make room.
const MOST: usize = 64 * 1024;

/// The ends of such connections.
#[derive(Debug, Default)]
pub(super) struct Cut(Mutex<Ends>);

#[derive(Debug, Default)]
struct Ends {
    at: HashMap<Key, Instant>,
    order: VecDeque<(Instant, Key)>,
}

impl Cut {
    /// Remembers one.
    pub fn add(&self, key: Key, now: Instant) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        ends.at.insert(key, now);
        ends.order.push_back((now, key));
    }

    /// Whether one ended here lately.
    pub fn has(&self, key: Key, now: Instant) -> bool {
        let ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = ends.at.get(&key);
        at.is_some_and(|at| now.saturating_duration_since(*at) < KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_known_for_minutes_and_never_without_bound() {
        let (cut, now) = (Cut::default(), Instant::now());
        let key = |port: u16| Key {
            source: ([198, 18, 0, 9], port).into(),
            destination: ([93, 184, 216, 34], 443).into(),
        };
        cut.add(key(1), now);
        assert!(cut.has(key(1), now) && !cut.has(key(2), now));
        // said again, it is known from then on
        cut.add(key(1), now + KEPT / 2);
        cut.add(key(2), now + KEPT);
        assert!(cut.has(key(1), now + KEPT));
        assert!(!cut.has(key(1), now + KEPT * 2));
        cut.add(key(3), now + KEPT * 3);
        let ends = cut.0.lock().unwrap();
        assert_eq!((ends.at.len(), ends.order.len()), (1, 1));
    }
}
