//! Every event is valid by the published schema, whatever the record says; what common records become is kept as
//! snapshots. The schema's pieces are in `tests/data` with their licence.

mod any;
mod schema;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::event;
use crate::record::Line;
use schema::problems;

fn mapped(entry: &Value) -> Value {
    let mut line = json!({
        "seq": 7, "t": 1_790_000_000_000_i64, "prev": "0".repeat(64), "hash": "ab".repeat(32),
    });
    line.as_object_mut().unwrap().extend(
        entry
            .as_object()
            .unwrap()
            .iter()
            .map(|(k, v)| (k.clone(), v.clone())),
    );
    let line: Line = serde_json::from_value(line).unwrap();
    let mut event = serde_json::to_value(event(&line)).unwrap();
    assert_eq!(problems(&event), Vec::<String>::new(), "{event:#}");
    // the one thing in it that changes with a release
    event["metadata"]["product"]["version"] = json!("[version]");
    event
}

fn subject(door: &str, name: Option<&str>) -> Value {
    json!({
        "network": "dev", "run": "r1", "door": door, "direction": "egress", "protocol": "tcp",
        "source": "198.18.0.9:40000", "name": name, "address": "198.19.0.4",
        "port": if door == "dns" { 0 } else { 443 },
    })
}

fn by() -> Value {
    json!({ "layer": "job", "policy": "web", "at": { "file": "web.yml", "line": 4, "column": 5 } })
}

proptest! {
    #[test]
    fn every_journal_record_maps_to_a_valid_event(line in any::line()) {
        let event = serde_json::to_value(event(&line)).unwrap();
        prop_assert_eq!(problems(&event), Vec::<String>::new(), "{:#}", event);
        // what came from the journal is found again by its number and hash
        prop_assert_eq!(&event["metadata"]["uid"], &json!(line.hash));
        prop_assert_eq!(&event["metadata"]["sequence"], &json!(line.seq));
    }
}

#[test]
fn an_opened_flow_is_network_activity() {
    insta::assert_json_snapshot!(mapped(&json!({
        "kind": "open", "flow": 42, "subject": subject("tcp", Some("api.example.com")),
        "upstream": "203.0.113.9:443", "local": "192.0.2.1:50000", "class": "public", "by": [by()],
        "policy": "01".repeat(32), "generation": 3,
    })));
}

#[test]
fn a_closed_flow_says_its_bytes_and_what_tls_offered() {
    insta::assert_json_snapshot!(mapped(&json!({
        "kind": "close", "flow": 42, "subject": subject("tcp", Some("api.example.com")),
        "sni": "api.example.com", "alpn": ["h2", "http/1.1"], "up": 517, "down": 90_000,
        "duration_ms": 1200, "end": "server_closed",
    })));
}

#[test]
fn datagrams_and_echoes_are_packets_and_streams_have_none() {
    let close = |door: &str, protocol: &str, direction: &str| {
        let mut subject = subject(door, None);
        subject["protocol"] = json!(protocol);
        subject["direction"] = json!(direction);
        mapped(&json!({
            "kind": "close", "flow": 44, "subject": subject, "datagrams": [3, 8], "up": 300, "down": 8000,
            "duration_ms": 12, "end": "idle",
        }))
    };
    for (door, protocol, number) in [("udp", "udp", 17), ("icmp", "icmp", 1)] {
        let event = close(door, protocol, "egress");
        assert_eq!(event["connection_info"]["protocol_num"], number);
        let traffic = json!({
            "packets_out": 3, "packets_in": 8, "packets": 11, "bytes_out": 300, "bytes_in": 8000, "bytes": 8300,
        });
        assert_eq!(event["traffic"], traffic);
    }
    let inbound = close("ingress", "udp", "ingress");
    assert_eq!(inbound["traffic"]["packets_out"], 8);
    let stream = mapped(&json!({
        "kind": "close", "flow": 45, "subject": subject("tcp", None), "up": 1, "down": 2, "duration_ms": 1, "end": "reset",
    }));
    assert_eq!(stream["traffic"].get("packets"), None);
}

