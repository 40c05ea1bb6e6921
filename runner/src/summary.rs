//! What a run's network saw, in words: destinations permitted, denied and failed, grouped and counted.
//!
//! Owns the grouping of journal entries of one network. Pure: entries in, summary out. Refuses to own where entries come
//! from ([`crate::records`]). A sandbox chooses names and ports, so the number of groups is bounded.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use gateway::network::flows::Door;
use gateway::record::Entry;
use gateway::record::entry::{Close, DecidedBy, Denied, Open, Subject};
use netpolicy::ids::NetworkId;
use netpolicy::policy::{Place, Protocol};
use netpolicy::reason::Reason;
use serde::{Deserialize, Serialize};

/// A sandbox that tries thousands of destinations is told about in this many lines and a count.
const MOST_GROUPS: usize = 200;

/// What became of flows to one destination.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Name or address, with port (no port for a name that was only looked up).
    pub destination: String,
    /// Transport.
    pub protocol: Protocol,
    /// Whether it was a look-up, not a flow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub look_up: bool,
    /// How often.
    pub count: u64,
    /// Bytes from the sandbox.
    pub up: u64,
    /// Bytes to it.
    pub down: u64,
    /// Why it was denied or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Name of the policy that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The line that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Place>,
}

/// What a run's network saw.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Flows that were permitted and reached their destination.
    pub permitted: Vec<Group>,
    /// Flows and look-ups that were denied.
    pub denied: Vec<Group>,
    /// Permitted destinations that refused, timed out or could not be reached.
    pub failed: Vec<Group>,
    /// Groups that were left out.
    pub left_out: u64,
    /// The network's name in the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkId>,
    /// Whether the record was read to its end; if not, the journal knows more.
    pub complete: bool,
}

/// What distinguishes one group from another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    outcome: Outcome,
    destination: String,
    reason: Option<&'static str>,
    protocol: Protocol,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    Permitted,
    Denied,
    Failed,
}

/// Adds up the entries of one network.
#[derive(Debug, Default)]
pub struct Tally {
    groups: BTreeMap<Key, Group>,
    left_out: u64,
    detached: bool,
}

impl Tally {
    /// Whether the network's last entry was seen.
    pub const fn is_over(&self) -> bool {
        self.detached
    }

    /// Counts an entry of this network.
    pub fn add(&mut self, entry: &Entry) {
        match entry {
            Entry::Open(open) => self.opened(open),
            Entry::Close(close) => self.closed(close),
            Entry::Denial(denied) => self.denied(Outcome::Denied, denied, 1),
            Entry::Failure(denied) => self.denied(Outcome::Failed, denied, 1),
            Entry::Folded {
                first,
                count,
                failed,
            } => {
                let outcome = if *failed {
                    Outcome::Failed
                } else {
                    Outcome::Denied
                };
                self.denied(outcome, first, *count);
            }
            Entry::Network(change) => self.detached |= change.change == "detached",
            Entry::Source(_) | Entry::Selftest(_) | Entry::Posture { .. } | Entry::Gap { .. } => {}
        }
    }

    fn opened(&mut self, open: &Open) {
        let decided = open.by.first();
        self.group(Outcome::Permitted, &open.subject, None, decided, 1);
    }

    fn closed(&mut self, close: &Close) {
        let key = key(Outcome::Permitted, &close.subject, None);
        let Some(group) = self.groups.get_mut(&key) else {
            return;
        };
        group.up = group.up.saturating_add(close.up);
        group.down = group.down.saturating_add(close.down);
        let Some(reason) = Reason::ALL.iter().find(|reason| reason.code() == close.end) else {
            return;
        };
        // dialled for its first bytes, which were then denied: that is told once, as the denial it is, together with what
        // the other side may have said before
        let denial = self::key(Outcome::Denied, &close.subject, Some(*reason));
        let told = self.groups.contains_key(&denial);
        if close.up > 0 || (close.down > 0 && !told) {
            return;
        }
        if let Some(group) = self.groups.get_mut(&key) {
            group.count = group.count.saturating_sub(1);
            group.down = group.down.saturating_sub(close.down);
            if group.count == 0 {
                self.groups.remove(&key);
            }
        }
        if let Some(denied) = self.groups.get_mut(&denial) {
            denied.down = denied.down.saturating_add(close.down);
        }
    }

