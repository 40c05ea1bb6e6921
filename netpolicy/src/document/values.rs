//! Small forms that policies and configuration share: sizes, dates, port ranges, identifiers.

use crate::ids::UnixSeconds;

use super::shape::{Format, Lexis};

/// A size with its unit: `100MiB`, `5KB`.
pub static SIZE: Format = Format {
    expected: "a size with its unit, like 100MiB or 5KB",
    pattern: Some("^[1-9][0-9]{0,12}(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$"),
    fits: |text| size(text).is_some(),
    lexis: Lexis::Anything,
};

/// A day: `2027-01-31`.
pub static DATE: Format = Format {
    expected: "a date like 2027-01-31",
    pattern: Some("^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$"),
    fits: |text| day_after(text).is_some(),
    lexis: Lexis::Anything,
};

/// Two ports with a hyphen: `6000-6100`.
pub static PORT_RANGE: Format = Format {
    expected: "a range of ports like 6000-6100",
    pattern: Some("^[1-9][0-9]{0,4}-[1-9][0-9]{0,4}$"),
    fits: |text| port_range(text).is_some(),
    lexis: Lexis::Anything,
};

/// A name for a person: letters, digits, `.`, `_`, `-`.
pub static LABEL: Format = Format {
    expected: "a name of 1 to 64 letters, digits, '.', '_' and '-' that starts with a letter or digit",
    pattern: Some("^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
    fits: is_label,
    lexis: Lexis::Words,
};

/// Any text that says something.
pub static WORDS: Format = Format {
    expected: "a text",
    pattern: None,
    fits: |text| !text.trim().is_empty(),
    lexis: Lexis::Words,
};

/// What was probably meant by a text that does not have a form, where that can be told.
pub(super) fn meant(format: &Format, text: &str) -> Option<String> {
    if std::ptr::eq(format, &raw const SIZE) {
        size_meant(text)
    } else if std::ptr::eq(format, &raw const PORT_RANGE) {
        let (first, last) = text.split_once('-')?;
        let (first, last) = (port(first.trim())?, port(last.trim())?);
        let (low, high) = (first.min(last), first.max(last));
        Some(if first > last {
            format!("the range is backwards; write {low}-{high}")
        } else {
            format!("write {low}-{high}")
        })
    } else {
        None
    }
}

/// A number with a unit that is no unit, or with none.
fn size_meant(text: &str) -> Option<String> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let plain = !number.is_empty() && number.len() <= 13 && !number.starts_with('0');
    let of = |prefix: &str| format!("write {number}{prefix}B or {number}{prefix}iB");
    match unit.trim().to_ascii_uppercase().as_str() {
        _ if !plain => None,
        "" => Some(format!(
            "write its unit: {number}B, {number}KiB, {number}MiB"
        )),
        "K" | "KB" | "KIB" => Some(of("K")),
        "M" | "MB" | "MIB" => Some(of("M")),
        "G" | "GB" | "GIB" => Some(of("G")),
        "T" | "TB" | "TIB" => Some(of("T")),
        _ => None,
    }
}

fn is_label(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Bytes of a size text; `None` if it is none or does not fit 63 bits.
pub fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    if number.is_empty() || number.starts_with('0') || number.len() > 13 {
        return None;
    }
    let factor: u64 = match unit {
        "B" => 1,
        "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number
        .parse::<u64>()
        .ok()?
        .checked_mul(factor)
        .filter(|bytes| i64::try_from(*bytes).is_ok())
}

/// First second after a day (UTC), for `until`.
pub fn day_after(text: &str) -> Option<UnixSeconds> {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(i, b)| {
            if i == 4 || i == 7 {
                b == b'-'
            } else {
                b.is_ascii_digit()
            }
        });
    if !shape {
        return None;
    }
    let part = |range| {
        text.get(range)
            .and_then(|digits: &str| digits.parse::<i64>().ok())
    };
    let (year, month, day) = (part(0..4)?, part(5..7)?, part(8..10)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1970 || !(1..=length).contains(&day) {
        return None;
    }
    Some(UnixSeconds(
        (days_since_epoch(year, month, day) + 1) * 86_400,
    ))
}

/// Days from 1970-01-01 in the Gregorian calendar (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    // the year begins in March, so that the leap day is its last day
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let year_of_era = year % 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Both ends of a port range, in order.
pub fn port_range(text: &str) -> Option<std::ops::RangeInclusive<u16>> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (port(first)?, port(last)?);
    (first <= last).then_some(first..=last)
}

/// A port in plain digits.
fn port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_end_at_midnight_utc() {
        for (text, end) in [
            ("1970-01-01", Some(86_400)),
            ("2000-02-29", Some(951_868_800)),
            ("2027-01-31", Some(1_801_440_000)),
            ("2100-02-29", None),
            ("2027-02-30", None),
            ("2027-13-01", None),
            ("2027-00-10", None),
            ("2027-1-31", None),
            ("1969-12-31", None),
            ("2027-01-31T00:00:00Z", None),
            ("", None),
        ] {
            assert_eq!(day_after(text).map(|t| t.0), end, "{text}");
        }
    }

    #[test]
    fn sizes_have_a_unit_and_fit() {
        for (text, bytes) in [
            ("100MiB", Some(104_857_600)),
            ("5KB", Some(5000)),
            ("1B", Some(1)),
            ("8388607TiB", Some(9_223_370_937_343_148_032)),
            ("8388608TiB", None),
            ("100", None),
            ("0B", None),
            ("1.5GiB", None),
            ("100 MiB", None),
            ("100mib", None),
            ("-1B", None),
            ("MiB", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
    }

    #[test]
    fn port_ranges_are_plain_and_ordered() {
        assert_eq!(port_range("6000-6100"), Some(6000..=6100));
        assert_eq!(port_range("80-80"), Some(80..=80));
        for text in [
            "6100-6000",
            "0-10",
            "1-65536",
            "1-",
            "-1",
            "1-2-3",
            "01-2",
            "a-b",
            "1 - 2",
        ] {
            assert_eq!(port_range(text), None, "{text}");
        }
    }
}
