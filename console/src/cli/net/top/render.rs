//! Drawing one frame as lines. Every text that others chose is cleaned and cut; colours are taken off by whoever prints
//! where there is no terminal.

use owo_colors::OwoColorize;

use super::super::what::shorten;
use super::model::{Model, Row};
use crate::show::{bytes, clean, count};

/// Columns before the names.
const LEFT: usize = 78;
/// Narrowest column of names.
const NARROW: usize = 20;
/// Names a network.
const NAMES: usize = 3;
/// Denials a network.
const DENIALS: usize = 3;

/// The frame, as wide as this.
pub fn frame(model: &Model, trouble: Option<&str>, columns: usize) -> Vec<String> {
    let rows = model.rows();
    let sum = |of: fn(&Row) -> u64| rows.iter().map(|r| of(r)).fold(0, u64::saturating_add);
    let mut lines = vec![format!(
        "{}, {}, {}/s up, {}/s down, {} denied",
        count(rows.len(), "network"),
        count(rows.iter().map(|r| r.flows).sum::<usize>(), "flow"),
        bytes(sum(|r| r.rate[0])),
        bytes(sum(|r| r.rate[1])),
        sum(|r| r.denied_now),
    )];
    if let Some(trouble) = trouble {
        lines.push(format!("{} {}", "no answer:".red(), clean(trouble)));
    }
    let head = format!(
        "{:<14} {:<16} {:>5} {:>12} {:>12} {:>10} {:<}",
        "NETWORK", "POLICY", "FLOWS", "UP/S", "DOWN/S", "TOTAL", "NAMES BY BYTES"
    );
    lines.push(head.bold().to_string());
    let wide = columns.saturating_sub(LEFT).max(NARROW);
    for row in rows {
        lines.push(network(row, wide));
        for (reason, destination, count) in row.denials.iter().take(DENIALS) {
            lines.push(format!(
                "    {} {} {}",
                format!("{count:>6} x").red(),
                reason.yellow(),
                shorten(
                    destination,
                    columns.saturating_sub(16 + reason.len()).max(NARROW)
                ),
            ));
        }
    }
    lines
}

fn network(row: &Row, wide: usize) -> String {
    let mut names = String::new();
    for (name, moved) in row.names.iter().take(NAMES) {
        let each = format!("{} {}", shorten(name, wide / 2), bytes(*moved));
        if !names.is_empty() && names.chars().count() + each.chars().count() + 2 > wide {
            break;
        }
        if !names.is_empty() {
            names.push_str(", ");
        }
        names.push_str(&each);
    }
    let [up, down] = row.rate;
    // padded before it is coloured: a colour has no width
    let rate = |value: u64| {
        let text = format!("{:>12}", format!("{}/s", bytes(value)));
        if value > 0 {
            text.green().to_string()
        } else {
            text.dimmed().to_string()
        }
    };
    format!(
        "{:<14} {:<16} {:>5} {} {} {:>10} {names}",
        shorten(&row.name, 14),
        shorten(&row.policy, 16),
        row.flows,
        rate(up),
        rate(down),
        bytes(row.total[0].saturating_add(row.total[1])),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::super::model::tests::{denial, network};
    use super::*;

    fn plain(lines: &[String]) -> Vec<String> {
        lines
            .iter()
            .map(|l| anstream::adapter::strip_str(l).to_string())
            .collect()
    }

    fn model() -> Model {
        let (mut model, begin) = (Model::new(&[]), Instant::now());
        model.networks(&[network("web", 0, 0)], &[], begin);
        model
    }

    #[test]
    fn a_frame_shows_rates_totals_and_why_something_was_denied() {
        let mut model = model();
        for _ in 0..12 {
            model.record(&denial("web", "evil.example"));
        }
        model.networks(
            &[network("web", 2048, 1 << 20)],
            &[],
            Instant::now() + Duration::from_secs(1),
        );
        let lines = plain(&frame(&model, None, 120));
        assert!(
            lines[0].starts_with("1 network, 2 flows, ") && lines[0].ends_with("12 denied"),
            "{}",
            lines[0]
        );
        assert!(
            lines[2].starts_with("web            web g3               2"),
            "{}",
            lines[2]
        );
        assert!(lines[2].contains("1.0 MiB"), "{}", lines[2]);
        assert_eq!(lines[3], "        12 x name_denied evil.example");
    }

    #[test]
    fn a_hostile_name_neither_moves_the_cursor_nor_pushes_others_away() {
        let mut model = model();
        let name = format!(
            "\u{1b}[2J\u{1b}]52;c;AAAA\u{7}{}\r\n\u{202e}z",
            "w".repeat(5000)
        );
        model.record(&denial("web", &name));
        model.networks(&[network("web", 0, 0)], &[], Instant::now());
        for line in plain(&frame(&model, Some("\u{1b}[2J"), 100)) {
            assert!(!line.chars().any(char::is_control), "{line:?}");
            assert!(
                !line.contains('\u{202e}') && line.chars().count() <= 110,
                "{line:?}"
            );
        }
    }
}
