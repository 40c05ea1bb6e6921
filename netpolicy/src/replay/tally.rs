//! Counts contacts by destination and by what became of them, with a few examples of each.

use std::collections::HashMap;

use serde::Serialize;

use super::{Contact, Verdict, decide};
use crate::decide::Snapshot;
use crate::ids::UnixSeconds;
use crate::name::Host;
use crate::policy::Protocol;

/// Destinations that are told apart; a record of more counts the rest together.
const MOST_GROUPS: usize = 50_000;
/// Examples of one group.
const EXAMPLES: usize = 3;

/// Where a contact stands in the record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Example {
    /// File and line, or segment and line.
    pub place: String,
    /// Seconds since the epoch.
    pub t: i64,
    /// Network.
    pub network: String,
}

/// Contacts with one destination that were and are decided alike.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Group {
    /// Name or address.
    pub to: String,
    /// Port; `None` is a question about a name.
    pub port: Option<u16>,
    /// Transport.
    pub protocol: Protocol,
    /// Before, in short.
    pub was: String,
    /// Now, in short.
    pub is: String,
    /// How many.
    pub count: u64,
    /// The first few.
    pub examples: Vec<Example>,
}

/// What a replay came to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// Denied in the record, permitted now.
    pub newly_permitted: Vec<Group>,
    /// Permitted in the record, denied now.
    pub newly_denied: Vec<Group>,
    /// A person would be asked now, and was not then.
    pub newly_asked: Vec<Group>,
    /// The record does not hold what decides these.
    pub undecided: Vec<Group>,
    /// Contacts decided as before.
    pub same: u64,
    /// Contacts that change and are not listed: the record names more destinations than are told apart.
    pub unlisted: u64,
}

impl Report {
    /// Whether the policy decides everything as it was recorded.
    pub fn is_same(&self) -> bool {
        self.newly_permitted.is_empty()
            && self.newly_denied.is_empty()
            && self.newly_asked.is_empty()
            && self.unlisted == 0
    }
}

type Key = (Host, Option<u16>, Protocol, Verdict, Verdict);

/// A replay in progress.
#[derive(Debug)]
pub struct Replay {
    snapshot: Snapshot,
    now: UnixSeconds,
    groups: HashMap<Key, (u64, Vec<Example>)>,
    same: u64,
    unlisted: u64,
}

impl Replay {
    /// Under these layers, at this moment.
    pub fn new(snapshot: Snapshot, now: UnixSeconds) -> Self {
        Self {
            snapshot,
            now,
            groups: HashMap::new(),
            same: 0,
            unlisted: 0,
        }
    }

    /// Counts one contact.
    pub fn add(&mut self, contact: &Contact, count: u64, example: Example) {
        let is = decide(&self.snapshot, contact, self.now);
        let changed = match (contact.was, is) {
            // another reason is no other decision
            (Verdict::Deny(_), Verdict::Deny(_)) => false,
            (was, is) => was != is,
        };
        if !changed {
            self.same += count;
            return;
        }
        let key = (
            contact.to.clone(),
            contact.port,
            contact.protocol,
            contact.was,
            is,
        );
        if self.groups.len() >= MOST_GROUPS && !self.groups.contains_key(&key) {
            self.unlisted += count;
            return;
        }
        let (total, examples) = self.groups.entry(key).or_default();
        *total += count;
        if examples.len() < EXAMPLES {
            examples.push(example);
        }
    }

    /// What it came to, most frequent first.
    pub fn finish(self) -> Report {
        let mut report = Report {
            same: self.same,
            unlisted: self.unlisted,
            ..Report::default()
        };
        for ((to, port, protocol, was, is), (count, examples)) in self.groups {
            let group = Group {
                to: to.to_string(),
                port,
                protocol,
                was: was.word(),
                is: is.word(),
                count,
                examples,
            };
            match is {
                Verdict::Permit => report.newly_permitted.push(group),
                Verdict::Deny(_) => report.newly_denied.push(group),
                Verdict::Ask => report.newly_asked.push(group),
                Verdict::Undecided => report.undecided.push(group),
            }
        }
        let lists = [
            &mut report.newly_permitted,
            &mut report.newly_denied,
            &mut report.newly_asked,
            &mut report.undecided,
        ];
        for list in lists {
            list.sort_by(|a, b| {
                (b.count, &a.to, a.port, &a.was).cmp(&(a.count, &b.to, b.port, &b.was))
            });
        }
        report
    }
}
