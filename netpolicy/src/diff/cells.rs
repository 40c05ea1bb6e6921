//! The pieces of the world on which two policies are constant, each with a question that stands for it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;

use crate::addr::{AddressBook, Class};
use crate::decide::{RuleIndex, special};
use crate::name::{Host, Name, Pattern};
use crate::policy::{Policy, Rule, Selector};

/// One piece: names that the same patterns match, or addresses in the same prefixes and of the same class.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// What stands for it.
    pub(super) to: Host,
    /// What it is called.
    pub(super) what: What,
    /// Ranges of ports on which both policies say the same about it.
    pub(super) ports: Vec<RangeInclusive<u16>>,
}

/// What a piece is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    Exact(Name),
    Below(Name),
    OtherNames,
    Net(IpNet, Option<Class>),
    Others(Class, bool),
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let family = |v4: &bool| if *v4 { "IPv4" } else { "IPv6" };
        match self {
            Self::Exact(name) => write!(f, "{name}"),
            Self::Below(apex) => write!(f, "*.{apex}"),
            Self::OtherNames => f.write_str("every other name"),
            Self::Net(net, None) => write!(f, "{net}"),
            Self::Net(net, Some(class)) => write!(f, "{} addresses of {net}", word(*class)),
            Self::Others(class, v4) => {
                write!(f, "every other {} {} address", word(*class), family(v4))
            }
        }
    }
}

const fn word(class: Class) -> &'static str {
    match class {
        Class::Public => "public",
        Class::Private => "private",
        Class::Host => "host",
        Class::Special => "special",
        Class::Metadata => "metadata",
        Class::Loopback => "loopback",
        Class::Multicast => "multicast",
        Class::Gateway => "gateway",
    }
}

/// All pieces that two policies cut the world into.
pub(super) fn of(before: &Policy, after: &Policy) -> Vec<Cell> {
    let policies = [before, after].into_iter();
    let rules = policies.flat_map(|policy| policy.allow.iter().chain(&policy.deny));
    let rules: Vec<Rule> = rules.cloned().collect();
    let index = RuleIndex::new(&rules);
    let every = |rule: &&Rule| matches!(&rule.to, Selector::Cidr(net) if net.prefix_len() == 0);
    // a denial of every address is one of every name
    let everywhere: Vec<&Rule> = rules.iter().filter(every).collect();
    let cell = |(to, what): (Host, What)| {
        let (numbers, more) = match &to {
            Host::Name(name) => (index.by_name(name), everywhere.as_slice()),
            Host::Address(address) => (index.by_address(*address), [].as_slice()),
        };
        let own = numbers.iter().filter_map(|number| rules.get(*number));
        let ports = port_ranges(own.chain(more.iter().copied()));
        Cell { to, what, ports }
    };
    let mut pieces = names(&rules);
    pieces.extend(addresses(&rules, &index));
    pieces.into_iter().map(cell).collect()
}

/// Ports, cut where a rule begins or ends and where the default of `speaks` changes.
fn port_ranges<'a>(rules: impl Iterator<Item = &'a Rule>) -> Vec<RangeInclusive<u16>> {
    let mut starts = BTreeSet::from([1_u16, 80, 81, 443, 444]);
    for range in rules.flat_map(|rule| &rule.ports.0) {
        starts.insert(*range.start());
        starts.extend(range.end().checked_add(1));
    }
    starts.remove(&0);
    let ends = starts.iter().skip(1).map(|next| next - 1).chain([u16::MAX]);
    let pairs = starts.iter().copied().zip(ends);
    pairs.map(|(start, end)| start..=end).collect()
}

fn names(rules: &[Rule]) -> Vec<(Host, What)> {
    let patterns = rules.iter().filter_map(|rule| match &rule.to {
        Selector::Host(pattern) => Some(pattern),
        Selector::Cidr(_) => None,
    });
    let patterns: Vec<&Pattern> = patterns.collect();
    let mentioned: BTreeSet<&Name> = patterns.iter().map(|pattern| pattern.name()).collect();
    let mut cells = Vec::new();
    let exact: BTreeSet<&Name> = patterns
        .iter()
        .filter(|pattern| matches!(pattern, Pattern::Exact(_)))
        .map(|p| p.name())
        .collect();
    for name in &exact {
        cells.push((Host::Name((*name).clone()), What::Exact((*name).clone())));
    }
    let mut apexes: BTreeSet<Name> = patterns
        .iter()
        .filter(|pattern| matches!(pattern, Pattern::Below(_)))
        .map(|p| p.name().clone())
        .collect();
    // `*.arpa` holds names that are local and others that are not
    let local: Vec<Name> = apexes.iter().flat_map(special::local_below).collect();
    apexes.extend(local);
    for apex in apexes {
        if let Some(name) = fresh(&apex.to_string(), &mentioned) {
            cells.push((Host::Name(name), What::Below(apex)));
        }
    }
    let other = (0..).find_map(|n: u32| {
        fresh(&format!("elsewhere{n}"), &mentioned).filter(|name| unclaimed(name, &mentioned))
    });
    cells.extend(other.map(|name| (Host::Name(name), What::OtherNames)));
    cells
}

