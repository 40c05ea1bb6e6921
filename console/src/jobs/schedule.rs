//! When a schedule is due: cron in a time zone.
//!
//! Five fields. A time that a clock change skips is due when the clock is set on, a time that comes twice is due once; what
//! runs every so many minutes follows real time. Zones are the host's, or those compiled in.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::spec::ScheduleSpec;
use crate::clock::Millis;
use crate::server::problem::Wrong;

/// More is no expression.
const LONGEST: usize = 200;
/// Times that are counted when a console was away; more are as many.
const MOST_MISSED: usize = 1_000;

/// A checked schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    zone: TimeZone,
}

/// Times that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// The newest of them.
    pub latest: Millis,
    /// How many there were.
    pub times: usize,
    /// The first one to come.
    pub next: Option<Millis>,
}

impl Schedule {
    /// Reads one.
    pub fn parse(spec: &ScheduleSpec) -> Result<Self, Wrong> {
        let wrong = |message: String| Wrong::new("spec.schedule.cron", message);
        let fields = spec.cron.split_whitespace().count();
        if spec.cron.len() > LONGEST || (fields != 5 && !spec.cron.trim_start().starts_with('@')) {
            return Err(wrong(
                "five fields: minute hour day-of-month month day-of-week".to_owned(),
            ));
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let cron = parser
            .parse(&spec.cron)
            .map_err(|error| wrong(error.to_string().chars().take(LONGEST).collect()))?;
        let zone = Some(&spec.timezone).filter(|name| name.len() <= 64 && !name.contains('\0'));
        let zone = zone
            .and_then(|name| TimeZone::get(name).ok())
            .ok_or_else(|| {
                Wrong::new(
                    "spec.schedule.timezone",
                    "a time zone such as Europe/Berlin or UTC",
                )
            })?;
        let this = Self { cron, zone };
        // without years what comes once comes again, and what has not come since 1970 never does
        if this.next(0).is_none() {
            return Err(wrong("this time never comes".to_owned()));
        }
        Ok(this)
    }

    /// The first time after another.
    pub fn next(&self, after: Millis) -> Option<Millis> {
        let after = Timestamp::from_millisecond(after)
            .ok()?
            .to_zoned(self.zone.clone());
        let next = self.cron.find_next_occurrence(&after, false).ok()?;
        Some(next.timestamp().as_millisecond())
    }

    /// What became due from `first` on until now.
    pub fn due(&self, first: Millis, now: Millis) -> Due {
        let mut due = Due {
            latest: first,
            times: 1,
            next: self.next(first),
        };
        while let Some(next) = due.next.filter(|next| *next <= now) {
            if due.times == MOST_MISSED {
                // away for very long: as many as are counted, and on from now
                due.next = self.next(now);
                break;
            }
            due.latest = next;
            due.times += 1;
            due.next = self.next(next);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::CatchUp;
    use super::*;

    fn schedule(cron: &str, timezone: &str) -> Schedule {
        parse(cron, timezone).unwrap()
    }

    fn parse(cron: &str, timezone: &str) -> Result<Schedule, Wrong> {
        Schedule::parse(&ScheduleSpec {
            cron: cron.into(),
            timezone: timezone.into(),
            catch_up: CatchUp::Once,
        })
    }

    fn at(text: &str) -> Millis {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    fn times(schedule: &Schedule, from: &str, count: usize) -> Vec<String> {
        let mut now = at(from);
        let next = || {
            now = schedule.next(now).unwrap();
            Timestamp::from_millisecond(now).unwrap().to_string()
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    #[test]
    fn a_time_that_the_clock_skips_is_due_once_when_it_is_set_on() {
        // 2027-03-28 02:00 becomes 03:00 in Berlin
        let daily = schedule("30 2 * * *", "Europe/Berlin");
        assert_eq!(
            times(&daily, "2027-03-26T12:00:00Z", 4),
            [
                "2027-03-27T01:30:00Z",
                "2027-03-28T01:00:00Z",
                "2027-03-29T00:30:00Z",
                "2027-03-30T00:30:00Z"
            ]
        );
    }

    #[test]
    fn a_time_that_comes_twice_is_due_once() {
        // 2027-10-31 03:00 becomes 02:00 in Berlin
        let daily = schedule("30 2 * * *", "Europe/Berlin");
        assert_eq!(
            times(&daily, "2027-10-30T12:00:00Z", 2),
            ["2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"]
        );
    }

    #[test]
    fn what_is_due_every_so_many_minutes_follows_real_time_over_both_changes() {
        let often = schedule("*/30 * * * *", "Europe/Berlin");
        for begins in ["2027-03-27T23:45:00Z", "2027-10-30T23:45:00Z"] {
            let mut last = at(begins) + 15 * 60_000;
            for next in times(&often, begins, 12).iter().skip(1) {
                assert_eq!(at(next) - last, 30 * 60_000, "{next}");
                last = at(next);
            }
        }
    }

    #[test]
    fn times_that_passed_are_counted_and_the_newest_is_the_one() {
        let hourly = schedule("0 * * * *", "UTC");
        let due = hourly.due(at("2027-01-01T01:00:00Z"), at("2027-01-01T05:30:00Z"));
        assert_eq!(due.latest, at("2027-01-01T05:00:00Z"));
        assert_eq!((due.times, due.next), (5, Some(at("2027-01-01T06:00:00Z"))));
        let away = schedule("* * * * *", "UTC").due(0, at("2027-01-01T05:30:30Z"));
        assert_eq!(
            (away.times, away.next),
            (1_000, Some(at("2027-01-01T05:31:00Z")))
        );
    }

    #[test]
    fn what_is_no_schedule_is_refused_and_what_never_comes_takes_no_time() {
        for cron in [
            "",
            "* * * *",
            "* * * * * *",
            "61 * * * *",
            "x",
            "* * * * MOND",
            "\0",
            "0 0 0 0 0",
            &"*".repeat(300),
        ] {
            assert!(parse(cron, "UTC").is_err(), "{cron:?}");
        }
        for zone in [
            "",
            "Mars/Phobos",
            "../../etc/passwd",
            "/etc/localtime",
            "Europe/Berlin\0",
        ] {
            assert!(parse("* * * * *", zone).is_err(), "{zone:?}");
        }
        let begun = std::time::Instant::now();
        for cron in ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
            let never = parse(cron, "Europe/Berlin").unwrap_err();
            assert_eq!(never.message, "this time never comes", "{cron}");
        }
        assert!(parse("0 0 29 2 *", "Europe/Berlin").is_ok());
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
    }
}
