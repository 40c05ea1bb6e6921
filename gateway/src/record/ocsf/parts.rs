//! What events are put together from: their common head, who and where, and the pieces of the schema.

use netpolicy::decide::Direction;
use netpolicy::ids::{Generation, PolicyHash};
use netpolicy::policy::Protocol;
use serde_json::{Map, Value, json};

use super::VERSION;
use super::event::Event;
use super::objects::{
    ConnectionInfo, Endpoint, FirewallRule, Metadata, Policy, Product, Tls, TlsExtension,
};
use crate::network::flows::Door;
use crate::record::Line;
use crate::record::entry::{Close, DecidedBy, Subject};

/// A class of the schema.
#[derive(Clone, Copy)]
pub(super) enum Class {
    Base,
    Network,
    Http,
    Dns,
}

const INFORMATIONAL: (u8, &str) = (1, "Informational");
const SUCCESS: (u8, &str) = (1, "Success");

/// An event with what every event has.
pub(super) fn blank(
    line: &Line,
    class: Class,
    code: &'static str,
    activity: u8,
    name: &str,
) -> Event {
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
pub(super) fn about(event: &mut Event, subject: &Subject) {
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
        // an IPv6 sandbox address speaks ICMPv6
        Protocol::Icmp if subject.source.is_ipv6() => (58, "ipv6-icmp"),
        Protocol::Icmp => (1, "icmp"),
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

pub(super) fn rule(by: &DecidedBy) -> FirewallRule {
    FirewallRule {
        uid: format!("{}:{}:{}", by.at.file, by.at.line, by.at.column),
        name: by.policy.clone(),
        kind: by.layer.word(),
    }
}

pub(super) fn policy(hash: PolicyHash, generation: Generation) -> Policy {
    Policy {
        uid: hash.to_string(),
        version: generation.0.to_string(),
    }
}

pub(super) fn tls(close: &Close) -> Option<Tls> {
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
pub(super) fn named(subject: &Subject) -> String {
    match (&subject.name, subject.address, subject.port) {
        (Some(name), _, 0) => name.clone(),
        (Some(name), _, port) => format!("{name}:{port}"),
        (None, Some(address), 0) => address.to_string(),
        (None, Some(address), port) => std::net::SocketAddr::new(address, port).to_string(),
        (None, None, 0) => "a name that cannot be one".to_owned(),
        (None, None, port) => format!("port {port}"),
    }
}

pub(super) fn note(event: &mut Event, key: &str, value: impl Into<Value>) {
    event.unmapped.insert(key.to_owned(), value.into());
}

pub(super) fn note_some(event: &mut Event, key: &str, value: Option<impl serde::Serialize>) {
    if let Some(value) = value {
        note(event, key, json!(value));
    }
}
