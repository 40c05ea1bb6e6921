//! From journal entries to events: which class, which activity, what goes where.

use netpolicy::decide::Direction;
use serde_json::{Value, json};

use super::event::Event;
use super::objects::{DnsQuery, HttpRequest, Traffic, Url};
use super::parts::{Class, about, blank, named, note, note_some, policy, rule, tls};
use crate::network::flows::Door;
use crate::record::entry::{Close, Denied, NetworkChange, Open, SourceChange, Subject};
use crate::record::{Entry, Line};
use crate::selftest::report::SelftestDone;

/// Request methods that have an activity and a value of their own in HTTP Activity.
const METHODS: [(&str, u8, &str); 9] = [
    ("CONNECT", 1, "Connect"),
    ("DELETE", 2, "Delete"),
    ("GET", 3, "Get"),
    ("HEAD", 4, "Head"),
    ("OPTIONS", 5, "Options"),
    ("POST", 6, "Post"),
    ("PUT", 7, "Put"),
    ("TRACE", 8, "Trace"),
    ("PATCH", 9, "Patch"),
];

const LOW: (u8, &str) = (2, "Low");
const MEDIUM: (u8, &str) = (3, "Medium");
const HIGH: (u8, &str) = (4, "High");
const FAILURE: (u8, &str) = (2, "Failure");
/// An activity that the class has no number for.
const OTHER: u8 = 99;

/// The event of a line.
pub fn event(line: &Line) -> Event {
    match &line.entry {
        Entry::Open(open) => opened(line, open),
        Entry::Close(close) => closed(line, close),
        Entry::Denial(denied) => denial(line, "denial", denied, None),
        Entry::Folded {
            first,
            count,
            failed: false,
        } => denial(line, "folded", first, Some(*count)),
        Entry::Folded {
            first,
            count,
            failed: true,
        } => failure(line, "folded", first, Some(*count)),
        Entry::Failure(denied) => failure(line, "failure", denied, None),
        Entry::Network(change) => network(line, change),
        Entry::Source(change) => source(line, change),
        Entry::Posture {
            state,
            cause,
            generation,
        } => posture(line, state, cause, *generation),
        Entry::Selftest(done) => selftest(line, done),
        Entry::Gap { window_ms } => gap(line, *window_ms),
    }
}

fn opened(line: &Line, open: &Open) -> Event {
    let mut event = blank(line, Class::Network, "open", 1, "Open");
    about(&mut event, &open.subject);
    let upstream = open.upstream;
    event.dst_endpoint.get_or_insert_default().ip = Some(upstream.ip());
    event.message = format!(
        "{} opened {} at {upstream}",
        open.subject.network,
        named(&open.subject)
    );
    event.metadata.correlation_uid = Some(open.flow.to_string());
    allowed(&mut event);
    event.firewall_rule = open.by.last().map(rule);
    event.policy = Some(policy(open.policy, open.generation));
    note(&mut event, "flow", open.flow);
    note_some(&mut event, "local", open.local);
    note_some(&mut event, "class", open.class);
    if open.by.len() > 1 {
        let by: Vec<Value> = open.by.iter().map(|by| json!(by)).collect();
        note(&mut event, "by", by);
    }
    event
}

fn closed(line: &Line, close: &Close) -> Event {
    let mut event = match &close.http {
        None if close.end == "reset" => blank(line, Class::Network, "close", 3, "Reset"),
        None => blank(line, Class::Network, "close", 2, "Close"),
        Some((method, path)) => requested(line, &close.subject, method, path),
    };
    about(&mut event, &close.subject);
    event.message = format!(
        "{} closed {} after {} ms: {}",
        close.subject.network,
        named(&close.subject),
        close.duration_ms,
        close.end
    );
    event.metadata.correlation_uid = Some(close.flow.to_string());
    event.start_time = i64::try_from(close.duration_ms)
        .ok()
        .map(|ms| line.t.saturating_sub(ms));
    event.end_time = Some(line.t);
    event.duration = Some(close.duration_ms);
    event.status_code = Some(close.end.clone());
    allowed(&mut event);
    let (mut out, mut into) = (close.up, close.down);
    let mut packets = close.datagrams;
    if close.subject.direction == Direction::Ingress {
        // Bytes are counted as the sandbox sees them; here the source is who began.
        std::mem::swap(&mut out, &mut into);
        packets = packets.map(|(up, down)| (down, up));
    }
    event.traffic = Some(Traffic {
        bytes_in: into,
        bytes_out: out,
        bytes: out.saturating_add(into),
        packets_in: packets.map(|(_, into)| into),
        packets_out: packets.map(|(out, _)| out),
        packets: packets.map(|(out, into)| out.saturating_add(into)),
    });
    event.tls = tls(close);
    note(&mut event, "flow", close.flow);
    event
}

/// A flow whose requests were read: the last of them.
fn requested(line: &Line, subject: &Subject, method: &str, path: &str) -> Event {
    let known = METHODS.iter().find(|(word, ..)| *word == method);
    let (activity, name) = known.map_or((OTHER, method), |(_, id, name)| (*id, *name));
    let mut event = blank(line, Class::Http, "close", activity, name);
    event.http_request = Some(HttpRequest {
        http_method: known.map(|(word, ..)| *word),
        url: Url {
            hostname: subject.name.clone(),
            path: path.to_owned(),
            port: subject.port,
            scheme: "http",
        },
    });
    event
}

