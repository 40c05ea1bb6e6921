//! What changes between two policies, by what they decide and not by how they are written.
//!
//! The names, addresses and ports that the two policies speak of cut everything that could be asked into finitely many
//! pieces on which both are constant ([`cells`]). One question per piece and policy gives the changes; [`words`] says
//! them. Order, spelling, comments and sets therefore never show. Where an `until` lies ahead, the pieces are asked
//! again for the time after it.
//!
//! Does not compare: reasons of denials, names and descriptions of policies, `tests:`. IPv6 forms of IPv4 addresses
//! (NAT64) follow what is said about the IPv4 ones.

mod cells;
mod state;
mod words;

#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::ids::UnixSeconds;
use crate::name::Host;
use crate::policy::{Policy, Ports, Protocol};

use cells::Cell;
use state::Side;
pub use state::State;

/// Moments ahead that are looked at: enough for every review, few enough for a file of dates.
const MOST_MOMENTS: usize = 16;

/// Whether a change lets more through, less, or something else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// More.
    Wider,
    /// Less.
    Narrower,
    /// Neither is the other's part.
    Other,
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Change {
    /// Whether it widens.
    pub effect: Effect,
    /// Destination, or the setting, in words.
    pub what: String,
    /// Ports, where it is about a destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<String>,
    /// Transport, where it is about a destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Before, in words.
    pub was: String,
    /// After, in words.
    pub is: String,
    /// From when on, if not from now on (seconds since the epoch).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// The line that permitted before (`file:line`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was_by: Option<String>,
    /// The line that permits or denies after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_by: Option<String>,
    /// The whole change as a sentence.
    pub text: String,
}

/// Everything that changes from one policy to another; empty if they decide the same.
pub fn diff(before: &Policy, after: &Policy, now: UnixSeconds) -> Vec<Change> {
    let (before, after) = (Side::new(before), Side::new(after));
    let cells = cells::of(before.policy(), after.policy());
    let mut found: Vec<Change> = Vec::new();
    for moment in moments(&before, &after, now) {
        let later = (moment != now).then_some(moment);
        for change in at(&before, &after, &cells, moment) {
            // what holds now already is not news later
            let known = found.iter().any(|known| known.is_same_change(&change));
            if !known {
                found.push(words::finish(change, later));
            }
        }
    }
    found.extend(words::settings(before.policy(), after.policy()));
    found
}

impl Change {
    fn is_same_change(&self, other: &Change) -> bool {
        (&self.what, &self.ports, self.protocol, &self.was, &self.is)
            == (
                &other.what,
                &other.ports,
                other.protocol,
                &other.was,
                &other.is,
            )
    }
}

/// Now, and every end of an entry that lies ahead.
fn moments(before: &Side, after: &Side, now: UnixSeconds) -> Vec<UnixSeconds> {
    let rules = before.policy().allow.iter().chain(&after.policy().allow);
    let mut ends: Vec<UnixSeconds> = rules
        .filter_map(|rule| rule.until)
        .filter(|end| *end > now)
        .collect();
    ends.sort_unstable();
    ends.dedup();
    ends.truncate(MOST_MOMENTS);
    ends.insert(0, now);
    ends
}

fn at(before: &Side, after: &Side, cells: &[Cell], now: UnixSeconds) -> Vec<Change> {
    let mut found = Vec::new();
    let names = [before, after].map(|side| state::permitted_names(side, cells, now));
    for cell in cells {
        for protocol in Protocol::ALL {
            let own = one(before, after, cell, protocol, now);
            let leads = own.is_empty() && matches!(cell.to, Host::Address(_));
            found.extend(own);
            if leads {
                found.extend(state::answers(before, after, cell, &names, protocol, now));
            }
        }
    }
    found
}

/// Changes of one piece, ports with the same change taken together.
fn one(
    before: &Side,
    after: &Side,
    cell: &Cell,
    protocol: Protocol,
    now: UnixSeconds,
) -> Vec<Change> {
    let mut groups: Vec<(Ports, state::Found, state::Found)> = Vec::new();
    for range in &cell.ports {
        let port = *range.start();
        let (was, is) = (
            before.ask(cell, port, protocol, now),
            after.ask(cell, port, protocol, now),
        );
        if was.state == is.state {
            continue;
        }
        let range = range.clone();
        state::group(&mut groups, range, was, is);
    }
    groups
        .into_iter()
        .map(|(ports, was, is)| {
            words::change(
                &cell.what.to_string(),
                &ports.normalised(),
                protocol,
                &was,
                &is,
            )
        })
        .collect()
}
