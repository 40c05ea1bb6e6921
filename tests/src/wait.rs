//! Waiting for conditions, never for time.

use std::time::{Duration, Instant};

/// How long a condition may take before the test fails: generous, because two cores may be shared by many tests.
pub const LIMIT: Duration = Duration::from_secs(20);

const STEP: Duration = Duration::from_millis(5);

/// Asks until the answer is `Some`, or fails the test naming what it waited for.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    within(LIMIT, &mut ask).unwrap_or_else(|| panic!("waited {LIMIT:?} in vain for {what}"))
}

/// Asks until the answer is `Some` or the limit is over.
pub fn within<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::park_timeout(STEP);
    }
}
