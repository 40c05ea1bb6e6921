//! What one policy says about one piece.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::cells::Cell;
use super::{Change, words};
use crate::addr::AddressBook;
use crate::decide::{
    Connect, Destination, Direction, Intent, LayerKind, OwnListeners, Snapshot, decide_connect,
};
use crate::explain::{Outcome, Question, outcome_of};
use crate::ids::UnixSeconds;
use crate::name::{Host, Name};
use crate::policy::{Place, Policy, Ports, Protocol, Speaks};

/// What becomes of a piece under one policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// It does not pass.
    Deny,
    /// A person is asked.
    Ask,
    /// It passes.
    Permit {
        /// How bytes are judged; `None` is the default of the port.
        speaks: Option<Speaks>,
        /// Methods and paths that pass; `None` is all of them.
        requests: Option<BTreeSet<(String, String)>>,
    },
}

/// A state and the line that made it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) state: State,
    pub(super) by: Option<Place>,
    /// The mode alone permits, so nothing was written about bytes.
    by_mode: bool,
}

impl Found {
    fn new(state: State, by: Option<Place>) -> Self {
        Self {
            state,
            by,
            by_mode: false,
        }
    }

    /// The state as it is told beside a denial, where the mode's word on bytes is the usual one.
    fn beside_denial(mut self) -> Self {
        if let State::Permit { speaks, .. } = &mut self.state
            && self.by_mode
        {
            *speaks = None;
        }
        self
    }
}

/// One of the two policies, ready to be asked.
pub(super) struct Side {
    policy: Arc<Policy>,
    snapshot: Snapshot,
}

