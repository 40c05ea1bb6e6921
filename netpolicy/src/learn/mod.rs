//! The narrowest policy that recorded contacts need, with the evidence for each entry.
//!
//! Owns: gathering contacts ([`Learner`]), choosing entries, and the text. Only what was permitted is proposed; nothing
//! that a policy could not open, nothing that never answered unless asked for, nothing private unless asked for, no
//! wildcard over a public suffix, and nothing that `policy check` would warn about unless asked for: that is left out,
//! as a comment that says why. The text is checked and replayed before it is given out.

mod text;
mod unanswered;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::addr::{AddressBook, Class};
use crate::decide::special::{Special, special};
use crate::decide::{LayerKind, OwnListeners, Snapshot};
use crate::ids::UnixSeconds;
use crate::lint::{self, Catalogue, Setting, is_public_suffix};
use crate::name::{Host, Name, Pattern};
use crate::policy::{Policy, Ports, Protocol, Speaks};
use crate::replay::{Contact, Verdict, decide};
use unanswered::{Missed, Unanswered};

/// Destinations that are told apart: more than any reviewer reads.
const MOST: usize = 10_000;
/// What may be proposed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Private networks and the machine itself too.
    pub private: bool,
    /// Also what `policy check` warns about.
    pub flagged: bool,
    /// Also what was permitted and never answered.
    pub failed: bool,
    /// So many names right below one are proposed as a wildcard; `None`: never.
    pub wildcards: Option<usize>,
}

/// How often and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evidence {
    /// How many contacts.
    pub count: u64,
    /// The first (seconds since the epoch).
    pub first: i64,
    /// The last.
    pub last: i64,
}

impl Evidence {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }
}

/// What an entry names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Target {
    Host(Name),
    Below(Name),
    Address(IpAddr),
}

/// An entry in the making: target, transport, and whether any bytes must pass.
type Key = (Target, Protocol, bool);

#[derive(Clone, Debug)]
struct Gathered {
    ports: Ports,
    evidence: Evidence,
    /// One contact for each port, to see that the entry permits it.
    samples: Vec<Contact>,
    names: usize,
}

/// Something that was recorded and is not proposed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// Destination.
    pub what: String,
    /// Why.
    pub why: String,
    /// How often and when.
    pub evidence: Evidence,
}

/// A proposal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Learnt {
    /// The document.
    pub text: String,
    /// Entries in it.
    pub entries: usize,
    /// What is not in it.
    pub left_out: Vec<LeftOut>,
}

/// Gathers contacts.
#[derive(Debug, Default)]
pub struct Learner {
    gathered: BTreeMap<Key, Gathered>,
    left_out: BTreeMap<(String, String), Evidence>,
    /// What never answered, as long as nothing else says that it does.
    unanswered: BTreeMap<Unanswered, Missed>,
    private_seen: bool,
}

impl Learner {
    /// Adds one contact. Denied ones and questions about names need nothing.
    pub fn add(&mut self, contact: &Contact, evidence: Evidence, options: Options) {
        let (Verdict::Permit, Some(port)) = (contact.was, contact.port) else {
            return;
        };
        let what = if contact.protocol.has_ports() {
            format!("{}:{port}", contact.to)
        } else {
            format!("{} {}", contact.to, contact.protocol.word())
        };
        if port == 0 && contact.protocol.has_ports() {
            return self.leave(&what, "it has no port", evidence);
        }
        let target = Target::of(contact);
        if contact.failed && !options.failed {
            let key = (
                target,
                contact.protocol,
                port,
                contact.address,
                contact.class,
            );
            return self.miss(key, what, contact, evidence);
        }
        if let Some(why) = refused(contact, options) {
            return self.leave(&what, why, evidence);
        }
        let usual = Speaks::default_for(port, contact.protocol);
        let any = contact.opaque && usual != Speaks::Any;
        let key = (target, contact.protocol, any);
        if self.gathered.len() >= MOST && !self.gathered.contains_key(&key) {
            return self.leave("other destinations", "there are too many", evidence);
        }
        self.private_seen |= needs_private(contact);
        let entry = self.gathered.entry(key).or_insert_with(|| Gathered {
            ports: Ports::none(),
            evidence: Evidence {
                count: 0,
                ..evidence
            },
            samples: Vec::new(),
            names: 1,
        });
        entry.evidence.add(evidence);
        if !contact.protocol.has_ports() {
            entry.ports = Ports::any();
        } else if !entry.ports.contains(port) {
            entry.ports = entry.ports.union(&Ports(vec![port..=port]));
        }
        if !entry.samples.contains(contact) && entry.samples.len() < 64 {
            entry.samples.push(contact.clone());
        }
    }

