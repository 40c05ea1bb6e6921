//! Log records and spans in OTLP's JSON encoding (opentelemetry-proto 1.x): ids in hex, 64-bit numbers as texts.
//!
//! Every record is a log record. An ended flow is a span as well; a network (or run) is a trace, so that all flows of a
//! run stand together. Field names are those of the gateway's own logs. Texts are escaped by the JSON writer.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::record::entry::{DecidedBy, Denied, SourceChange, Subject};
use crate::record::{Entry, Line};
use crate::selftest::report::SelftestDone;

/// Severity numbers of the log data model.
const INFO: (u8, &str) = (9, "INFO");
const WARN: (u8, &str) = (13, "WARN");
const ERROR: (u8, &str) = (17, "ERROR");
/// A span of somebody who called a remote service.
const CLIENT: u8 = 3;
/// `STATUS_CODE_ERROR`.
const FAILED: u8 = 2;

/// The body for `/v1/logs`; nothing if there is nothing to say.
pub fn logs(lines: &[Line]) -> Option<Vec<u8>> {
    let records: Vec<Value> = lines.iter().map(log).collect();
    let body = json!({ "resourceLogs": [{
        "resource": resource(),
        "scopeLogs": [{ "scope": scope(), "logRecords": records }],
    }] });
    (!lines.is_empty()).then(|| serde_json::to_vec(&body).ok())?
}

/// The body for `/v1/traces`; nothing if no flow ended.
pub fn traces(lines: &[Line]) -> Option<Vec<u8>> {
    let spans: Vec<Value> = lines.iter().filter_map(span).collect();
    if spans.is_empty() {
        return None;
    }
    let body = json!({ "resourceSpans": [{
        "resource": resource(),
        "scopeSpans": [{ "scope": scope(), "spans": spans }],
    }] });
    serde_json::to_vec(&body).ok()
}

fn resource() -> Value {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let attributes = Attributes::default()
        .text("service.name", "sallyport-gateway")
        .text("service.version", env!("CARGO_PKG_VERSION"))
        .text("host.name", host.trim());
    json!({ "attributes": attributes.0 })
}

fn scope() -> Value {
    json!({ "name": "sallyport.record", "version": env!("CARGO_PKG_VERSION") })
}

/// Attributes under construction.
#[derive(Default)]
struct Attributes(Vec<Value>);

impl Attributes {
    fn put(mut self, key: &str, value: &Value) -> Self {
        self.0.push(json!({ "key": key, "value": value }));
        self
    }

    fn text(self, key: &str, value: &(impl ToString + ?Sized)) -> Self {
        self.put(key, &json!({ "stringValue": value.to_string() }))
    }

    fn some(self, key: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.text(key, &value),
            None => self,
        }
    }

    fn number(self, key: &str, value: u64) -> Self {
        // 64-bit numbers are texts in this encoding
        self.put(key, &json!({ "intValue": value.to_string() }))
    }

    fn subject(self, subject: &Subject) -> Self {
        self.text("sandbox.id", &subject.network)
            .some("run.id", subject.run.as_ref())
            .put("door", &json!({ "stringValue": subject.door }))
            .put(
                "network.transport",
                &json!({ "stringValue": subject.protocol }),
            )
            .text("source.addr", &subject.source)
            .some("destination.name", subject.name.as_ref())
            .some("destination.addr", subject.address)
            .number("server.port", subject.port.into())
    }

    fn rule(self, by: Option<&DecidedBy>) -> Self {
        let at = by.map(|by| format!("{}:{}:{}", by.at.file, by.at.line, by.at.column));
        self.some("rule.id", at)
    }

    fn denied(self, denied: &Denied, decision: &str) -> Self {
        self.subject(&denied.subject)
            .text("decision", decision)
            .text("reason", denied.reason.code())
            .rule(denied.by.as_ref())
            .number("policy.generation", denied.generation.0)
    }
}