impl Side {
    pub(super) fn new(policy: &Policy) -> Self {
        let policy = Arc::new(policy.clone());
        let layers = vec![(LayerKind::Job, policy.clone())];
        let (book, own) = (
            Arc::new(AddressBook::default()),
            Arc::new(OwnListeners::default()),
        );
        Self {
            policy,
            snapshot: Snapshot::new(layers, book, own),
        }
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(super) fn ask(
        &self,
        cell: &Cell,
        port: u16,
        protocol: Protocol,
        now: UnixSeconds,
    ) -> Found {
        let to = cell.to.clone();
        match outcome_of(&self.snapshot, &Question::new(to, port, protocol), now) {
            Outcome::Deny(denial) => Found::new(State::Deny, denial.rule),
            Outcome::Ask(denial) => Found::new(State::Ask, denial.rule),
            Outcome::Permit(ground) => {
                let by = ground.rules().last().map(|(.., at)| at.clone());
                let usual = Speaks::default_for(port, protocol);
                let state = State::Permit {
                    speaks: Some(ground.speaks()).filter(|speaks| *speaks != usual),
                    requests: self.requests(cell, port, protocol, now),
                };
                Found {
                    state,
                    by_mode: by.as_ref() == Some(&self.policy.network_at),
                    by,
                }
            }
        }
    }

    /// Methods and paths that pass, where every entry for the name says some.
    fn requests(
        &self,
        cell: &Cell,
        port: u16,
        protocol: Protocol,
        now: UnixSeconds,
    ) -> Option<BTreeSet<(String, String)>> {
        let Host::Name(name) = &cell.to else {
            return None;
        };
        let layers = self.snapshot.layers().iter();
        let rules = layers
            .flat_map(|layer| layer.allows_of(name, now))
            .filter(|rule| rule.applies(port, protocol, now));
        let mut all = BTreeSet::new();
        for rule in rules {
            if rule.http.is_empty() {
                return None;
            }
            all.extend(rule.http.iter().flat_map(pairs));
        }
        (!all.is_empty()).then_some(all)
    }

    /// Whether a flow to a permitted name that leads to this address passes.
    fn leads(
        &self,
        name: &Name,
        address: IpAddr,
        port: u16,
        protocol: Protocol,
        now: UnixSeconds,
    ) -> Found {
        let to = Destination::Name {
            name: name.clone(),
            answers: Some(vec![address].into()),
        };
        let intent = Intent {
            direction: Direction::Egress,
            protocol,
            port,
            to,
        };
        match decide_connect(&self.snapshot, &intent, now) {
            Connect::Dial(permit) => {
                let by = permit.ground().rules().last().map(|(.., at)| at.clone());
                let (speaks, requests) = (None, None);
                Found::new(State::Permit { speaks, requests }, by)
            }
            Connect::Deny(denial) => Found::new(State::Deny, denial.rule),
            Connect::LookUp(_) | Connect::Hear(_) => Found::new(State::Deny, None),
        }
    }
}

/// An http entry as pairs, with `*` and `/**` for what is left out.
fn pairs(rule: &crate::policy::HttpRule) -> Vec<(String, String)> {
    let or = |list: &[String], all: &str| {
        if list.is_empty() {
            vec![all.to_owned()]
        } else {
            list.to_vec()
        }
    };
    let paths = or(&rule.paths, "/**");
    let methods = or(&rule.methods, "*").into_iter();
    methods
        .flat_map(|method| paths.iter().map(move |path| (method.clone(), path.clone())))
        .collect()
}

/// Names that a policy permits, each with its ports: who asks where permitted names may lead needs one.
pub(super) fn permitted_names(
    side: &Side,
    cells: &[Cell],
    now: UnixSeconds,
) -> Vec<(Name, Protocol, Ports)> {
    let mut found: Vec<(Name, Protocol, Ports)> = Vec::new();
    for cell in cells {
        let Host::Name(name) = &cell.to else {
            continue;
        };
        for protocol in Protocol::ALL {
            let covered = found.iter().filter(|(_, other, _)| *other == protocol);
            let covered = covered.fold(Ports::none(), |all, (.., ports)| all.union(ports));
            let permitted = |range: &std::ops::RangeInclusive<u16>| {
                matches!(
                    side.ask(cell, *range.start(), protocol, now).state,
                    State::Permit { .. }
                )
            };
            let own = cell
                .ports
                .iter()
                .filter(|range| permitted(range))
                .cloned()
                .collect();
            let new = Ports(own).minus(&covered);
            if !new.is_empty() {
                found.push((name.clone(), protocol, new));
            }
        }
    }
    found
}

/// Changes of where permitted names may lead: to this piece of addresses.
pub(super) fn answers(
    before: &Side,
    after: &Side,
    cell: &Cell,
    names: &[Vec<(Name, Protocol, Ports)>; 2],
    protocol: Protocol,
    now: UnixSeconds,
) -> Vec<Change> {
    let Host::Address(address) = &cell.to else {
        return Vec::new();
    };
    let [was_names, is_names] = names;
    let named = |names: &[(Name, Protocol, Ports)], port: u16| {
        let fits = |(_, other, ports): &&(Name, Protocol, Ports)| {
            *other == protocol && ports.contains(port)
        };
        names.iter().find(fits).map(|(name, ..)| name.clone())
    };
    let mut groups: Vec<(Ports, Found, Found)> = Vec::new();
    let borders = was_names
        .iter()
        .chain(is_names)
        .filter(|(_, other, _)| *other == protocol);
    let borders: Vec<u16> = borders
        .flat_map(|(.., ports)| ports.0.iter().map(|range| *range.start()))
        .collect();
    for range in split(cell.ports.clone(), &borders) {
        let port = *range.start();
        let (Some(a), Some(b)) = (named(was_names, port), named(is_names, port)) else {
            continue;
        };
        let was = before.leads(&a, *address, port, protocol, now);
        let is = after.leads(&b, *address, port, protocol, now);
        if was.state == is.state {
            continue;
        }
        group(&mut groups, range, was, is);
    }
    let what = format!("permitted names that lead to {}", cell.what);
    groups
        .into_iter()
        .map(|(ports, was, is)| words::change(&what, &ports.normalised(), protocol, &was, &is))
        .collect()
}

/// The same ranges, cut where another list begins.
fn split(
    ranges: Vec<std::ops::RangeInclusive<u16>>,
    at: &[u16],
) -> Vec<std::ops::RangeInclusive<u16>> {
    let mut out = Vec::new();
    for range in ranges {
        let mut cuts: BTreeSet<u16> = at
            .iter()
            .copied()
            .filter(|cut| range.contains(cut))
            .collect();
        cuts.insert(*range.start());
        let ends = cuts
            .iter()
            .skip(1)
            .map(|next| next - 1)
            .chain([*range.end()]);
        out.extend(
            cuts.iter()
                .copied()
                .zip(ends)
                .map(|(start, end)| start..=end),
        );
    }
    out
}

/// Adds a range of ports to those with the same change.
pub(super) fn group(
    groups: &mut Vec<(Ports, Found, Found)>,
    range: std::ops::RangeInclusive<u16>,
    was: Found,
    is: Found,
) {
    let both = [&was, &is].map(|found| matches!(found.state, State::Permit { .. }));
    let (was, is) = if both == [true, true] {
        (was, is)
    } else {
        (was.beside_denial(), is.beside_denial())
    };
    let effect = words::effect(&was.state, &is.state, *range.start());
    let same = |(ports, w, i): &&mut (Ports, Found, Found)| {
        let port = ports.0.first().map_or(0, |first| *first.start());
        w.state == was.state
            && i.state == is.state
            && words::effect(&w.state, &i.state, port) == effect
    };
    match groups.iter_mut().find(same) {
        Some((ports, ..)) => ports.0.push(range),
        None => groups.push((Ports(vec![range]), was, is)),
    }
}