    fn leave(&mut self, what: &str, why: &str, evidence: Evidence) {
        let mut key = (what.to_owned(), why.to_owned());
        if self.left_out.len() >= MOST && !self.left_out.contains_key(&key) {
            "other destinations".clone_into(&mut key.0);
        }
        let known = self.left_out.entry(key).or_insert(Evidence {
            count: 0,
            ..evidence
        });
        known.add(evidence);
    }

    /// The proposal, checked under the catalogue at this moment.
    pub fn finish(mut self, options: Options, catalogue: &Catalogue, now: UnixSeconds) -> Learnt {
        if let Some(least) = options.wildcards {
            self.widen(least.max(2));
        }
        let private = options.private && self.private_seen;
        // what is checked and found wanting is taken out; what is left is checked again
        loop {
            let text = text::document(&self.gathered, private, &[]);
            let complaints = self.complaints(&text, options, catalogue, now);
            if complaints.is_empty() {
                break;
            }
            for (key, why) in complaints {
                if let Some(gone) = self.gathered.remove(&key) {
                    self.leave(&text::named(&key, &gone.ports), &why, gone.evidence);
                }
            }
        }
        self.leave_unanswered(private, now);
        let left_out = self.left_out.into_iter();
        let left_out: Vec<LeftOut> = left_out
            .map(|((what, why), evidence)| LeftOut {
                what,
                why,
                evidence,
            })
            .collect();
        Learnt {
            text: text::document(&self.gathered, private, &left_out),
            entries: self.gathered.len(),
            left_out,
        }
    }

    /// Many names right below one become a wildcard, unless their parent gives names to strangers.
    fn widen(&mut self, least: usize) {
        let mut siblings: BTreeMap<(Name, Protocol, bool, String), Vec<Key>> = BTreeMap::new();
        for (key, gathered) in &self.gathered {
            let (Target::Host(name), protocol, any) = key else {
                continue;
            };
            let parent = name
                .parent()
                .filter(|parent| parent.parent().is_some() && !is_public_suffix(parent));
            if let Some(parent) = parent {
                siblings
                    .entry((parent, *protocol, *any, gathered.ports.to_string()))
                    .or_default()
                    .push(key.clone());
            }
        }
        for ((parent, protocol, any, _), keys) in siblings {
            // names with other ports stay as they are: their ports are not everybody's
            let key = (Target::Below(parent), protocol, any);
            if keys.len() < least || self.gathered.contains_key(&key) {
                continue;
            }
            let members: Vec<Gathered> = keys
                .iter()
                .filter_map(|key| self.gathered.remove(key))
                .collect();
            let mut all = members.into_iter();
            let Some(mut sum) = all.next() else { continue };
            for one in all {
                sum.evidence.add(one.evidence);
                sum.samples.extend(one.samples);
                sum.names += one.names;
            }
            self.gathered.insert(key, sum);
        }
    }

