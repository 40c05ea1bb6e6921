//! Waiting for conditions, never for time.

use std::time::{Duration, Instant};

use crate::pace::Pace;

/// How long a condition may take before the test fails: generous, because two cores may be shared by many tests. What comes
/// in time costs none of it.
pub const LIMIT: Duration = Duration::from_mins(1);

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

/// Asks until the answer is `Some` or the time that the product promises is over, by this machine's [`Pace`].
pub fn promised<T>(promise: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let (pace, began) = (Pace::watch(), Instant::now());
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if began.elapsed() >= pace.stretches(promise) {
            return None;
        }
        std::thread::park_timeout(STEP);
    }
}