/// A name right below this one that no policy speaks of. `None` where none fits.
fn fresh(apex: &str, mentioned: &BTreeSet<&Name>) -> Option<Name> {
    // as many tries as there are names that could be in the way, and one
    let labels = (0..=mentioned.len()).map(|n| format!("x{n}"));
    let mut names = labels.map_while(|label| Name::parse(&format!("{label}.{apex}")).ok());
    names.find(|name| !mentioned.contains(name))
}

fn unclaimed(name: &Name, mentioned: &BTreeSet<&Name>) -> bool {
    name.parent()
        .is_none_or(|parent| !mentioned.contains(&parent))
}

fn addresses(rules: &[Rule], index: &RuleIndex) -> Vec<(Host, What)> {
    let nets: BTreeSet<IpNet> = rules
        .iter()
        .filter_map(|rule| match &rule.to {
            Selector::Cidr(net) => Some(net.trunc()),
            Selector::Host(_) => None,
        })
        .collect();
    let nets: Vec<IpNet> = nets.into_iter().collect();
    let innermost = |address: IpAddr| -> Option<IpNet> {
        let numbers = index.by_address(address).into_iter();
        let around = numbers.filter_map(|number| match rules.get(number).map(|rule| &rule.to) {
            Some(Selector::Cidr(net)) => Some(net.trunc()),
            Some(Selector::Host(_)) | None => None,
        });
        around.max_by_key(IpNet::prefix_len)
    };
    let book = AddressBook::default();
    let mut seen: Vec<(Option<IpNet>, Class, IpAddr)> = Vec::new();
    let mut known = std::collections::HashSet::new();
    for address in borders(&nets) {
        let (net, class) = (innermost(address), book.classify(address).class);
        if known.insert((net, class, address.is_ipv4())) {
            seen.push((net, class, address));
        }
    }
    let several = |net: Option<IpNet>| seen.iter().filter(|(other, ..)| *other == net).count() > 1;
    seen.iter()
        .filter(|(_, class, _)| class.reach() != crate::addr::Reach::Never)
        .map(|(net, class, address)| {
            let what = match net {
                Some(own) => What::Net(*own, several(*net).then_some(*class)),
                None => What::Others(*class, address.is_ipv4()),
            };
            (Host::Address(*address), what)
        })
        .collect()
}

/// An address on each side of every border between prefixes and between classes.
fn borders(nets: &[IpNet]) -> Vec<IpAddr> {
    let mut all: BTreeSet<IpAddr> = AddressBook::borders().collect();
    for net in nets {
        all.insert(net.network());
        all.insert(net.broadcast());
        all.extend(neighbour(net.network(), Step::Down));
        all.extend(neighbour(net.broadcast(), Step::Up));
    }
    all.into_iter().collect()
}

#[derive(Clone, Copy)]
enum Step {
    Up,
    Down,
}

fn neighbour(address: IpAddr, step: Step) -> Option<IpAddr> {
    match (address, step) {
        (IpAddr::V4(a), Step::Up) => a
            .to_bits()
            .checked_add(1)
            .map(|bits| IpAddr::V4(bits.into())),
        (IpAddr::V4(a), Step::Down) => a
            .to_bits()
            .checked_sub(1)
            .map(|bits| IpAddr::V4(bits.into())),
        (IpAddr::V6(a), Step::Up) => a
            .to_bits()
            .checked_add(1)
            .map(|bits| IpAddr::V6(bits.into())),
        (IpAddr::V6(a), Step::Down) => a
            .to_bits()
            .checked_sub(1)
            .map(|bits| IpAddr::V6(bits.into())),
    }
}