fn source(base: Attributes, change: &SourceChange) -> ((u8, &'static str), String, Attributes) {
    let severity = if change.why.is_some() { ERROR } else { INFO };
    let attributes = base
        .text("policy.source", &change.source)
        .some("policy.commit", change.commit.as_ref())
        .some("policy.commit_before", change.before.as_ref())
        .some("policy.moved", change.moved.as_ref())
        .some("cause", change.why.as_ref());
    (
        severity,
        format!("policy source {}", change.change),
        attributes,
    )
}

fn log(line: &Line) -> Value {
    let base = Attributes::default()
        .number("record.seq", line.seq)
        .text("record.hash", &line.hash);
    let mut ids = Map::new();
    let ((number, word), body, attributes) = match &line.entry {
        Entry::Open(open) => {
            ids = flow_ids(&open.subject, open.flow);
            let attributes = base
                .subject(&open.subject)
                .number("flow.id", open.flow)
                .text("decision", "permitted")
                .text("server.address", &open.upstream.ip())
                .rule(open.by.last())
                .number("policy.generation", open.generation.0);
            (INFO, "flow opened".to_owned(), attributes)
        }
        Entry::Close(close) => {
            ids = flow_ids(&close.subject, close.flow);
            let attributes = base
                .subject(&close.subject)
                .number("flow.id", close.flow)
                .number("bytes.up", close.up)
                .number("bytes.down", close.down)
                .number("duration_ms", close.duration_ms)
                .some("tls.server_name", close.sni.as_ref())
                .text("end", &close.end);
            (INFO, "flow closed".to_owned(), attributes)
        }
        Entry::Denial(denied) => (WARN, "denied".to_owned(), base.denied(denied, "denied")),
        Entry::Folded {
            first,
            count,
            failed,
        } => {
            let (severity, word, decision) = if *failed {
                (INFO, "failed, folded", "permitted")
            } else {
                (WARN, "denied, folded", "denied")
            };
            let attributes = base.denied(first, decision).number("count", *count);
            (severity, word.to_owned(), attributes)
        }
        Entry::Failure(denied) => (INFO, "failed".to_owned(), base.denied(denied, "permitted")),
        Entry::Network(change) => {
            let attributes = base
                .text("sandbox.id", &change.network)
                .some("run.id", change.run.as_ref())
                .text("policy.hash", &change.policy)
                .number("policy.generation", change.generation.0);
            (INFO, format!("network {}", change.change), attributes)
        }
        Entry::Source(change) => source(base, change),
        Entry::Posture {
            state,
            cause,
            generation,
        } => {
            let severity = if cause.is_empty() { INFO } else { ERROR };
            let attributes = base.text("cause", cause).number("generation", *generation);
            (severity, format!("posture: {state}"), attributes)
        }
        Entry::Selftest(done) => selftest(base, done),
        Entry::Gap { window_ms } => (
            ERROR,
            "records may be missing".to_owned(),
            base.number("window_ms", *window_ms),
        ),
    };
    let time = nanoseconds(line.t);
    let mut record = json!({
        "timeUnixNano": time, "observedTimeUnixNano": time, "severityNumber": number, "severityText": word,
        "body": { "stringValue": body }, "attributes": attributes.0,
    });
    if let Some(record) = record.as_object_mut() {
        record.append(&mut ids);
    }
    record
}

fn selftest(base: Attributes, done: &SelftestDone) -> ((u8, &'static str), String, Attributes) {
    let severity = if done.failed == 0 { INFO } else { ERROR };
    let attributes = base
        .text("why", &done.why)
        .text("variant", &done.variant)
        .text("counts", &done.counts());
    (severity, "selftest".to_owned(), attributes)
}

fn span(line: &Line) -> Option<Value> {
    let Entry::Close(close) = &line.entry else {
        return None;
    };
    let attributes = Attributes::default()
        .subject(&close.subject)
        .number("flow.id", close.flow)
        .number("bytes.up", close.up)
        .number("bytes.down", close.down)
        .text("end", &close.end);
    let to = close.subject.name.clone();
    let to = to
        .or_else(|| close.subject.address.map(|a| a.to_string()))
        .unwrap_or_default();
    let begun = line
        .t
        .saturating_sub(i64::try_from(close.duration_ms).unwrap_or(i64::MAX));
    let mut span = json!({
        "name": format!("flow {to}:{}", close.subject.port), "kind": CLIENT,
        "startTimeUnixNano": nanoseconds(begun), "endTimeUnixNano": nanoseconds(line.t),
        "attributes": attributes.0,
    });
    let fields = span.as_object_mut()?;
    fields.append(&mut flow_ids(&close.subject, close.flow));
    if !matches!(
        close.end.as_str(),
        "client_closed" | "server_closed" | "idle"
    ) {
        fields.insert(
            "status".to_owned(),
            json!({ "code": FAILED, "message": close.end }),
        );
    }
    Some(span)
}

/// The same for every record of a flow, in whatever order and however often they are sent.
fn flow_ids(subject: &Subject, flow: u64) -> Map<String, Value> {
    let run = subject.run.as_deref().unwrap_or_default();
    let trace = digest(&["trace", subject.network.as_str(), run]);
    let span = digest(&["span", subject.network.as_str(), &flow.to_string()]);
    let mut ids = Map::new();
    ids.insert("traceId".to_owned(), trace.get(..32).into());
    ids.insert("spanId".to_owned(), span.get(..16).into());
    ids
}

fn digest(parts: &[&str]) -> String {
    use std::fmt::Write;
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher
        .finalize()
        .iter()
        .fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

fn nanoseconds(ms: i64) -> String {
    (i128::from(ms.max(0)) * 1_000_000).to_string()
}
