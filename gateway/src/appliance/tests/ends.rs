//! What ends by itself: entries with `until:`, also when the clock is set, and flows on which nobody ever speaks.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::lab::*;
use crate::context::SET_CLOCK;
use crate::kernel::pace::Pace;

const DAY: i64 = 86_400;

/// Sets the clock; on drop it is right again, also after a failed test.
struct ClockSet;

impl ClockSet {
    fn by(seconds: i64) -> Self {
        SET_CLOCK.store(seconds, Ordering::Relaxed);
        Self
    }
}

impl Drop for ClockSet {
    fn drop(&mut self) {
        SET_CLOCK.store(0, Ordering::Relaxed);
    }
}

/// FAR without an end, ELSEWHERE until tomorrow's last second: a test at midnight is one like others.
fn ends_tomorrow() -> String {
    let (year, month, day) = civil(crate::context::now().0 / DAY + 1);
    format!(
        "policy: ends\nnetwork: domains\nallow:\n  - cidr: {FAR}/32\n    ports: [7]\n  - cidr: {ELSEWHERE}/32\n    ports: [7]\n    until: {year:04}-{month:02}-{day:02}\n"
    )
}

/// Days since the epoch as a date (Howard Hinnant's algorithm, for years that matter here).
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    (year, month, doy - (153 * mp + 2) / 5 + 1)
}

#[test]
fn when_an_entry_ends_its_flows_are_cut_within_two_seconds_and_those_of_others_stay() {
    let lab = Lab::started();
    let sandbox = lab.attach(&ends_tomorrow());
    let (kept, cut) = (
        sandbox.echoes(FAR).unwrap(),
        sandbox.echoes(ELSEWHERE).unwrap(),
    );
    let (pace, began) = (Pace::watch(), Instant::now());
    let late = ClockSet::by(2 * DAY);
    eventually("the cut", || is_over(&cut).then_some(()));
    assert!(began.elapsed() < pace.stretches(Duration::from_secs(2)));
    assert!(!is_over(&kept));
    let refused = sandbox.echoes(ELSEWHERE).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    sandbox.echoes(FAR).unwrap();
    // The clock was set by mistake and is set back: the entry lives again, and ends again.
    drop(late);
    let again = sandbox.echoes(ELSEWHERE).unwrap();
    let _late = ClockSet::by(2 * DAY);
    let (pace, began) = (Pace::watch(), Instant::now());
    eventually("the second cut", || is_over(&again).then_some(()));
    assert!(began.elapsed() < pace.stretches(Duration::from_secs(2)));
    assert!(!is_over(&kept));
}

#[test]
fn a_flow_on_which_no_byte_moved_for_ten_minutes_ends_and_one_that_spoke_once_does_not() {
    use crate::relay::Waits;
    assert_eq!(Waits::default().silent, Duration::from_mins(10));
    let limit = Duration::from_millis(400);
    crate::relay::SILENT.set(limit).unwrap();
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let spoke = sandbox.echoes(FAR).unwrap();
    let began = Instant::now();
    let silent = sandbox.connects(FAR, Duration::from_secs(5)).unwrap();
    eventually("the end of silence", || is_over(&silent).then_some(()));
    assert!(began.elapsed() >= limit, "{:?}", began.elapsed());
    assert!(!is_over(&spoke), "it has been quiet for as long");
    let flows = lab.block(async |c| c.flows(None).await.unwrap());
    assert_eq!(flows.len(), 1);
}
