//! How fast one network asks: answers a second, look-ups a second, look-ups at once.
//!
//! One sandbox must not take the door from the others (DNS-14, DNS-45). Answers that cost no look-up are cheap and
//! have a wide bound; look-ups cost sockets and another machine's patience and have a narrow one. A plain leaky bucket
//! over a caller's clock, without locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The bounds; the same for every network of a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paces {
    /// Questions a second; more are dropped unread.
    pub questions: u32,
    /// Questions a second that need a look-up; more are answered SERVFAIL.
    pub lookups: u32,
    /// Look-ups at once; more are answered SERVFAIL.
    pub in_flight: u32,
}

impl Default for Paces {
    fn default() -> Self {
        // a busy package manager asks for some dozens a second; a name server lasts longer than either
        Self {
            questions: 200_000,
            lookups: 100,
            in_flight: 64,
        }
    }
}

/// What one network used of its bounds.
#[derive(Debug, Default)]
pub struct Pace {
    questions: Bucket,
    lookups: Bucket,
    in_flight: Arc<AtomicU32>,
}

/// One look-up in flight; gives its place back on drop.
#[derive(Debug)]
pub struct InFlight(Arc<AtomicU32>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pace {
    /// Whether a question may be read at all. `now` is any clock that does not go back.
    pub fn question(&self, paces: &Paces, now: Duration) -> bool {
        self.questions.take(paces.questions, now)
    }

    /// A place for a look-up, if rate and number allow one.
    pub fn lookup(&self, paces: &Paces, now: Duration) -> Option<InFlight> {
        let place = |n: u32| (n < paces.in_flight).then_some(n + 1);
        self.in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, place)
            .ok()?;
        let place = InFlight(self.in_flight.clone());
        self.lookups.take(paces.lookups, now).then_some(place)
    }
}

/// Generic cell rate algorithm: the time at which the bucket is empty again.
#[derive(Debug, Default)]
struct Bucket(AtomicU64);

impl Bucket {
    /// Takes one of `rate` a second, with a burst of two seconds' worth.
    fn take(&self, rate: u32, now: Duration) -> bool {
        const BURST: u64 = 2_000_000_000;
        let cost = 1_000_000_000 / u64::from(rate.max(1));
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let fill = |empty_at: u64| {
            let next = empty_at.max(now).saturating_add(cost);
            (next <= now.saturating_add(BURST)).then_some(next)
        };
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fill)
            .is_ok()
    }
}
