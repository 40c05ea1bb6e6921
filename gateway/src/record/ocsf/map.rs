//! From journal entries to events: which class, which activity, what goes where.

use netpolicy::decide::Direction;
use netpolicy::ids::{Generation, PolicyHash};
use netpolicy::policy::Protocol;
use serde_json::{Map, Value, json};

use super::VERSION;
use super::event::Event;
use super::objects::{
    ConnectionInfo, DnsQuery, Endpoint, FirewallRule, HttpRequest, Metadata, Policy, Product, Tls,
    TlsExtension, Traffic, Url,
};
use crate::network::flows::Door;
use crate::record::entry::{Close, DecidedBy, Denied, NetworkChange, Open, SourceChange, Subject};
use crate::record::{Entry, Line};

/// A class of the schema.
#[derive(Clone, Copy)]
enum Class {
    Base,
    Network,
    Http,
    Dns,
}

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

const INFORMATIONAL: (u8, &str) = (1, "Informational");
const LOW: (u8, &str) = (2, "Low");
const MEDIUM: (u8, &str) = (3, "Medium");
const HIGH: (u8, &str) = (4, "High");
const SUCCESS: (u8, &str) = (1, "Success");
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
    if close.subject.direction == Direction::Ingress {
        // Bytes are counted as the sandbox sees them; here the source is who began.
        std::mem::swap(&mut out, &mut into);
    }
    event.traffic = Some(Traffic {
        bytes_in: into,
        bytes_out: out,
        bytes: out.saturating_add(into),
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

fn gap(line: &Line, window_ms: u64) -> Event {
    let mut event = blank(line, Class::Base, "gap", OTHER, "gap");
    event.message = format!(
        "up to {window_ms} ms of records before this one may be missing after an unclean end"
    );
    (event.severity_id, event.severity) = MEDIUM;
    note(&mut event, "window_ms", window_ms);
    event
}

/// An event with what every event has.
fn blank(line: &Line, class: Class, code: &'static str, activity: u8, name: &str) -> Event {
    let (class_uid, class_name, category_uid, category_name) = match class {
        Class::Base => (0, "Base Event", 0, "Uncategorized"),
        Class::Network => (4001, "Network Activity", 4, "Network Activity"),
        Class::Http => (4002, "HTTP Activity", 4, "Network Activity"),
        Class::Dns => (4003, "DNS Activity", 4, "Network Activity"),
    };
    Event {
        activity_id: activity,
        activity_name: name.to_owned(),
        category_uid,
        category_name,
        class_uid,
        class_name,
        type_uid: u32::from(class_uid) * 100 + u32::from(activity),
        time: line.t,
        start_time: None,
        end_time: None,
        duration: None,
        count: None,
        severity_id: INFORMATIONAL.0,
        severity: INFORMATIONAL.1,
        status_id: SUCCESS.0,
        status: SUCCESS.1,
        status_code: None,
        status_detail: None,
        message: String::new(),
        metadata: Metadata {
            version: VERSION,
            product: Product {
                name: "Sallyport",
                vendor_name: "Sallyport",
                version: env!("CARGO_PKG_VERSION"),
            },
            profiles: &["security_control"],
            uid: line.hash.clone(),
            sequence: line.seq,
            event_code: code,
            log_name: "journal",
            correlation_uid: None,
        },
        action_id: None,
        action: None,
        disposition_id: None,
        disposition: None,
        firewall_rule: None,
        policy: None,
        src_endpoint: None,
        dst_endpoint: None,
        connection_info: None,
        traffic: None,
        tls: None,
        http_request: None,
        query: None,
        unmapped: Map::new(),
    }
}

/// Who and where. The source is who began: the sandbox on the way out, the gateway on the way in.
fn about(event: &mut Event, subject: &Subject) {
    let near = Endpoint {
        ip: Some(subject.source.ip()),
        port: Some(subject.source.port()),
        ..Endpoint::default()
    };
    let far = Endpoint {
        hostname: subject.name.clone(),
        ip: subject.address,
        port: Some(subject.port),
        svc_name: (subject.door == Door::Dns).then_some("dns"),
        ..Endpoint::default()
    };
    let (direction_id, direction) = match subject.direction {
        Direction::Egress => (2, "Outbound"),
        Direction::Ingress => (1, "Inbound"),
    };
    let (protocol_num, protocol_name) = match subject.protocol {
        Protocol::Tcp => (6, "tcp"),
        Protocol::Udp => (17, "udp"),
    };
    event.connection_info = Some(ConnectionInfo {
        direction_id,
        direction,
        protocol_num,
        protocol_name,
        protocol_ver_id: if subject.source.is_ipv4() { 4 } else { 6 },
    });
    let (src, dst) = match subject.direction {
        Direction::Egress => (of_sandbox(near, subject), named_or_placed(far)),
        Direction::Ingress => (near, of_sandbox(far, subject)),
    };
    event.src_endpoint = Some(src);
    event.dst_endpoint = Some(dst);
    note(event, "door", json!(subject.door));
    // The name's own address in this network; `dst_endpoint.ip` of an open flow is the one dialled.
    note_some(event, "addressed", subject.address);
}

fn of_sandbox(mut endpoint: Endpoint, subject: &Subject) -> Endpoint {
    endpoint.uid = Some(subject.network.to_string());
    endpoint.instance_uid.clone_from(&subject.run);
    endpoint
}

/// An endpoint needs a name, an address or a service.
fn named_or_placed(mut endpoint: Endpoint) -> Endpoint {
    if endpoint.hostname.is_none() && endpoint.ip.is_none() && endpoint.svc_name.is_none() {
        endpoint.svc_name = Some("unknown");
    }
    endpoint
}

fn allowed(event: &mut Event) {
    (event.action_id, event.action) = (Some(1), Some("Allowed"));
    (event.disposition_id, event.disposition) = (Some(1), Some("Allowed"));
}

fn rule(by: &DecidedBy) -> FirewallRule {
    FirewallRule {
        uid: format!("{}:{}:{}", by.at.file, by.at.line, by.at.column),
        name: by.policy.clone(),
        kind: by.layer.word(),
    }
}

fn policy(hash: PolicyHash, generation: Generation) -> Policy {
    Policy {
        uid: hash.to_string(),
        version: generation.0.to_string(),
    }
}

fn tls(close: &Close) -> Option<Tls> {
    if close.sni.is_none() && close.alpn.is_empty() {
        return None;
    }
    let alpn = (!close.alpn.is_empty()).then(|| TlsExtension {
        type_id: 16,
        kind: "application_layer_protocol_negotiation",
        data: json!({ "alpn": close.alpn }),
    });
    Some(Tls {
        version: "Unknown",
        sni: close.sni.clone(),
        extensions: alpn.into_iter().collect(),
    })
}

/// The destination as sentences name it.
fn named(subject: &Subject) -> String {
    match (&subject.name, subject.address, subject.port) {
        (Some(name), _, 0) => name.clone(),
        (Some(name), _, port) => format!("{name}:{port}"),
        (None, Some(address), port) => std::net::SocketAddr::new(address, port).to_string(),
        (None, None, 0) => "a name that cannot be one".to_owned(),
        (None, None, port) => format!("port {port}"),
    }
}

fn note(event: &mut Event, key: &str, value: impl Into<Value>) {
    event.unmapped.insert(key.to_owned(), value.into());
}

fn note_some(event: &mut Event, key: &str, value: Option<impl serde::Serialize>) {
    if let Some(value) = value {
        note(event, key, json!(value));
    }
}