#[test]
fn a_flow_whose_requests_were_read_is_http_activity() {
    let close = |method: &str| {
        mapped(&json!({
            "kind": "close", "flow": 43, "subject": subject("proxy", Some("ok.example.com")),
            "http": [method, "/v1/items"], "up": 80, "down": 900, "duration_ms": 12, "end": "client_closed",
        }))
    };
    insta::assert_json_snapshot!(close("POST"));
    let strange = close("BREW");
    assert_eq!(strange["type_uid"], 400_299);
    assert_eq!(strange["activity_name"], "BREW");
    assert!(strange["http_request"]["http_method"].is_null());
}

#[test]
fn denials_are_dns_or_network_activity_and_say_the_line_that_made_them() {
    let denied = |kind: &str, door: &str, name: Option<&str>| {
        json!({
            "kind": kind, "subject": subject(door, name), "reason": "name_denied", "by": by(),
            "policy": "01".repeat(32), "generation": 3,
        })
    };
    insta::assert_json_snapshot!(mapped(&denied("denial", "dns", Some("evil.example"))));
    let tcp = mapped(&denied("denial", "tcp", None));
    assert_eq!(
        (&tcp["type_uid"], &tcp["action"]),
        (&json!(400_105), &json!("Denied"))
    );
    let failed = mapped(&denied("failure", "tcp", Some("api.example.com")));
    assert_eq!(
        (&failed["type_uid"], &failed["action"]),
        (&json!(400_104), &json!("Allowed"))
    );
    let first = denied("denial", "tcp", None);
    let folded = mapped(&json!({ "kind": "folded", "first": first, "count": 95 }));
    assert_eq!(folded["count"], 95);
}

#[test]
fn a_flow_into_a_sandbox_is_inbound_and_its_bytes_keep_their_direction() {
    let mut inbound = subject("ingress", None);
    inbound["direction"] = json!("ingress");
    let event = mapped(&json!({
        "kind": "close", "flow": 9, "subject": inbound, "up": 10, "down": 1, "duration_ms": 5, "end": "reset",
    }));
    assert_eq!(event["connection_info"]["direction_id"], 1);
    assert_eq!(event["dst_endpoint"]["uid"], "dev");
    assert_eq!(
        event["traffic"],
        json!({ "bytes_in": 10, "bytes_out": 1, "bytes": 11 }),
        "the gateway sent one byte into the sandbox"
    );
    assert_eq!(event["type_uid"], 400_103);
}

#[test]
fn what_happens_to_networks_and_posture_is_a_base_event() {
    insta::assert_json_snapshot!(mapped(&json!({
        "kind": "posture", "state": "Not enforced", "cause": "a rule was removed", "generation": 2,
    })));
    let lost = mapped(&json!({
        "kind": "network", "network": "dev", "run": null, "change": "lost", "policy": "01".repeat(32),
        "generation": 3,
    }));
    assert_eq!(
        (&lost["class_uid"], &lost["severity"]),
        (&json!(0), &json!("High"))
    );
    let gap = mapped(&json!({ "kind": "gap", "window_ms": 1000 }));
    assert_eq!(gap["unmapped"]["window_ms"], 1000);
}

#[test]
fn the_check_itself_finds_what_is_wrong() {
    let good = mapped(&json!({ "kind": "gap", "window_ms": 1 }));
    for (pointer, value, finding) in [
        ("/time", Value::Null, "time is missing"),
        ("/severity_id", json!(77), "severity_id: 77 is not among"),
        ("/type_uid", json!("0"), "type_uid: not a long_t"),
        (
            "/metadata/version",
            Value::Null,
            "metadata.version is missing",
        ),
        ("/severity", json!("Low"), "severity: should be \"Medium\""),
    ] {
        let mut bad = good.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = bad.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match value {
            Value::Null => drop(parent.remove(key)),
            value => drop(parent.insert(key.to_owned(), value)),
        }
        let found = problems(&bad);
        assert!(
            found.iter().any(|f| f.contains(finding)),
            "{pointer}: {found:?}"
        );
    }
    let mut strange = good;
    strange["colour"] = json!("red");
    assert_eq!(problems(&strange), ["colour is no attribute of base_event"]);
}
