//! What makes one decision cheap: rules of one policy, found by name, by address and by port.
//!
//! Built once for each policy and shared by every snapshot that holds it. An index only narrows down which rules are
//! looked at; whether a rule permits or denies is always read from the rule itself.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::ids::UnixSeconds;
use crate::name::{Name, Pattern, PatternIndex};
use crate::policy::{Protocol, Rule, Selector, Speaks};

/// Number of a rule in its list.
type RuleNumber = usize;

/// The transports that have ports, in the order of [`RuleIndex`]'s covers.
const PORTED: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];

/// Rules by what they name.
#[derive(Debug, Default)]
pub(crate) struct RuleIndex {
    names: PatternIndex<RuleNumber>,
    nets: NetIndex,
    /// Of the transports that have ports; an echo carries no name that could be heard.
    host_ports: [PortCover; 2],
    /// Of rules that name requests.
    request_ports: [PortCover; 2],
}

impl RuleIndex {
    /// Indexes a list of rules.
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let mut index = Self::default();
        let mut nets = Vec::new();
        for (number, rule) in rules.iter().enumerate() {
            match &rule.to {
                Selector::Host(pattern) => index.names.insert(pattern, number),
                Selector::Cidr(net) => nets.push((*net, number)),
            }
        }
        index.nets = NetIndex::new(nets);
        let hosts = || rules.iter().filter(|r| matches!(r.to, Selector::Host(_)));
        index.host_ports = PORTED.map(|protocol| PortCover::new(hosts(), protocol));
        let requests = || rules.iter().filter(|r| !r.http.is_empty());
        index.request_ports = PORTED.map(|protocol| PortCover::new(requests(), protocol));
        index
    }

    /// Numbers of the host rules whose pattern matches the name, in order of the document.
    pub(crate) fn by_name(&self, name: &Name) -> Vec<RuleNumber> {
        let mut found: Vec<RuleNumber> = self.names.matches(name).copied().collect();
        found.sort_unstable();
        found
    }

    /// Numbers of the `cidr` rules that hold the address, in order of the document.
    pub(crate) fn by_address(&self, address: IpAddr) -> Vec<RuleNumber> {
        self.nets.holding(address)
    }

    /// How a flow to this port could be judged by some host rule; `None` if no host rule could apply to it.
    pub(super) fn host_could_apply(
        &self,
        port: u16,
        protocol: Protocol,
        now: UnixSeconds,
    ) -> Option<Speaks> {
        cover(&self.host_ports, protocol)?.at(port, now)
    }

    /// Whether some rule that names requests could apply to a flow to this port.
    pub(super) fn names_requests(&self, port: u16, protocol: Protocol, now: UnixSeconds) -> bool {
        cover(&self.request_ports, protocol).is_some_and(|cover| cover.at(port, now).is_some())
    }
}

fn cover([tcp, udp]: &[PortCover; 2], protocol: Protocol) -> Option<&PortCover> {
    match protocol {
        Protocol::Tcp => Some(tcp),
        Protocol::Udp => Some(udp),
        Protocol::Icmp => None,
    }
}

/// Prefixes as a forest: every prefix knows the next wider one that holds it.
///
/// Two prefixes are nested or apart, so the prefix with the greatest start at or before an address, together with its
/// ancestors, are the only candidates.
#[derive(Debug, Default)]
struct NetIndex {
    nodes: Vec<NetNode>,
}

#[derive(Debug)]
struct NetNode {
    net: IpNet,
    parent: Option<usize>,
    rules: Vec<RuleNumber>,
}

impl NetIndex {
    fn new(mut nets: Vec<(IpNet, RuleNumber)>) -> Self {
        nets.sort_unstable_by_key(|(net, number)| (net.network(), net.prefix_len(), *number));
        let mut nodes: Vec<NetNode> = Vec::with_capacity(nets.len());
        let mut open: Vec<usize> = Vec::new();
        for (net, number) in nets {
            if let Some(last) = nodes.last_mut()
                && last.net == net
            {
                last.rules.push(number);
                continue;
            }
            while let Some(top) = open.last() {
                if nodes.get(*top).is_some_and(|node| node.net.contains(&net)) {
                    break;
                }
                open.pop();
            }
            let parent = open.last().copied();
            open.push(nodes.len());
            nodes.push(NetNode {
                net,
                parent,
                rules: vec![number],
            });
        }
        Self { nodes }
    }

    fn holding(&self, address: IpAddr) -> Vec<RuleNumber> {
        let mut found = Vec::new();
        let mut next = self
            .nodes
            .partition_point(|node| node.net.network() <= address)
            .checked_sub(1);
        while let Some(node) = next.and_then(|at| self.nodes.get(at)) {
            if node.net.contains(&address) {
                found.extend(&node.rules);
            }
            next = node.parent;
        }
        found.sort_unstable();
        found
    }
}

