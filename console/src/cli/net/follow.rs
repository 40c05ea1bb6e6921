//! `sallyport net flows --follow`: one line for each flow that opens or ends and for each denial, as it happens.
//!
//! Shows what is live, then follows the record from there, or from the cursor that an earlier look ended with. Every text
//! that a sandbox or a policy author chose is cleaned before it is printed; colours come on a terminal only.

use std::collections::HashSet;

use gateway::control::Client;
use gateway::control::api::FlowView;
use gateway::record::entry::{DecidedBy, Denied, Subject};
use gateway::record::{Entry, Line};
use netpolicy::ids::NetworkId;
use owo_colors::OwoColorize;
use serde_json::{Value, json};

use super::what::{clock, destination, shorten};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format, bytes};

/// Longest name on a line; a name may have 253 bytes.
const WIDE: usize = 48;

/// Follows one network, or all, until the gateway ends.
pub async fn follow(
    client: &Client,
    name: Option<&NetworkId>,
    after: Option<u64>,
    format: Format,
) -> Verdict {
    let mut shown = HashSet::new();
    let cursor = if let Some(cursor) = after {
        cursor
    } else {
        // The cursor comes before the list: what opens in between is in both, and shown once.
        let cursor = last(client).await?;
        for flow in client.flows(name).await? {
            shown.insert(flow.id);
            print(format, live_json(&flow).as_ref(), || Some(live_text(&flow)))?;
        }
        cursor
    };
    let mut lines = client.follow_records(cursor).await?;
    let mut seen = cursor;
    while let Some(line) = lines.next().await? {
        seen = line.seq;
        if is_of(&line, name) && !is_shown(&line, &shown) {
            print(format, json(&line).as_ref(), || text(&line))?;
        }
    }
    show::note(format_args!(
        "the gateway ended; `--after {seen}` goes on where this stopped"
    ));
    Ok(Outcome::Good)
}

/// Number of the last record.
pub async fn last(client: &Client) -> Result<u64, Failure> {
    let counters = client.counters().await?;
    counters
        .get("records")
        .and_then(Value::as_u64)
        .ok_or_else(|| Failure::new("the gateway did not say how many records it has"))
}

fn print(
    format: Format,
    json: Option<&Value>,
    text: impl FnOnce() -> Option<String>,
) -> Result<(), Failure> {
    match format {
        Format::Json => json.map_or(Ok(()), show::json_line),
        Format::Text => text().map_or(Ok(()), show::out),
    }
}

fn subject(entry: &Entry) -> Option<&Subject> {
    match entry {
        Entry::Open(open) => Some(&open.subject),
        Entry::Close(close) => Some(&close.subject),
        Entry::Denial(denied) | Entry::Failure(denied) | Entry::Folded { first: denied, .. } => {
            Some(&denied.subject)
        }
        Entry::Network(_)
        | Entry::Source(_)
        | Entry::Selftest(_)
        | Entry::Posture { .. }
        | Entry::Gap { .. } => None,
    }
}

fn is_of(line: &Line, name: Option<&NetworkId>) -> bool {
    subject(&line.entry).is_some_and(|s| name.is_none_or(|name| *name == s.network))
}

fn is_shown(line: &Line, shown: &HashSet<u64>) -> bool {
    matches!(&line.entry, Entry::Open(open) if shown.contains(&open.flow))
}

fn place(by: Option<&DecidedBy>) -> String {
    by.map_or_else(String::new, |by| {
        show::clean(&format!("{}:{}", by.at.file, by.at.line)).into_owned()
    })
}

fn live_text(flow: &FlowView) -> String {
    let name = flow.name.clone();
    let to = name.unwrap_or_else(|| flow.destination.ip().to_string());
    format!(
        "{} {} {:<12} {}:{} at {}, {} up, {} down so far",
        clock(flow.opened_ms).dimmed(),
        "=".cyan(),
        flow.network.as_str(),
        shorten(&to, WIDE),
        flow.destination.port(),
        flow.upstream,
        bytes(flow.up),
        bytes(flow.down),
    )
}

fn live_json(flow: &FlowView) -> Option<Value> {
    let mut value = serde_json::to_value(flow).ok()?;
    let map = value.as_object_mut()?;
    map.insert("event".to_owned(), json!("open"));
    map.insert("live".to_owned(), json!(true));
    Some(value)
}