    fn denied(&mut self, outcome: Outcome, denied: &Denied, count: u64) {
        self.group(
            outcome,
            &denied.subject,
            Some(denied.reason),
            denied.by.as_ref(),
            count,
        );
    }

    fn group(
        &mut self,
        outcome: Outcome,
        subject: &Subject,
        reason: Option<Reason>,
        by: Option<&DecidedBy>,
        count: u64,
    ) {
        let key = key(outcome, subject, reason);
        if self.groups.len() >= MOST_GROUPS && !self.groups.contains_key(&key) {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let group = self.groups.entry(key).or_insert_with_key(|key| Group {
            destination: key.destination.clone(),
            protocol: subject.protocol,
            look_up: is_look_up(subject),
            count: 0,
            up: 0,
            down: 0,
            reason,
            policy: by.map(|by| by.policy.clone()),
            rule: by.map(|by| by.at.clone()),
        });
        group.count = group.count.saturating_add(count);
    }

    /// The summary so far.
    pub fn summary(&self) -> Summary {
        let of = |wanted| {
            let groups = self.groups.iter().filter(|(key, _)| key.outcome == wanted);
            groups.map(|(_, group)| group.clone()).collect()
        };
        Summary {
            permitted: of(Outcome::Permitted),
            denied: of(Outcome::Denied),
            failed: of(Outcome::Failed),
            left_out: self.left_out,
            network: None,
            complete: self.detached,
        }
    }
}

fn key(outcome: Outcome, subject: &Subject, reason: Option<Reason>) -> Key {
    Key {
        outcome,
        destination: destination(subject),
        reason: reason.map(Reason::code),
        // how a question came does not matter
        protocol: if is_look_up(subject) {
            Protocol::Udp
        } else {
            subject.protocol
        },
    }
}

fn is_look_up(subject: &Subject) -> bool {
    subject.door == Door::Dns
}

fn destination(subject: &Subject) -> String {
    match (&subject.name, subject.address, subject.port) {
        (Some(name), _, 0) => name.clone(),
        (Some(name), _, port) => format!("{name}:{port}"),
        (None, Some(address), 0) => address.to_string(),
        (None, Some(address), port) => SocketAddr::new(address, port).to_string(),
        (None, None, port) => format!("port {port}"),
    }
}

#[cfg(test)]
mod tests {
    use gateway::record::entry::NetworkChange;
    use netpolicy::decide::Direction;
    use netpolicy::ids::{Generation, PolicyHash};

    use super::*;

    fn subject(name: &str, port: u16) -> Subject {
        Subject {
            network: "run-1".parse().unwrap(),
            run: None,
            door: Door::Tcp,
            direction: Direction::Egress,
            protocol: Protocol::Tcp,
            source: "198.18.0.2:40000".parse().unwrap(),
            name: Some(name.to_owned()),
            address: None,
            port,
        }
    }

    fn denied(name: &str) -> Box<Denied> {
        Box::new(Denied {
            subject: subject(name, 443),
            reason: Reason::NameNotAllowed,
            by: None,
            class: None,
            upstream: None,
            heard: None,
            policy: PolicyHash([0; 32]),
            generation: Generation(1),
        })
    }

    #[test]
    fn equal_denials_are_one_group_with_a_count() {
        let mut tally = Tally::default();
        tally.add(&Entry::Denial(denied("a.example")));
        tally.add(&Entry::Folded {
            first: denied("a.example"),
            count: 41,
            failed: false,
        });
        tally.add(&Entry::Failure(denied("a.example")));
        tally.add(&Entry::Folded {
            first: denied("a.example"),
            count: 7,
            failed: true,
        });
        let summary = tally.summary();
        assert_eq!((summary.denied.len(), summary.denied[0].count), (1, 42));
        assert_eq!(summary.denied[0].destination, "a.example:443");
        assert_eq!((summary.failed.len(), summary.failed[0].count), (1, 8));
        assert!(summary.permitted.is_empty());
    }