    /// Entries that would be warned about, or that do not permit what they were learnt from.
    fn complaints(
        &self,
        text: &str,
        options: Options,
        catalogue: &Catalogue,
        now: UnixSeconds,
    ) -> Vec<(Key, String)> {
        let Ok(policy) = crate::document::parse("learned", text, None) else {
            // names and addresses come from checked types, so their entries are entries
            let all = self.gathered.keys().cloned();
            return all
                .map(|key| (key, "its entry cannot be written".to_owned()))
                .collect();
        };
        let setting = Setting {
            now,
            catalogue,
            floors: &[],
        };
        let mut found = Vec::new();
        let lines: Vec<u32> = policy.allow.iter().map(|rule| rule.at.line).collect();
        let by_line: BTreeMap<u32, &Key> = lines.into_iter().zip(self.gathered.keys()).collect();
        for lint in lint::check(&policy, &setting) {
            let wanted = lint.code.is_needless() || !options.flagged;
            if let Some(key) = by_line.get(&lint.at.line).filter(|_| wanted) {
                found.push((
                    (*key).clone(),
                    format!("{}: {}", lint.code.word(), lint.message),
                ));
            }
        }
        let s = alone(policy);
        for (key, gathered) in &self.gathered {
            let denied = gathered
                .samples
                .iter()
                .map(|sample| decide(&s, sample, now));
            let denied = denied
                .into_iter()
                .find(|verdict| *verdict != Verdict::Permit);
            if let Some(verdict) = denied {
                found.push((
                    key.clone(),
                    format!("an entry alone would not permit it ({})", verdict.word()),
                ));
            }
        }
        found
    }
}

/// A policy with nothing above it.
fn alone(policy: Policy) -> Snapshot {
    Snapshot::new(
        vec![(LayerKind::Job, Arc::new(policy))],
        Arc::new(AddressBook::default()),
        Arc::new(OwnListeners::default()),
    )
}

/// Why a contact is never proposed, whatever the policy.
fn refused(contact: &Contact, options: Options) -> Option<&'static str> {
    let name = match (&contact.to, &contact.heard) {
        (Host::Name(name), _) | (Host::Address(_), Some(name)) => Some(name),
        (Host::Address(_), None) => None,
    };
    if name.is_some_and(AddressBook::is_metadata_name) {
        return Some("metadata is never proposed");
    }
    if name.and_then(special) == Some(Special::NotDns) {
        return Some("it is no name of the DNS");
    }
    if contact.failed && contact.class.is_none() {
        return Some("the record does not say whose address it has");
    }
    match class_of(contact) {
        Some(Class::Metadata | Class::Loopback | Class::Multicast | Class::Gateway) => {
            Some("no policy opens such an address")
        }
        Some(Class::Special) => Some("special addresses are not proposed"),
        _ if needs_private(contact) && !options.private => {
            Some("it is private; --private proposes it")
        }
        _ => None,
    }
}

fn class_of(contact: &Contact) -> Option<Class> {
    let address = contact.address.or(match contact.to {
        Host::Address(address) => Some(address),
        Host::Name(_) => None,
    });
    let by_table = address.map(|address| AddressBook::default().classify(address).class);
    match (by_table, contact.class) {
        // a record may say that an address is the machine's, the LAN's or the gateway's, and nothing milder
        (Some(Class::Public) | None, said) => said.or(by_table),
        (Some(Class::Private | Class::Host), Some(Class::Gateway)) => Some(Class::Gateway),
        (strict, _) => strict,
    }
}

fn needs_private(contact: &Contact) -> bool {
    let name = match (&contact.to, &contact.heard) {
        (Host::Name(name), _) | (Host::Address(_), Some(name)) => Some(name),
        (Host::Address(_), None) => None,
    };
    matches!(class_of(contact), Some(Class::Private | Class::Host))
        || name.and_then(special) == Some(Special::Local)
}

impl Target {
    fn of(contact: &Contact) -> Self {
        match (&contact.to, &contact.heard) {
            (Host::Name(name), _) | (Host::Address(_), Some(name)) => Self::Host(name.clone()),
            (Host::Address(address), None) => Self::Address(address.to_canonical()),
        }
    }

    fn pattern(&self) -> String {
        match self {
            Self::Host(name) => Pattern::Exact(name.clone()).to_string(),
            Self::Below(apex) => Pattern::Below(apex.clone()).to_string(),
            Self::Address(address) => address.to_string(),
        }
    }
}
