//! Entries that end: when the moment of an `until:` passes, flows that only that entry permitted are cut.
//!
//! Owns: which stretch of wall-clock time is looked at, so that no end is missed. A jump forward (a set clock, a machine
//! that slept) is a long stretch; after a jump back the time that comes again is looked at again. The flows of a network
//! in whose stretch an entry ended are decided again for as long as a dial may take: one that was decided a moment before
//! is registered a moment later. New flows need nothing from here: they are decided by the clock.
//! Refuses to own: the decision ([`super::redecide`]).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netpolicy::ids::UnixSeconds;

use super::{Network, redecide};
use crate::context::{Context, now};

/// How often the clock is looked at: an ended entry is noticed within half a second, and its flows have two.
const LOOK: Duration = Duration::from_millis(500);
/// A flow that was decided before an end is registered within this time: the longest dial, and some.
pub const DIALS: Duration = Duration::from_secs(35);

/// Wall-clock times of the last looks.
#[derive(Debug)]
pub struct Clock {
    looks: VecDeque<(Instant, UnixSeconds)>,
}

impl Clock {
    /// Starts now: what ended before was never in force.
    pub fn starting(at: Instant, wall: UnixSeconds) -> Self {
        Self {
            looks: [(at, wall)].into(),
        }
    }

    /// The stretch in which an end still matters: from the earliest wall-clock time of the last looks until now.
    pub fn advance(&mut self, at: Instant, wall: UnixSeconds) -> Range<UnixSeconds> {
        // the newest look always stays, however long ago it was
        while self.looks.len() > 1
            && self
                .looks
                .front()
                .is_some_and(|(then, _)| at.saturating_duration_since(*then) > DIALS)
        {
            self.looks.pop_front();
        }
        let earliest = self.looks.iter().map(|(_, wall)| *wall).min();
        self.looks.push_back((at, wall));
        let after = earliest.unwrap_or(wall).min(wall);
        UnixSeconds(after.0.saturating_add(1))..UnixSeconds(wall.0.saturating_add(1))
    }
}

/// Looks at the clock until cancelled.
pub async fn watch(ctx: Context) {
    let mut tick = tokio::time::interval(LOOK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut clock = Clock::starting(Instant::now(), now());
    loop {
        tick.tick().await;
        let during = clock.advance(Instant::now(), now());
        let lapsed = |network: &Arc<Network>| network.live.load().snapshot.lapses(&during);
        let networks: Vec<_> = ctx.networks.all().into_iter().filter(lapsed).collect();
        if networks.is_empty() {
            continue;
        }
        let cut = tokio::task::spawn_blocking(move || {
            for network in networks {
                let cut = redecide::cut_forbidden(&network, now());
                if cut > 0 {
                    tracing::info!(sandbox.id = %network.id, cut, "an entry has ended; its flows were cut");
                }
            }
        });
        if cut.await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> (Clock, Instant) {
        let at = Instant::now();
        (Clock::starting(at, UnixSeconds(1000)), at)
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn every_second_is_looked_at_for_as_long_as_a_dial_may_take() {
        let (mut clock, at) = clock();
        for second in 1..200 {
            let now = UnixSeconds(1000 + i64::try_from(second).unwrap());
            let during = clock.advance(at + seconds(second), now);
            assert!(during.contains(&now));
            let dial = i64::try_from(second.min(DIALS.as_secs())).unwrap();
            assert_eq!(during.start.0, now.0 - dial + 1);
        }
    }

    #[test]
    fn no_end_is_missed_when_the_clock_jumps_forward_or_the_machine_slept() {
        let (mut clock, at) = clock();
        clock.advance(at + seconds(1), UnixSeconds(1001));
        let during = clock.advance(at + seconds(2), UnixSeconds(1_000_000));
        assert!(during.contains(&UnixSeconds(500_000)) && during.contains(&UnixSeconds(1_000_000)));
        // flows that were being dialled at the jump are caught by the looks after it
        let during = clock.advance(at + seconds(30), UnixSeconds(1_000_028));
        assert!(during.contains(&UnixSeconds(500_000)));
        let during = clock.advance(at + seconds(90), UnixSeconds(1_000_088));
        assert!(!during.contains(&UnixSeconds(500_000)));
    }

    #[test]
    fn an_end_that_comes_a_second_time_after_a_jump_back_is_noticed_again() {
        let (mut clock, at) = clock();
        assert!(clock.advance(at + seconds(1), UnixSeconds(500)).is_empty());
        clock.advance(at + seconds(50), UnixSeconds(549));
        let during = clock.advance(at + seconds(51), UnixSeconds(700));
        assert!(during.contains(&UnixSeconds(600)));
    }
}