/// For one transport: which ports some of these rules cover, how their bytes are judged, and until when.
#[derive(Debug, Default)]
struct PortCover {
    /// Sorted by start; each stretch ends where the next one starts.
    stretches: Vec<Stretch>,
}

#[derive(Debug)]
struct Stretch {
    start: u32,
    /// Last moment of the rules that judge as TLS, HTTP, anything; `i64::MAX` for rules without an end.
    ends: [Option<i64>; 3],
}

const KINDS: [Speaks; 3] = [Speaks::Tls, Speaks::Http, Speaks::Any];

impl PortCover {
    /// Sweeps over the ports once, keeping for each kind the multiset of ends of the open ranges.
    fn new<'a>(rules: impl Iterator<Item = &'a Rule>, protocol: Protocol) -> Self {
        let mut edges: Vec<(u32, bool, usize, i64)> = Vec::new();
        for rule in rules.filter(|r| r.covers_protocol(protocol)) {
            let end = rule.until.map_or(i64::MAX, |until| until.0);
            for range in rule.ports.normalised().0 {
                for (first, last) in split_at_defaults(rule, protocol, *range.start(), *range.end())
                {
                    let kind = kind_of(rule.speaks_on(first, protocol));
                    edges.push((u32::from(first), true, kind, end));
                    edges.push((u32::from(last) + 1, false, kind, end));
                }
            }
        }
        edges.sort_unstable();
        let mut open: [std::collections::BTreeMap<i64, usize>; 3] = Default::default();
        let mut stretches: Vec<Stretch> = Vec::new();
        for (at, opens, kind, end) in edges {
            if let Some(ends) = open.get_mut(kind) {
                let count = ends.entry(end).or_default();
                *count = if opens {
                    *count + 1
                } else {
                    count.saturating_sub(1)
                };
                if *count == 0 {
                    ends.remove(&end);
                }
            }
            let ends = [0, 1, 2].map(|kind: usize| {
                open.get(kind)
                    .and_then(|e| e.last_key_value())
                    .map(|(end, _)| *end)
            });
            match stretches.last_mut() {
                Some(last) if last.start == at => last.ends = ends,
                Some(last) if last.ends == ends => {}
                _ => stretches.push(Stretch { start: at, ends }),
            }
        }
        Self { stretches }
    }

    fn at(&self, port: u16, now: UnixSeconds) -> Option<Speaks> {
        let after = self
            .stretches
            .partition_point(|stretch| stretch.start <= u32::from(port));
        let stretch = self.stretches.get(after.checked_sub(1)?)?;
        let live = |kind: usize| {
            stretch
                .ends
                .get(kind)
                .copied()
                .flatten()
                .is_some_and(|end| now.0 < end)
        };
        match (live(0), live(1), live(2)) {
            (false, false, false) => None,
            (true, false, false) => Some(Speaks::Tls),
            (false, true, false) => Some(Speaks::Http),
            _ => Some(Speaks::Any),
        }
    }
}

fn kind_of(speaks: Speaks) -> usize {
    KINDS.iter().position(|kind| *kind == speaks).unwrap_or(2)
}

/// Cuts a range where the default of `speaks` changes; a rule that says `speaks` needs no cut.
fn split_at_defaults(rule: &Rule, protocol: Protocol, start: u16, end: u16) -> Vec<(u16, u16)> {
    let mut cuts = vec![start];
    if rule.speaks.is_none() && protocol == Protocol::Tcp {
        cuts.extend(
            [80, 81, 443, 444]
                .into_iter()
                .filter(|cut| start < *cut && *cut <= end),
        );
    }
    let lasts: Vec<u16> = cuts
        .iter()
        .skip(1)
        .map(|cut| cut - 1)
        .chain([end])
        .collect();
    cuts.into_iter().zip(lasts).collect()
}

/// Ancestors of the names that `allow` permits: they exist and hold nothing.
#[derive(Debug, Default)]
pub(super) struct Ancestors {
    ends: HashMap<Box<str>, i64>,
}

impl Ancestors {
    /// Collects every strict ancestor of every permitted name, with the last moment at which it is one.
    pub(super) fn new(rules: &[Rule]) -> Self {
        let mut ends: HashMap<Box<str>, i64> = HashMap::new();
        for rule in rules {
            let end = rule.until.map_or(i64::MAX, |until| until.0);
            let Selector::Host(pattern) = &rule.to else {
                continue;
            };
            let (name, itself) = match pattern {
                Pattern::Exact(name) => (name.as_str(), false),
                Pattern::Below(apex) => (apex.as_str(), true),
            };
            let above = name
                .match_indices('.')
                .filter_map(|(dot, _)| name.get(dot + 1..));
            for ancestor in itself.then_some(name).into_iter().chain(above) {
                let known = ends.entry(ancestor.into()).or_insert(end);
                *known = (*known).max(end);
            }
        }
        Self { ends }
    }

    pub(super) fn contains(&self, name: &Name, now: UnixSeconds) -> bool {
        self.ends.get(name.as_str()).is_some_and(|end| now.0 < *end)
    }
}
