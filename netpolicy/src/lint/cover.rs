//! Entries that another entry of the same list makes needless.
//!
//! "Covers" is a preorder: names or addresses, ports, transport, time, how bytes are judged and which requests pass. Of
//! entries that cover each other the first one stays, so all that are warned about can go at once.

use std::collections::HashSet;

use super::effect::{place, witness};
use super::{Code, Lint, is_own};
use crate::addr::AddressBook;
use crate::decide::RuleIndex;
use crate::ids::UnixSeconds;
use crate::name::Pattern;
use crate::policy::{Place, Policy, Ports, Rule, Selector, Speaks};

/// Entries that are compared with one: a file made of one host over and over costs no more than its size times this.
const MOST_COMPARED: usize = 100;

/// Warnings about needless entries. Entries at the places in `silent` are left out on both sides.
pub(super) fn check(policy: &Policy, now: UnixSeconds, silent: &HashSet<Place>) -> Vec<Lint> {
    let mut found = list(policy, &policy.allow, silent, |wide, narrow| {
        covers_allow(wide, narrow, policy.private)
    });
    found.extend(list(policy, &policy.deny, silent, |wide, narrow| {
        covers_deny(wide, narrow, now)
    }));
    found
}

fn list(
    policy: &Policy,
    rules: &[Rule],
    silent: &HashSet<Place>,
    covers: impl Fn(&Rule, &Rule) -> bool,
) -> Vec<Lint> {
    let index = RuleIndex::new(rules);
    let heard = |rule: &Rule| !silent.contains(&rule.at);
    let mut found = Vec::new();
    for (at, rule) in rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| heard(rule) && is_own(rule, policy))
    {
        // whatever covers the entry matches any one name or address of it
        let near = match &rule.to {
            Selector::Host(pattern) => witness(pattern)
                .map(|name| index.by_name(&name))
                .unwrap_or_default(),
            Selector::Cidr(net) => index.by_address(net.network()),
        };
        let near = near.into_iter().take(MOST_COMPARED);
        let near = near.filter(|other| rules.get(*other).is_some_and(heard));
        let mut others = near.filter(|other| *other != at);
        let by = others.find_map(|other| {
            let wide = rules.get(other)?;
            let first = other < at || !is_own(wide, policy);
            (covers(wide, rule) && (first || !covers(rule, wide))).then_some(wide)
        });
        found.extend(by.map(|wide| needless(rule, wide, covers(rule, wide))));
    }
    found
}

fn needless(rule: &Rule, by: &Rule, same: bool) -> Lint {
    let by_place = place(&by.at, &rule.at);
    let (code, message) = if same {
        (
            Code::Duplicate,
            format!("the same entry stands on {by_place} already"),
        )
    } else if by.http.is_empty() && !rule.http.is_empty() {
        (
            Code::Shadowed,
            format!("`http` has no effect: {by_place} permits every request to the same host"),
        )
    } else {
        (
            Code::Shadowed,
            format!("{by_place} covers all of the entry"),
        )
    };
    Lint {
        code,
        at: rule.at.clone(),
        message,
        hint: "remove it, or narrow the other one".to_owned(),
    }
}

pub(super) fn cover_selector(wide: &Selector, narrow: &Selector) -> bool {
    match (wide, narrow) {
        (Selector::Host(wide), Selector::Host(narrow)) => wide.covers(narrow),
        (Selector::Cidr(wide), Selector::Cidr(narrow)) => wide.contains(narrow),
        (Selector::Host(_), Selector::Cidr(_)) | (Selector::Cidr(_), Selector::Host(_)) => false,
    }
}

pub(super) fn cover_ports(wide: &Ports, narrow: &Ports) -> bool {
    narrow.minus(wide).is_empty()
}

fn covers_deny(wide: &Rule, narrow: &Rule, now: UnixSeconds) -> bool {
    // the first entry that denies gives its reason to whoever asks: with words of its own it has an effect
    let same_words = narrow.reason.is_none() || narrow.reason == wide.reason;
    same_words
        && wide.in_force(now)
        && cover_selector(&wide.to, &narrow.to)
        && cover_ports(&wide.ports, &narrow.ports)
        && (wide.protocol.is_none() || wide.protocol == narrow.protocol)
}

fn covers_allow(wide: &Rule, narrow: &Rule, private: bool) -> bool {
    let lasts = match (wide.until, narrow.until) {
        (None, _) => true,
        (Some(wide), Some(narrow)) => wide >= narrow,
        (Some(_), None) => false,
    };
    let requests = wide.http.is_empty()
        || (!narrow.http.is_empty() && narrow.http.iter().all(|rule| wide.http.contains(rule)));
    lasts
        && requests
        && wide.protocol == narrow.protocol
        && cover_selector(&wide.to, &narrow.to)
        && cover_ports(&wide.ports, &narrow.ports)
        && cover_speech(wide.speaks, narrow.speaks)
        && (!private || names_as_special(&wide.to, &narrow.to))
}

/// What is written beats a default, and the stricter word counts: the wide entry alone must judge bytes as both do.
fn cover_speech(wide: Option<Speaks>, narrow: Option<Speaks>) -> bool {
    match (wide, narrow) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(wide), Some(narrow)) => {
            wide == narrow || wide == Speaks::Tls || narrow == Speaks::Any
        }
    }
}

/// A special range is opened only by a prefix that lies inside special space, so a wider one does not replace it.
fn names_as_special(wide: &Selector, narrow: &Selector) -> bool {
    let (Selector::Cidr(wide), Selector::Cidr(narrow)) = (wide, narrow) else {
        return true;
    };
    // which IPv6 ranges are special depends on the machine
    wide == narrow || (wide.network().is_ipv4() && !AddressBook::may_name_special(narrow))
}

/// The `deny` entries of a policy, found by what they cover.
pub(super) struct Denials<'a> {
    rules: &'a [Rule],
    index: RuleIndex,
}

impl<'a> Denials<'a> {
    pub(super) fn of(policy: &'a Policy) -> Self {
        Self {
            rules: &policy.deny,
            index: RuleIndex::new(&policy.deny),
        }
    }

    /// Every entry that could cover what is named, in the order of the document: whatever covers it matches any one name
    /// or address of it.
    pub(super) fn near(&self, to: &Selector) -> impl Iterator<Item = &'a Rule> + use<'a> {
        let rules = self.rules;
        let numbers = match to {
            Selector::Host(pattern) => witness(pattern).map_or_else(
                || (0..rules.len()).collect(),
                |name| self.index.by_name(&name),
            ),
            Selector::Cidr(net) => self.index.by_address(net.network()),
        };
        numbers.into_iter().filter_map(|number| rules.get(number))
    }
}

/// Whether one host pattern is denied as a whole by a list, on the ports of the web.
pub(super) fn denies_web(deny: &Denials<'_>, host: &Pattern) -> bool {
    deny.near(&Selector::Host(host.clone())).any(|rule| {
        matches!(&rule.to, Selector::Host(pattern) if pattern.covers(host))
            && rule
                .protocol
                .is_none_or(|protocol| protocol == crate::policy::Protocol::Tcp)
            && cover_ports(&rule.ports, &Ports::web())
    })
}
