//! Words that both live views use: where to, when, and how much of a name fits.

use gateway::record::entry::Subject;

use crate::show;

/// The destination of a record: its name, else what was addressed.
pub fn destination(subject: &Subject) -> String {
    let to = match (&subject.name, subject.address) {
        (Some(name), _) => name.clone(),
        (None, Some(address)) if address.is_ipv6() => format!("[{address}]"),
        (None, Some(address)) => address.to_string(),
        (None, None) => "?".to_owned(),
    };
    match subject.port {
        // a question has no port
        0 => to,
        port => format!("{to}:{port}"),
    }
}

/// Cleaned, and cut in the middle: both ends of a name tell whose it is.
pub fn shorten(text: &str, most: usize) -> String {
    let clean = show::clean(text);
    let count = clean.chars().count();
    if count <= most {
        return clean.into_owned();
    }
    let kept = most.saturating_sub(1);
    let (head, tail) = (kept / 3, kept - kept / 3);
    let mut short: String = clean.chars().take(head).collect();
    short.push('…');
    short.extend(clean.chars().skip(count - tail));
    short
}

/// Hours, minutes and seconds (UTC) of milliseconds since the epoch.
pub fn clock(ms: i64) -> String {
    let seconds = ms.div_euclid(1000).rem_euclid(24 * 3600);
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_both_ends() {
        assert_eq!(shorten("short.example", 20), "short.example");
        let long = format!("{}.exfil.example", "x".repeat(200));
        let short = shorten(&long, 24);
        assert_eq!(short, "xxxxxxx…xx.exfil.example");
        assert_eq!(clock(43_384_999), "12:03:04");
    }
}
