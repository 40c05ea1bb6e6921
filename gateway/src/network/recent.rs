//! What a network was denied last, so that its sandbox and its operators can be told what happens now.
//!
//! The record has everything; this holds the last few destinations, in memory, for the time of one gateway. What was
//! permitted since is forgotten. A sandbox chooses what stands here: bounded in number, and the oldest goes first.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use netpolicy::ids::Generation;
use netpolicy::policy::Protocol;
use netpolicy::reason::Reason;

use crate::network::flows::Door;
use crate::record::entry::{Denied, Subject};

/// Destinations that are remembered: more than a person asks about, and a few kilobytes.
const MOST: usize = 32;

/// One denial or failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Last {
    /// Name, where known.
    pub name: Option<String>,
    /// What the sandbox addressed.
    pub address: Option<IpAddr>,
    /// Port; `None` of a look-up.
    pub port: Option<u16>,
    /// Transport.
    pub protocol: Protocol,
    /// Why.
    pub reason: Reason,
    /// Whether it was permitted and failed.
    pub failed: bool,
    /// Under which policy.
    pub generation: Generation,
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
}

/// The last few of a network.
#[derive(Debug, Default)]
pub struct Recent {
    all: Mutex<VecDeque<Last>>,
    /// Read on the way of every flow, where the lock would be felt.
    count: AtomicUsize,
}

impl Recent {
    /// Notes a denial (or, `failed`, a failure).
    pub fn note(&self, denied: &Denied, failed: bool, now_ms: i64) {
        let subject = &denied.subject;
        let fresh = Last {
            name: subject.name.clone(),
            address: subject.address,
            port: port_of(subject),
            protocol: subject.protocol,
            reason: denied.reason,
            failed,
            generation: denied.generation,
            at_ms: now_ms,
        };
        let mut all = self.all();
        all.retain(|last| !last.is_like(&fresh));
        if all.len() >= MOST {
            all.pop_front();
        }
        all.push_back(fresh);
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// A destination passed: what was denied of it before says nothing any more.
    pub fn passed(&self, subject: &Subject) {
        if self.is_empty() {
            return;
        }
        let port = port_of(subject);
        self.forget(|last| {
            let host = match (&subject.name, &last.name) {
                (Some(name), Some(own)) => name == own,
                (None, None) => subject.address == last.address,
                _ => false,
            };
            // a flow passed, so the look-up before it did
            host && (last.port.is_none() || (last.port, last.protocol) == (port, subject.protocol))
        });
    }

    /// The addresses of a name were told.
    pub fn told(&self, name: &str) {
        if !self.is_empty() {
            self.forget(|last| last.port.is_none() && last.name.as_deref() == Some(name));
        }
    }

    /// The youngest about a name or an address, this port or its look-up.
    pub fn find(
        &self,
        host: &netpolicy::name::Host,
        port: u16,
        protocol: Protocol,
    ) -> Option<Last> {
        let is = |last: &&Last| {
            let same = match host {
                netpolicy::name::Host::Name(name) => last.name.as_deref() == Some(name.as_str()),
                netpolicy::name::Host::Address(address) => {
                    last.name.is_none() && last.address == Some(*address)
                }
            };
            same && (last.port.is_none() || (last.port, last.protocol) == (Some(port), protocol))
        };
        self.all().iter().rev().find(is).cloned()
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn forget(&self, is: impl Fn(&Last) -> bool) {
        let mut all = self.all();
        all.retain(|last| !is(last));
        self.count.store(all.len(), Ordering::Relaxed);
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Last>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Last {
    fn is_like(&self, other: &Self) -> bool {
        (&self.name, self.address, self.port, self.protocol)
            == (&other.name, other.address, other.port, other.protocol)
    }
}

fn port_of(subject: &Subject) -> Option<u16> {
    (subject.door != Door::Dns).then_some(subject.port)
}

#[cfg(test)]
mod tests {
    use netpolicy::decide::Direction;
    use netpolicy::ids::PolicyHash;
    use netpolicy::name::{Host, Name};

    use super::*;

    fn denied(name: &str, port: u16, reason: Reason) -> Denied {
        Denied {
            subject: Subject {
                network: "dev".parse().unwrap(),
                run: None,
                door: if port == 0 { Door::Dns } else { Door::Tcp },
                direction: Direction::Egress,
                protocol: Protocol::Tcp,
                source: "198.18.0.9:4000".parse().unwrap(),
                name: Some(name.to_owned()),
                address: None,
                port,
            },
            reason,
            by: None,
            class: None,
            upstream: None,
            heard: None,
            policy: PolicyHash([0; 32]),
            generation: Generation(1),
        }
    }

    fn host(name: &str) -> Host {
        Host::Name(Name::parse(name).unwrap())
    }

    #[test]
    fn the_youngest_of_a_destination_is_found_until_it_passes() {
        let recent = Recent::default();
        recent.note(
            &denied("a.example", 0, Reason::NameResolvesToForbidden),
            false,
            1,
        );
        recent.note(&denied("a.example", 443, Reason::LimitUpload), false, 2);
        let find = |port| recent.find(&host("a.example"), port, Protocol::Tcp);
        assert_eq!(find(443).map(|last| last.at_ms), Some(2));
        // another port: only its look-up is about it
        assert_eq!(find(80).map(|last| last.at_ms), Some(1));
        assert_eq!(recent.find(&host("b.example"), 443, Protocol::Tcp), None);
        recent.told("a.example");
        assert_eq!(find(80), None);
        recent.passed(&denied("a.example", 443, Reason::LimitUpload).subject);
        assert_eq!(find(443), None);
    }

    #[test]
    fn a_sandbox_cannot_fill_it() {
        let recent = Recent::default();
        for n in 0..10_000 {
            recent.note(
                &denied(&format!("h{n}.example"), 443, Reason::NameDenied),
                false,
                n,
            );
        }
        assert_eq!(recent.all().len(), MOST);
        let last = recent.find(&host("h9999.example"), 443, Protocol::Tcp);
        assert_eq!(last.map(|last| last.at_ms), Some(9999));
        assert_eq!(recent.find(&host("h0.example"), 443, Protocol::Tcp), None);
    }
}
