//! What a job reaches, from its point of view: representative destinations, decided by the policy engine itself.
//!
//! The gateway's floors can only take away from it. Refuses to own any rule.

use std::sync::Arc;

use netpolicy::addr::AddressBook;
use netpolicy::decide::{LayerKind, OwnListeners, Snapshot};
use netpolicy::explain::{Asked, Decision, Explanation, Question, explain};
use netpolicy::ids::UnixSeconds;
use netpolicy::policy::{Policy, Protocol, Selector};
use serde::Serialize;
use utoipa::ToSchema;

/// Allowed names that are listed.
const MOST_NAMES: usize = 50;

/// What stands for what: a public address of each family, one of each private network, what no policy opens.
const PLACES: [(&str, &str, Protocol); 8] = [
    ("Internet", "1.1.1.1:443", Protocol::Tcp),
    (
        "Internet over IPv6",
        "[2606:4700:4700::1111]:443",
        Protocol::Tcp,
    ),
    ("Mail servers", "1.1.1.1:25", Protocol::Tcp),
    ("Private network", "192.168.1.10:443", Protocol::Tcp),
    (
        "Private network over IPv6",
        "[fd12:3456:789a::10]:443",
        Protocol::Tcp,
    ),
    ("Local network", "10.0.0.1:22", Protocol::Tcp),
    ("Cloud metadata", "169.254.169.254:80", Protocol::Tcp),
    (
        "Other names",
        "somewhere-else.example.com:443",
        Protocol::Tcp,
    ),
];

/// One row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct Reached {
    /// What it stands for.
    pub what: String,
    /// The destination that was decided.
    pub destination: String,
    /// `permit`, `deny` or `ask`.
    pub decision: String,
    /// Reason code of a denial.
    pub reason: Option<String>,
    /// Why, in sentences.
    pub summary: String,
    /// What would change it.
    pub change: Option<String>,
    /// The line that decided, `file:line`.
    pub rule: Option<String>,
}

/// A policy alone, as decisions take it.
pub fn alone(policy: Policy) -> Snapshot {
    Snapshot::new(
        vec![(LayerKind::Job, Arc::new(policy))],
        Arc::new(AddressBook::default()),
        Arc::new(OwnListeners::default()),
    )
}

/// The word of a decision.
pub const fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Permit => "permit",
        Decision::Deny => "deny",
        Decision::Ask => "ask",
    }
}

fn row(what: &str, destination: &str, found: Explanation) -> Reached {
    Reached {
        what: what.to_owned(),
        destination: destination.to_owned(),
        decision: word(found.decision).to_owned(),
        reason: found.reason.map(|reason| reason.code().to_owned()),
        summary: found.summary,
        change: found.change,
        rule: found.rule.map(|line| line.to_string()),
    }
}

/// The table of a policy: what everybody asks about, then what it lists.
pub fn table(policy: Policy, now: UnixSeconds) -> Vec<Reached> {
    let listed: Vec<(String, u16, Protocol)> = policy
        .allow
        .iter()
        .take(MOST_NAMES)
        .filter_map(|rule| {
            let Selector::Host(pattern) = &rule.to else {
                return None;
            };
            let protocol = rule.protocol.unwrap_or(Protocol::Tcp);
            // a name below a wildcard stands for all of them
            let name = pattern.to_string().replacen("*.", "any.", 1);
            let port = [443, 80, 22]
                .into_iter()
                .find(|port| rule.covers_port(*port, protocol));
            Some((
                name,
                port.or_else(|| rule.ports.0.first().map(|range| *range.start()))?,
                protocol,
            ))
        })
        .collect();
    let snapshot = alone(policy);
    let mut rows = Vec::new();
    for (what, destination, protocol) in PLACES {
        if let Ok(asked) = Asked::parse(destination, protocol) {
            let question = Question::new(asked.host, asked.port, protocol);
            rows.push(row(what, destination, explain(&snapshot, &question, now)));
        }
    }
    for (name, port, protocol) in listed {
        let destination = format!("{name}:{port}");
        if let Ok(asked) = Asked::parse(&destination, protocol) {
            let question = Question::new(asked.host, port, protocol);
            rows.push(row(
                "Listed",
                &destination,
                explain(&snapshot, &question, now),
            ));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::spec::{NetworkMode, NetworkSpec};
    use super::*;

    fn decisions(network: &NetworkSpec) -> Vec<(String, String)> {
        let policy = network.policy().unwrap().unwrap();
        let rows = table(policy, UnixSeconds(1_800_000_000));
        rows.into_iter()
            .map(|row| (row.what, row.decision))
            .collect()
    }

    #[test]
    fn the_table_says_what_the_settings_promise() {
        let of = |mode, allow_private| {
            let network = NetworkSpec {
                mode,
                allow_private,
                domains: if mode == NetworkMode::Domains {
                    vec!["*.example.com".into()]
                } else {
                    Vec::new()
                },
                ..NetworkSpec::default()
            };
            let rows = decisions(&network);
            let is = |what: &str| rows.iter().find(|(w, _)| w == what).map(|(_, d)| d.clone());
            ["Internet", "Private network", "Cloud metadata", "Listed"]
                .map(|what| is(what).unwrap_or_default())
        };
        assert_eq!(of(NetworkMode::None, false), ["deny", "deny", "deny", ""]);
        assert_eq!(
            of(NetworkMode::Internet, false),
            ["permit", "deny", "deny", ""]
        );
        assert_eq!(
            of(NetworkMode::Internet, true),
            ["permit", "permit", "deny", ""]
        );
        assert_eq!(
            of(NetworkMode::Domains, false),
            ["deny", "deny", "deny", "permit"]
        );
    }
}
