//! Every metric that is declared is touched somewhere; labels are from fixed lists; what happened can be read.

use std::path::Path;

use netpolicy::reason::Reason;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::Meters;
use crate::record::Entry;

fn text(meters: &Meters) -> String {
    let mut registry = Registry::default();
    meters.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

/// A line of the text: name with labels, and value.
fn value(text: &str, series: &str) -> f64 {
    let line = text
        .lines()
        .find(|l| l.strip_prefix(series).is_some_and(|l| l.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("no {series} in:\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn entry(text: &str) -> Entry {
    serde_json::from_str(text).unwrap()
}

const SUBJECT: &str = r#""subject":{"network":"dev","door":"tcp","direction":"egress","protocol":"tcp",
    "source":"198.18.0.9:40000","name":"evil.example","port":443},"policy":"0101010101010101010101010101010101010101010101010101010101010101","generation":1"#;

#[test]
fn every_entry_is_counted_where_it_belongs() {
    let meters = Meters::default();
    let denied = |kind: &str, reason: &str| {
        entry(&format!(
            r#"{{"kind":"{kind}","reason":"{reason}",{SUBJECT}}}"#
        ))
    };
    meters.record(&denied("denial", "limit_rate"));
    meters.record(&denied("denial", "name_denied"));
    meters.record(&denied("failure", "upstream_timeout"));
    meters.record(&entry(&format!(
        r#"{{"kind":"open","flow":1,"upstream":"203.0.113.9:443","by":[],{SUBJECT}}}"#
    )));
    meters.record(&entry(&format!(
        r#"{{"kind":"close","flow":1,"up":10,"down":32,"duration_ms":1,"end":"reset",{SUBJECT}}}"#
    )));
    meters.answered(3);
    meters.answered(16);
    meters.echo_refused();
    meters.policy_changed(std::time::Duration::from_millis(7));
    let text = text(&meters);
    for (series, wanted) in [
        ("denials_total{reason=\"limit_rate\"}", 1.0),
        ("limits_reached_total{reason=\"limit_rate\"}", 1.0),
        ("denials_total{reason=\"name_denied\"}", 1.0),
        ("failures_total{reason=\"upstream_timeout\"}", 1.0),
        ("flows_permitted_total{door=\"tcp\"}", 1.0),
        ("flows_closed_total", 1.0),
        ("dns_answers_total{code=\"nxdomain\"}", 1.0),
        ("dns_answers_total{code=\"other\"}", 1.0),
        ("echoes_refused_total", 1.0),
        ("policy_change_seconds_count", 1.0),
        ("policy_change_seconds_bucket{le=\"0.005\"}", 0.0),
        ("policy_change_seconds_bucket{le=\"0.01\"}", 1.0),
    ] {
        assert!((value(&text, series) - wanted).abs() < 0.001, "{series}");
    }
    assert_eq!(meters.closed_bytes(), [10, 32]);
}

#[test]
fn no_series_is_named_by_a_sandbox_and_their_number_does_not_grow() {
    let meters = Meters::default();
    let before = text(&meters).lines().count();
    for flow in 0..500 {
        let subject = SUBJECT
            .replace("evil", &format!("evil{flow}"))
            .replace("dev", &format!("n{flow}"));
        let reason = Reason::ALL[flow % Reason::ALL.len()].code();
        meters.record(&entry(&format!(
            r#"{{"kind":"denial","reason":"{reason}",{subject}}}"#
        )));
        meters.answered(u16::try_from(flow * 97).unwrap());
    }
    let after = text(&meters);
    assert!(
        !after.contains("evil") && !after.contains("n1\""),
        "{after}"
    );
    // a reason that is otherwise a failure's may be denied once; nothing else is new
    let failures = Reason::ALL
        .iter()
        .filter(|r| r.code().starts_with("upstream_"))
        .count();
    assert!(after.lines().count() <= before + failures, "{before}");
}

#[test]
fn every_meter_is_touched_outside_of_its_declaration() {
    let source = include_str!("meters.rs");
    let (declared, rest) = source.split_once("impl Default for Meters").unwrap();
    let (_, declared) = declared.split_once("pub struct Meters {").unwrap();
    let fields: Vec<&str> = declared
        .lines()
        .filter(|l| !l.trim_start().starts_with("//"))
        .filter_map(|l| l.trim().split_once(": ").map(|(name, _)| name))
        .collect();
    assert!(fields.len() >= 9, "{fields:?}");
    for field in fields {
        // the constructor and the registration name each once; a touch is one more, with a verb
        let touched = [
            ".inc()",
            ".inc_by(",
            ".observe(",
            ".get_or_create(",
            ".get(at)",
            ".each_ref()",
        ]
        .iter()
        .any(|verb| rest.contains(&format!("self.{field}{verb}")))
            || rest.contains(&format!("= &self.{field};"))
            || field == "dns_answers" && rest.contains("self.dns_fast.get(at)");
        assert!(touched, "{field} is declared and nothing touches it");
    }
    // and every method that touches is called by the gateway
    let methods = rest
        .lines()
        .filter_map(|l| l.trim().strip_prefix("pub fn "))
        .filter_map(|l| l.split('(').next())
        .filter(|name| *name != "register");
    let code = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    for method in methods {
        assert!(
            code.contains(&format!(".{method}(")),
            "nothing calls Meters::{method}"
        );
    }
}

/// All code of the gateway but this module's own.
fn sources(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all += &sources(&path);
        } else if !path.ends_with("metrics/tests.rs") && !path.ends_with("metrics/meters.rs") {
            all += &std::fs::read_to_string(&path).unwrap();
        }
    }
    all
}
