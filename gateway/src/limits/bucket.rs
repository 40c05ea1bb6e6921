//! Token buckets: how often something may happen, and how long bytes have to wait. Time is a parameter.

use std::time::{Duration, Instant};

/// Tokens that come back at a steady rate.
///
/// The level may go below zero by one `spend`: what was moved is paid for afterwards, so a relay never has to know in
/// advance how many bytes the kernel will move.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    per_second: f64,
    capacity: f64,
    level: f64,
    filled: Instant,
}

impl Bucket {
    /// A full bucket.
    pub fn new(per_second: u64, capacity: u64, now: Instant) -> Self {
        let (per_second, capacity) = (as_f64(per_second), as_f64(capacity.max(1)));
        Self {
            per_second,
            capacity,
            level: capacity,
            filled: now,
        }
    }

    /// Changes the rate and keeps what was used.
    pub fn set(&mut self, per_second: u64, capacity: u64) {
        (self.per_second, self.capacity) = (as_f64(per_second), as_f64(capacity.max(1)));
        self.level = self.level.min(self.capacity);
    }

    /// Takes one token if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let enough = self.level >= 1.0;
        if enough {
            self.level -= 1.0;
        }
        enough
    }

    /// Pays for `amount` and says how long to wait until the bucket is out of debt.
    pub fn spend(&mut self, amount: u64, now: Instant) -> Duration {
        self.fill(now);
        self.level -= as_f64(amount);
        if self.level >= 0.0 {
            return Duration::ZERO;
        }
        // an hour at most: a rate of zero is "as slow as can be", never an overflow
        Duration::from_secs_f64((-self.level / self.per_second.max(1.0)).min(3600.0))
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.level = (self.level + passed * self.per_second).min(self.capacity);
        self.filled = self.filled.max(now);
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate is not money: 53 bits are exact beyond any real bandwidth"
)]
fn as_f64(amount: u64) -> f64 {
    amount as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_then_its_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, 20, start);
        assert_eq!((0..30).filter(|_| bucket.take(start)).count(), 20);
        assert_eq!(
            (0..30)
                .filter(|_| bucket.take(start + Duration::from_secs(1)))
                .count(),
            10
        );
        assert_eq!(
            (0..30)
                .filter(|_| bucket.take(start + Duration::from_mins(1)))
                .count(),
            20
        );
    }

    #[test]
    fn time_that_runs_backwards_gives_nothing_away() {
        let earlier = Instant::now();
        let start = earlier + Duration::from_secs(10);
        let mut bucket = Bucket::new(1, 1, start);
        assert!(bucket.take(start));
        assert!(!bucket.take(earlier));
        assert!(!bucket.take(start));
    }

    #[test]
    fn debt_is_waited_for() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1000, 1000, start);
        assert_eq!(bucket.spend(1000, start), Duration::ZERO);
        assert_eq!(bucket.spend(500, start), Duration::from_millis(500));
        assert_eq!(
            bucket.spend(0, start + Duration::from_millis(500)),
            Duration::ZERO
        );
    }
}