    #[test]
    fn what_was_denied_for_its_first_bytes_was_not_permitted_as_well() {
        let open = |flow| {
            Entry::Open(Box::new(Open {
                flow,
                subject: subject("a.example", 80),
                upstream: "203.0.113.9:80".parse().unwrap(),
                local: None,
                class: None,
                by: Vec::new(),
                policy: PolicyHash([0; 32]),
                generation: Generation(1),
            }))
        };
        let close = |flow, up, end: &str| {
            Entry::Close(Box::new(Close {
                flow,
                subject: subject("a.example", 80),
                sni: None,
                alpn: Vec::new(),
                http: None,
                datagrams: None,
                up,
                down: 0,
                duration_ms: 1,
                end: end.to_owned(),
            }))
        };
        let mut tally = Tally::default();
        for entry in [open(1), close(1, 0, "http_host_mismatch")] {
            tally.add(&entry);
        }
        assert!(tally.summary().permitted.is_empty());
        // bytes that passed before, and an end that is nobody's denial, were a flow
        for entry in [
            open(2),
            close(2, 7, "http_host_mismatch"),
            open(3),
            close(3, 0, "reset"),
        ] {
            tally.add(&entry);
        }
        let permitted = tally.summary().permitted;
        assert_eq!(
            (permitted.len(), permitted[0].count, permitted[0].up),
            (1, 2, 7)
        );
    }

    #[test]
    fn a_flow_that_only_the_other_side_spoke_on_is_told_once() {
        let open = |port: u16| {
            Entry::Open(Box::new(Open {
                flow: u64::from(port),
                subject: subject("git.example", port),
                upstream: "203.0.113.9:22".parse().unwrap(),
                local: None,
                class: None,
                by: Vec::new(),
                policy: PolicyHash([0; 32]),
                generation: Generation(1),
            }))
        };
        let close = |port: u16, end: &str| {
            Entry::Close(Box::new(Close {
                flow: u64::from(port),
                subject: subject("git.example", port),
                sni: None,
                alpn: Vec::new(),
                http: None,
                datagrams: None,
                up: 0,
                down: 14,
                duration_ms: 1,
                end: end.to_owned(),
            }))
        };
        let mut denial = denied("git.example");
        denial.subject = subject("git.example", 22);
        denial.reason = Reason::HttpMalformed;
        let mut tally = Tally::default();
        for entry in [open(22), Entry::Denial(denial), close(22, "http_malformed")] {
            tally.add(&entry);
        }
        let summary = tally.summary();
        assert!(summary.permitted.is_empty(), "{summary:?}");
        assert_eq!((summary.denied[0].count, summary.denied[0].down), (1, 14));
        // what the run's end cut off was a flow, and nobody's denial
        for entry in [open(23), close(23, "run_ended")] {
            tally.add(&entry);
        }
        let permitted = tally.summary().permitted;
        assert_eq!((permitted[0].count, permitted[0].down), (1, 14));
    }

    #[test]
    fn a_denied_look_up_is_one_however_it_came() {
        let mut tally = Tally::default();
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            let mut asked = denied("a.example");
            (
                asked.subject.port,
                asked.subject.protocol,
                asked.subject.door,
            ) = (0, protocol, Door::Dns);
            tally.add(&Entry::Denial(asked));
        }
        tally.add(&Entry::Denial(denied("a.example")));
        let told = tally.summary().denied;
        let told: Vec<_> = told
            .iter()
            .map(|g| (g.destination.as_str(), g.look_up, g.count))
            .collect();
        assert_eq!(told, [("a.example", true, 2), ("a.example:443", false, 1)]);
    }

    #[test]
    fn sandbox_cannot_grow_the_summary_without_bound() {
        let mut tally = Tally::default();
        for n in 0..1000 {
            tally.add(&Entry::Denial(denied(&format!("host-{n}.example"))));
        }
        let summary = tally.summary();
        assert_eq!((summary.denied.len(), summary.left_out), (MOST_GROUPS, 800));
    }

    #[test]
    fn summary_is_complete_only_once_the_network_is_gone() {
        let mut tally = Tally::default();
        assert!(!tally.summary().complete);
        let change = |change: &str| {
            Entry::Network(NetworkChange {
                network: "run-1".parse().unwrap(),
                run: None,
                change: change.to_owned(),
                policy: PolicyHash([0; 32]),
                generation: Generation(1),
            })
        };
        tally.add(&change("attached"));
        assert!(!tally.is_over());
        tally.add(&change("detached"));
        assert!(tally.is_over() && tally.summary().complete);
    }
}
