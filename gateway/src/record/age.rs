//! The time by which old things are called old: the wall clock, unless it jumped ahead.
//!
//! What retention removes does not come back, and a clock that was set ahead by mistake (a dead battery, a wrong time
//! server) makes everything look old. So a jump ahead counts once the clock has gone on from there for a day; until then
//! time goes on from where it was, at the machine's own pace. The same holds for a gateway that was off: it resumes where
//! it was, from a file. A clock that was set back is believed at once: what looks younger is kept for longer.
//! Pure but for that file: whoever asks says what both clocks show. Without the file the clock is believed.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

const HOUR_MS: i64 = 3_600_000;
/// More than clocks drift or are corrected by in ordinary life, summer time included.
const JUMP_MS: i64 = 2 * HOUR_MS;
/// How long a jump has to stand: a person has noticed by then, or it was right.
const STANDS_MS: i64 = 24 * HOUR_MS;

/// Both clocks when they last agreed.
#[derive(Clone, Copy, Debug)]
pub struct Ages {
    at: Instant,
    kept: Kept,
    /// What the wall clock showed then, in this process.
    wall_ms: Option<i64>,
}

/// What outlives the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Kept {
    /// The time that is believed, in milliseconds since the epoch.
    believed_ms: i64,
    /// Where the clock was when it was first found ahead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    doubted_ms: Option<i64>,
}

impl Ages {
    /// Beginning with a time that is believed.
    pub fn since(at: Instant, believed_ms: i64) -> Self {
        let kept = Kept {
            believed_ms,
            doubted_ms: None,
        };
        Self {
            at,
            kept,
            wall_ms: None,
        }
    }

    /// As an earlier process left it; a file that is not there or damaged leaves nothing.
    pub fn read(path: &Path, at: Instant, wall_ms: i64) -> Self {
        let kept = fs::read(path)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        kept.map_or_else(
            || Self::since(at, wall_ms),
            |kept| Self {
                at,
                kept,
                wall_ms: None,
            },
        )
    }

    /// For the next process.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let fresh = path.with_extension("new");
        fs::write(&fresh, serde_json::to_vec(&self.kept)?)?;
        fs::rename(&fresh, path)
    }

    /// The time to judge ages by, in milliseconds since the epoch.
    pub fn now(&mut self, at: Instant, wall_ms: i64) -> i64 {
        let passed = at.saturating_duration_since(self.at).as_millis();
        let passed = i64::try_from(passed).unwrap_or(i64::MAX);
        let expected = self.kept.believed_ms.saturating_add(passed);
        let mut doubted_ms = None;
        if wall_ms.saturating_sub(expected) > JUMP_MS {
            // a clock that jumps on while it is doubted has not stood: its day begins anew
            let jumped_on = self
                .wall_ms
                .is_some_and(|last| wall_ms.saturating_sub(last.saturating_add(passed)) > JUMP_MS);
            let doubted = self.kept.doubted_ms.filter(|_| !jumped_on);
            let since = doubted.unwrap_or(wall_ms);
            if wall_ms.saturating_sub(since) < STANDS_MS {
                doubted_ms = Some(since);
            }
        }
        let believed_ms = if doubted_ms.is_some() {
            expected
        } else {
            wall_ms
        };
        self.at = at;
        self.wall_ms = Some(wall_ms);
        self.kept = Kept {
            believed_ms,
            doubted_ms,
        };
        believed_ms
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const YEAR: i64 = 365 * 24 * HOUR_MS;

    fn hours(count: u64) -> Duration {
        Duration::from_secs(3600 * count)
    }

    #[test]
    fn a_jump_ahead_counts_only_when_it_has_stood_for_a_day() {
        let at = Instant::now();
        let mut ages = Ages::since(at, 0);
        for hour in 1..25_u8 {
            let now = HOUR_MS * i64::from(hour);
            assert_eq!(ages.now(at + hours(hour.into()), now + YEAR), now, "{hour}");
        }
        // and from then on it is the time
        for hour in 25..30_u8 {
            let now = YEAR + HOUR_MS * i64::from(hour);
            assert_eq!(ages.now(at + hours(hour.into()), now), now, "{hour}");
        }
    }

    #[test]
    fn a_jump_that_is_taken_back_never_counted() {
        let at = Instant::now();
        let mut ages = Ages::since(at, 0);
        assert_eq!(ages.now(at + hours(1), YEAR), HOUR_MS);
        assert_eq!(ages.now(at + hours(2), 2 * HOUR_MS), 2 * HOUR_MS);
        // the next one begins its own day
        assert_eq!(ages.now(at + hours(25), 2 * YEAR), 25 * HOUR_MS);
        assert_eq!(ages.now(at + hours(26), 2 * YEAR + HOUR_MS), 26 * HOUR_MS);
    }

    #[test]
    fn a_clock_that_jumps_on_while_it_is_doubted_begins_its_day_anew() {
        let at = Instant::now();
        let mut ages = Ages::since(at, 0);
        assert_eq!(ages.now(at + hours(1), 4 * HOUR_MS), HOUR_MS);
        // a day beyond the first jump by the clock's own word, and an hour by the machine's
        assert_eq!(ages.now(at + hours(2), YEAR), 2 * HOUR_MS);
        assert_eq!(ages.now(at + hours(25), YEAR + 23 * HOUR_MS), 25 * HOUR_MS);
        let stood = YEAR + 24 * HOUR_MS;
        assert_eq!(ages.now(at + hours(26), stood), stood);
    }

    #[test]
    fn small_corrections_and_a_clock_that_is_set_back_are_believed_at_once() {
        let at = Instant::now();
        let mut ages = Ages::since(at, YEAR);
        let ahead = YEAR + 2 * HOUR_MS;
        assert_eq!(ages.now(at + hours(1), ahead), ahead);
        assert_eq!(ages.now(at + hours(2), 5), 5);
        assert_eq!(ages.now(at + hours(3), HOUR_MS + 5), HOUR_MS + 5);
    }

    #[test]
    fn a_process_resumes_where_the_one_before_was_and_doubts_on() {
        let dir = tempfile::tempdir().unwrap();
        let (path, at) = (dir.path().join("clock.json"), Instant::now());
        let mut ages = Ages::read(&path, at, 7);
        assert_eq!(
            ages.now(at, YEAR),
            7,
            "nothing there: the clock is believed"
        );
        ages.write(&path).unwrap();
        let mut ages = Ages::read(&path, at, YEAR);
        assert_eq!(ages.now(at + hours(1), YEAR + HOUR_MS), 7 + HOUR_MS);
        // it has stood for a day, whoever was running
        ages.write(&path).unwrap();
        let day = YEAR + 24 * HOUR_MS;
        assert_eq!(Ages::read(&path, at, day).now(at, day), day);
        fs::write(&path, "{").unwrap();
        assert_eq!(Ages::read(&path, at, 9).now(at, 9), 9);
    }
}