/// A record as people read it.
fn text(line: &Line) -> Option<String> {
    let at = clock(line.t);
    let at = at.dimmed();
    let about = |s: &Subject| {
        format!(
            "{:<12} {}",
            s.network.as_str(),
            shorten(&destination(s), WIDE)
        )
    };
    Some(match &line.entry {
        Entry::Open(open) => format!(
            "{at} {} {} at {} {}",
            "+".green(),
            about(&open.subject),
            open.upstream,
            place(open.by.last()).dimmed()
        ),
        Entry::Close(close) => format!(
            "{at} {} {} {} up, {} down, {} ms, {}",
            "-".dimmed(),
            about(&close.subject),
            bytes(close.up),
            bytes(close.down),
            close.duration_ms,
            show::clean(&close.end)
        ),
        Entry::Denial(denied) => refused(&at.to_string(), &"!".red().to_string(), denied, 1),
        Entry::Folded {
            first,
            count,
            failed,
        } => {
            let mark = if *failed {
                "?".yellow().to_string()
            } else {
                "!".red().to_string()
            };
            refused(&at.to_string(), &mark, first, *count)
        }
        Entry::Failure(denied) => refused(&at.to_string(), &"?".yellow().to_string(), denied, 1),
        Entry::Network(_)
        | Entry::Source(_)
        | Entry::Selftest(_)
        | Entry::Posture { .. }
        | Entry::Gap { .. } => {
            return None;
        }
    })
}

fn refused(at: &str, mark: &str, denied: &Denied, count: u64) -> String {
    let times = if count > 1 {
        format!(" x{count}")
    } else {
        String::new()
    };
    format!(
        "{at} {mark} {:<12} {} {}{times} {}",
        denied.subject.network.as_str(),
        shorten(&destination(&denied.subject), WIDE),
        denied.reason.code().bold(),
        place(denied.by.as_ref()).dimmed()
    )
}

/// A record as programs read it: what happened, and the cursor to go on from.
fn json(line: &Line) -> Option<Value> {
    let event = match &line.entry {
        Entry::Open(_) => "open",
        Entry::Close(_) => "close",
        Entry::Denial(_) | Entry::Folded { failed: false, .. } => "denied",
        Entry::Failure(_) | Entry::Folded { failed: true, .. } => "failed",
        Entry::Network(_)
        | Entry::Source(_)
        | Entry::Selftest(_)
        | Entry::Posture { .. }
        | Entry::Gap { .. } => {
            return None;
        }
    };
    let mut value = serde_json::to_value(&line.entry).ok()?;
    let map = value.as_object_mut()?;
    map.remove("kind");
    map.insert("event".to_owned(), json!(event));
    map.insert("cursor".to_owned(), json!(line.seq));
    map.insert("t".to_owned(), json!(line.t));
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(entry: &Value) -> Line {
        let mut whole = json!({ "seq": 9, "t": 43_384_000, "prev": "", "hash": "" });
        for (key, value) in entry.as_object().unwrap() {
            whole[key] = value.clone();
        }
        serde_json::from_value(whole).unwrap()
    }

    fn subject(name: &str) -> Value {
        json!({
            "network": "dev", "door": "tcp", "direction": "egress", "protocol": "tcp",
            "source": "198.18.0.9:1", "name": name, "port": 443,
        })
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_hostile_name_cannot_write_to_the_terminal() {
        let name = "a\u{1b}]0;owned\u{7}\u{202e}\u{9b}31m\r\nz.example";
        let denied = line(&json!({
            "kind": "denial", "subject": subject(name), "reason": "name_denied",
            "by": { "layer": "job", "policy": "p", "at": { "file": "\u{1b}[2Jx.yml", "line": 1, "column": 1 } },
            "policy": "01".repeat(32), "generation": 1,
        }));
        let close = line(&json!({
            "kind": "close", "flow": 1, "subject": subject(name), "up": 1, "down": 2, "duration_ms": 3,
            "end": "\u{1b}[31mreset",
        }));
        for record in [denied, close] {
            // what is left after the tool's own colours are taken away
            let shown = plain(&text(&record).unwrap());
            assert!(
                !shown.chars().any(|c| c.is_control()
                    || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')),
                "{shown:?}"
            );
            assert!(
                shown.contains("z.example") || shown.contains('…'),
                "{shown}"
            );
        }
    }

    #[test]
    fn lines_read_well() {
        let folded = line(&json!({
            "kind": "folded", "count": 95, "first": {
                "subject": subject("evil.example"), "reason": "name_denied",
                "by": { "layer": "job", "policy": "p", "at": { "file": "web.yml", "line": 7, "column": 3 } },
                "policy": "01".repeat(32), "generation": 1,
            },
        }));
        assert_eq!(
            plain(&text(&folded).unwrap()),
            "12:03:04 ! dev          evil.example:443 name_denied x95 web.yml:7"
        );
        assert_eq!(json(&folded).unwrap()["cursor"], 9);
        assert_eq!(text(&line(&json!({ "kind": "gap", "window_ms": 1 }))), None);
    }

    #[test]
    fn only_the_wanted_network_and_nothing_twice() {
        let open = line(&json!({
            "kind": "open", "flow": 5, "subject": subject("ok.example"), "upstream": "203.0.113.9:443",
            "by": [], "policy": "01".repeat(32), "generation": 1,
        }));
        let (dev, other) = ("dev".parse().unwrap(), "other".parse().unwrap());
        assert!(is_of(&open, None) && is_of(&open, Some(&dev)) && !is_of(&open, Some(&other)));
        assert!(is_shown(&open, &HashSet::from([5])) && !is_shown(&open, &HashSet::from([6])));
    }
}
