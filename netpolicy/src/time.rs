//! Moments as people read them: UTC, RFC 3339. No clock here either; whoever has one hands the moment in.

use crate::ids::UnixSeconds;

/// `2027-01-31`.
pub fn day(at: UnixSeconds) -> String {
    let (year, month, day) = civil(at.0.div_euclid(86_400));
    format!("{year:04}-{month:02}-{day:02}")
}

/// `2027-01-31T12:00:00Z`.
pub fn moment(at: UnixSeconds) -> String {
    let second = at.0.rem_euclid(86_400);
    format!(
        "{}T{:02}:{:02}:{:02}Z",
        day(at),
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day of days since 1970-01-01 (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // the year begins in March, so that the leap day is its last day
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_moments_are_those_of_the_calendar() {
        for (second, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_795_996_799, "2026-11-29T23:59:59Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(moment(UnixSeconds(second)), text);
        }
        for text in ["2024-02-29", "2027-01-31", "1999-12-31"] {
            let end = crate::document::values::day_after(text).unwrap();
            assert_eq!(day(UnixSeconds(end.0 - 1)), text);
        }
        // nothing that a record can hold makes it fail
        moment(UnixSeconds(i64::MAX));
        moment(UnixSeconds(i64::MIN));
    }
}
