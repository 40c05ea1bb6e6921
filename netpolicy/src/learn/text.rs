//! A proposal as a document. Everything in it comes from checked types or is escaped: a record must not write YAML.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Evidence, Gathered, Key, LeftOut, Target};
use crate::ids::UnixSeconds;
use crate::policy::{Ports, Protocol};
use crate::time;

/// Longest list of what is left out; the caller has all of it.
const MOST_LEFT_OUT: usize = 200;

/// The document.
pub(super) fn document(
    gathered: &BTreeMap<Key, Gathered>,
    private: bool,
    left_out: &[LeftOut],
) -> String {
    let mut out = String::from(
        "# Learned from records: read every entry before you use it.\npolicy: learned\n",
    );
    let network = if gathered.is_empty() {
        "none"
    } else {
        "domains"
    };
    // writing to a String cannot fail
    let _ = writeln!(
        out,
        "description: Learned from recorded flows\nnetwork: {network}"
    );
    if private {
        out.push_str("private: true\n");
    }
    if !gathered.is_empty() {
        out.push_str("allow:\n");
    }
    for (key, one) in gathered {
        let names = if one.names > 1 {
            format!(", {} names", one.names)
        } else {
            String::new()
        };
        let _ = writeln!(
            out,
            "  # {}{names}\n  - {}",
            seen(one.evidence),
            entry(key, &one.ports)
        );
    }
    if !left_out.is_empty() {
        out.push_str("# Left out:\n");
    }
    for one in left_out.iter().take(MOST_LEFT_OUT) {
        let _ = writeln!(
            out,
            "# - {}: {} ({})",
            one.what.escape_debug(),
            one.why.escape_debug(),
            seen(one.evidence)
        );
    }
    if left_out.len() > MOST_LEFT_OUT {
        let _ = writeln!(out, "# and {} more", left_out.len() - MOST_LEFT_OUT);
    }
    out
}

fn seen(evidence: Evidence) -> String {
    let flows = if evidence.count == 1 { "flow" } else { "flows" };
    let [first, last] = [evidence.first, evidence.last].map(|at| time::moment(UnixSeconds(at)));
    format!("{} {flows}, first {first}, last {last}", evidence.count)
}

fn entry((target, protocol, any): &Key, ports: &Ports) -> String {
    let key = if matches!(target, Target::Address(_)) {
        "cidr"
    } else {
        "host"
    };
    let ranges: Vec<String> = ports
        .0
        .iter()
        .map(|range| match (range.start(), range.end()) {
            (start, end) if start == end => start.to_string(),
            (start, end) => format!("{start}-{end}"),
        })
        .collect();
    let mut parts = vec![format!("{key}: {:?}", target.pattern())];
    if protocol.has_ports() {
        parts.push(format!("ports: [{}]", ranges.join(", ")));
    }
    if *protocol != Protocol::Tcp {
        parts.push(format!("protocol: {}", protocol.word()));
    }
    if *any {
        parts.push("speaks: any".to_owned());
    }
    format!("{{ {} }}", parts.join(", "))
}

/// An entry as one names it in a sentence.
pub(super) fn named((target, protocol, _): &Key, ports: &Ports) -> String {
    match protocol {
        Protocol::Tcp => format!("{} ports {ports}", target.pattern()),
        Protocol::Udp => format!("{} ports {ports} udp", target.pattern()),
        Protocol::Icmp => format!("{} icmp", target.pattern()),
    }
}