fn denial(line: &Line, code: &'static str, denied: &Denied, count: Option<u64>) -> Event {
    let mut event = if denied.subject.door == Door::Dns {
        asked(line, code, denied)
    } else {
        blank(line, Class::Network, code, 5, "Refuse")
    };
    refused(&mut event, denied);
    (event.severity_id, event.severity) = LOW;
    (event.action_id, event.action) = (Some(2), Some("Denied"));
    (event.disposition_id, event.disposition) = (Some(2), Some("Blocked"));
    event.message = format!(
        "{} was denied {}: {}",
        denied.subject.network,
        named(&denied.subject),
        denied.reason.code()
    );
    event.count = count;
    event
}

fn failure(line: &Line, code: &'static str, denied: &Denied, count: Option<u64>) -> Event {
    let mut event = if denied.subject.door == Door::Dns {
        asked(line, code, denied)
    } else {
        blank(line, Class::Network, code, 4, "Fail")
    };
    event.count = count;
    refused(&mut event, denied);
    if let Some(upstream) = denied.upstream {
        event.dst_endpoint.get_or_insert_default().ip = Some(upstream.ip());
    }
    // The policy said yes; the other side did not come.
    (event.action_id, event.action) = (Some(1), Some("Allowed"));
    (event.disposition_id, event.disposition) = (Some(27), Some("Error"));
    event.message = format!(
        "{} could not reach {}: {}",
        denied.subject.network,
        named(&denied.subject),
        denied.reason.code()
    );
    event
}

fn asked(line: &Line, code: &'static str, denied: &Denied) -> Event {
    let mut event = blank(line, Class::Dns, code, 1, "Query");
    event.query = denied
        .subject
        .name
        .clone()
        .map(|hostname| DnsQuery { hostname });
    event
}

/// What denials and failures have in common.
fn refused(event: &mut Event, denied: &Denied) {
    about(event, &denied.subject);
    (event.status_id, event.status) = FAILURE;
    event.status_code = Some(denied.reason.code().to_owned());
    event.status_detail = Some(denied.reason.help().to_owned());
    event.firewall_rule = denied.by.as_ref().map(rule);
    event.policy = Some(policy(denied.policy, denied.generation));
    note_some(event, "class", denied.class);
    note_some(event, "heard", denied.heard.as_deref());
}

fn network(line: &Line, change: &NetworkChange) -> Event {
    let mut event = blank(line, Class::Base, "network", OTHER, &change.change);
    event.message = format!("network {}: {}", change.network, change.change);
    if matches!(change.change.as_str(), "lost" | "second_interface") {
        (event.severity_id, event.severity) = HIGH;
    }
    note(&mut event, "network", change.network.as_str());
    note_some(&mut event, "run", change.run.as_deref());
    event.policy = Some(policy(change.policy, change.generation));
    event
}

fn source(line: &Line, change: &SourceChange) -> Event {
    let mut event = blank(line, Class::Base, "source", OTHER, &change.change);
    event.message = format!("policy source {}: {}", change.source, change.change);
    if let Some(why) = &change.why {
        event.message = format!("{}: {why}", event.message);
        (event.severity_id, event.severity) = MEDIUM;
    }
    note(&mut event, "source", change.source.as_str());
    let told = [
        ("commit", &change.commit),
        ("commit_before", &change.before),
        ("moved", &change.moved),
    ];
    for (key, value) in told {
        note_some(&mut event, key, value.as_ref());
    }
    event
}

fn posture(line: &Line, state: &str, cause: &str, generation: u64) -> Event {
    let mut event = blank(line, Class::Base, "posture", OTHER, "posture");
    event.message = if cause.is_empty() {
        format!("posture: {state}")
    } else {
        format!("posture: {state}: {cause}")
    };
    // A gateway that enforces has no cause to give.
    if !cause.is_empty() {
        (event.severity_id, event.severity) = HIGH;
    }
    note(&mut event, "state", state);
    note(&mut event, "cause", cause);
    note(&mut event, "enforcement_generation", generation);
    event
}

fn selftest(line: &Line, done: &SelftestDone) -> Event {
    let mut event = blank(line, Class::Base, "selftest", OTHER, "selftest");
    event.message = format!("selftest ({}): {}", done.variant, done.counts());
    event.duration = Some(done.took_ms);
    if done.failed > 0 {
        (event.severity_id, event.severity) = HIGH;
        (event.status_id, event.status) = FAILURE;
    }
    note(&mut event, "why", done.why.as_str());
    note(&mut event, "variant", done.variant.to_string());
    note(&mut event, "held", done.held.clone());
    let rest: Vec<Value> = done.rest.iter().map(|row| json!(row)).collect();
    note(&mut event, "rest", rest);
    event
}

fn gap(line: &Line, window_ms: u64) -> Event {
    let mut event = blank(line, Class::Base, "gap", OTHER, "gap");
    event.message = format!(
        "up to {window_ms} ms of records before this one may be missing after an unclean end"
    );
    (event.severity_id, event.severity) = MEDIUM;
    note(&mut event, "window_ms", window_ms);
    event
}

fn allowed(event: &mut Event) {
    (event.action_id, event.action) = (Some(1), Some("Allowed"));
    (event.disposition_id, event.disposition) = (Some(1), Some("Allowed"));
}
