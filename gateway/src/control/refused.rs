//! One line a minute for each user whose connections are refused: a log is not theirs to fill.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Between two lines about one user.
const APART: Duration = Duration::from_mins(1);
/// Users that are remembered at once.
const MOST: usize = 1024;

/// Who was refused since when, and how often it has not been said.
#[derive(Debug, Default)]
pub(super) struct Refusals(HashMap<u32, (Instant, u64)>);

impl Refusals {
    /// Counts one; how many there were since the last line, if it is time for one.
    pub(super) fn count(&mut self, uid: u32, now: Instant) -> Option<u64> {
        if self.0.len() >= MOST && !self.0.contains_key(&uid) {
            self.0
                .retain(|_, (said, _)| now.saturating_duration_since(*said) < APART);
            if self.0.len() >= MOST {
                return None;
            }
        }
        let Some((said, silent)) = self.0.get_mut(&uid) else {
            self.0.insert(uid, (now, 0));
            return Some(1);
        };
        *silent += 1;
        if now.saturating_duration_since(*said) < APART {
            return None;
        }
        *said = now;
        Some(std::mem::take(silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_fills_one_line_a_minute_and_another_has_its_own() {
        let (mut refusals, begin) = (Refusals::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(refusals.count(1000, at(0)), Some(1));
        let told = (1..60).filter_map(|second| refusals.count(1000, at(second)));
        assert_eq!(told.count(), 0);
        assert_eq!(refusals.count(1001, at(59)), Some(1));
        assert_eq!(refusals.count(1000, at(60)), Some(60));
        assert_eq!(refusals.count(1000, at(119)), None);
    }
}
