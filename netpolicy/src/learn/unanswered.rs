//! What was permitted and did not answer: evidence for an entry that permits it, or left out.

use std::net::IpAddr;

use super::{Evidence, Gathered, Learner, MOST, Target, alone, text};
use crate::addr::Class;
use crate::decide::Snapshot;
use crate::ids::UnixSeconds;
use crate::policy::Protocol;
use crate::replay::{Contact, Verdict, decide};

/// Why what was permitted and never answered is left out.
pub(super) const UNANSWERED: &str = "it never answered; --failed proposes it";

/// What did not answer: target, transport, port, and the address of it with what the record says of that.
pub(super) type Unanswered = (Target, Protocol, u16, Option<IpAddr>, Option<Class>);

/// All contacts that did not answer alike.
#[derive(Clone, Debug)]
pub(super) struct Missed {
    what: String,
    evidence: Evidence,
    sample: Contact,
}

impl Learner {
    /// Notes a destination that did not answer; it may yet.
    pub(super) fn miss(
        &mut self,
        key: Unanswered,
        what: String,
        contact: &Contact,
        evidence: Evidence,
    ) {
        if self.unanswered.len() >= MOST && !self.unanswered.contains_key(&key) {
            return self.leave("other destinations", UNANSWERED, evidence);
        }
        let known = self.unanswered.entry(key).or_insert_with(|| Missed {
            what,
            evidence: Evidence {
                count: 0,
                ..evidence
            },
            sample: Contact {
                failed: false,
                ..contact.clone()
            },
        });
        known.evidence.add(evidence);
    }

    /// What never answered is left out; what did at other times is evidence for its entry, if that permits it.
    pub(super) fn leave_unanswered(&mut self, private: bool, now: UnixSeconds) {
        let text = text::document(&self.gathered, private, &[]);
        let proposed = crate::document::parse("learned", &text, None).map(alone);
        for ((target, protocol, port, ..), missed) in std::mem::take(&mut self.unanswered) {
            let permitted = |s: &Snapshot| decide(s, &missed.sample, now) == Verdict::Permit;
            let entry = proposed
                .as_ref()
                .is_ok_and(permitted)
                .then(|| self.entry_for(&target, protocol, port))
                .flatten();
            match entry {
                Some(entry) => entry.evidence.add(missed.evidence),
                None => self.leave(&missed.what, UNANSWERED, missed.evidence),
            }
        }
    }

    /// The entry that names a target or the names beside it.
    fn entry_for(
        &mut self,
        target: &Target,
        protocol: Protocol,
        port: u16,
    ) -> Option<&mut Gathered> {
        let parent = match target {
            Target::Host(name) => name.parent().map(Target::Below),
            Target::Below(_) | Target::Address(_) => None,
        };
        let keys = [Some(target.clone()), parent];
        let keys = keys.into_iter().flatten();
        let mut kinds = keys.flat_map(|key| [false, true].map(|any| (key.clone(), protocol, any)));
        let covers = |one: &Gathered| !protocol.has_ports() || one.ports.contains(port);
        let key = kinds.find(|key| self.gathered.get(key).is_some_and(covers))?;
        self.gathered.get_mut(&key)
    }
}
