//! [`decide_lookup`]: whether a name may be looked up and answered at all.
//!
//! A name may be looked up if some port of some transport is left for it in all layers; else not one packet is sent for
//! it. `_service._proto.NAME` inherits NAME's permission. Ancestors of permitted names exist and hold nothing.

use super::connect::{never_names, rules_of};
use super::layer::Grant;
use super::permit::Ground;
use super::snapshot::{Layer, Snapshot};
use super::speech::Speech;
use super::{Denial, Direction, Lookup};
use crate::ids::UnixSeconds;
use crate::name::Name;
use crate::policy::{NetworkMode, Ports, Protocol, Rule, Speaks};
use crate::reason::Reason;

/// Decides whether a name may be looked up at all.
pub fn decide_lookup(s: &Snapshot, name: &Name, now: UnixSeconds) -> Lookup {
    decide(s, name, &[], now)
}

/// Decides whether a name that may be looked up may go on being so, now that it is an alias of these names.
///
/// Ask before anything is sent for the last of them. Aliases only take away: a port that is denied on one of them is
/// denied on the name, and nothing is left of a name without a port.
pub fn decide_aliases(
    s: &Snapshot,
    name: &Name,
    aliases: &[Name],
    now: UnixSeconds,
) -> Result<(), Denial> {
    match decide(s, name, aliases, now) {
        Lookup::Permit(_) => Ok(()),
        Lookup::Ancestor => Err(Denial::fixed(Reason::NameNotAllowed)),
        Lookup::Deny(denial) => Err(denial),
    }
}

fn decide(s: &Snapshot, name: &Name, aliases: &[Name], now: UnixSeconds) -> Lookup {
    if let Some(denial) = never_names(s, name, aliases) {
        return Lookup::Deny(denial);
    }
    let mut left = [(); 3].map(|()| Ports::any());
    let mut grants = Vec::with_capacity(s.layers().len());
    let mut ancestor = false;
    for layer in s.layers() {
        match judge(layer, name, aliases, now) {
            Word::Permit(grant, ports) => {
                left = [0, 1, 2].map(|i: usize| both(left.get(i), ports.get(i)));
                grants.push(grant);
            }
            Word::Ancestor => ancestor = true,
            Word::Deny(denial) => return Lookup::Deny(denial),
        }
    }
    match s.layers().last() {
        None => Lookup::Deny(Denial::fixed(Reason::NetworkNone)),
        Some(layer) if left.iter().all(Ports::is_empty) => {
            Lookup::Deny(layer.deny(Reason::PortNotAllowed, None))
        }
        Some(_) if ancestor => Lookup::Ancestor,
        Some(_) => Lookup::Permit(ground(s, name, &grants)),
    }
}

fn both(a: Option<&Ports>, b: Option<&Ports>) -> Ports {
    a.zip(b)
        .map_or_else(Ports::none, |(a, b)| a.intersection(b))
}

fn ground(s: &Snapshot, name: &Name, grants: &[Grant]) -> Ground {
    Ground {
        direction: Direction::Egress,
        name: Some(name.clone()),
        aliases: Vec::new(),
        addresses: Vec::new(),
        port: 0,
        protocol: Protocol::Tcp,
        speaks: Speaks::Any,
        class: None,
        rules: rules_of(s, grants),
        hash: s.hash(),
    }
}

/// One layer's word on a look-up: permitted for these ports (by transport), an ancestor, or denied.
enum Word {
    Permit(Grant, [Ports; 3]),
    Ancestor,
    Deny(Denial),
}

fn judge(layer: &Layer, name: &Name, aliases: &[Name], now: UnixSeconds) -> Word {
    let own = judge_one(layer, name, aliases, now);
    let Word::Deny(denial) = &own else { return own };
    if denial.reason != Reason::NameNotAllowed {
        return own;
    }
    // apt, mail and others ask `_http._tcp.NAME`: it says where NAME's service lives, so NAME's permission counts
    if let Some(base) = name.service_base()
        && let Word::Permit(grant, ports) = judge_one(layer, &base, aliases, now)
    {
        return Word::Permit(grant, ports);
    }
    let exists =
        layer.policy().network == NetworkMode::Domains && layer.index.ancestors.contains(name, now);
    if exists { Word::Ancestor } else { own }
}

fn judge_one(layer: &Layer, name: &Name, aliases: &[Name], now: UnixSeconds) -> Word {
    let network = layer.policy().network;
    if network == NetworkMode::None {
        return Word::Deny(layer.deny(Reason::NetworkNone, None));
    }
    let allows: Vec<&Rule> = layer.allows_of(name, now).collect();
    // each with the alias that it names, if it is not the name itself
    let denies: Vec<(Option<&Name>, &Rule)> = std::iter::once((None, name))
        .chain(aliases.iter().map(|alias| (Some(alias), alias)))
        .flat_map(|(alias, at)| layer.denies_of(at, now).map(move |rule| (alias, rule)))
        .collect();
    let permitted = |protocol| match network {
        NetworkMode::Internet => Ports::any(),
        NetworkMode::Domains | NetworkMode::None => ports_of(allows.iter().copied(), protocol),
    };
    let denied =
        Protocol::ALL.map(|protocol| ports_of(denies.iter().map(|(_, rule)| *rule), protocol));
    let [tcp, udp, icmp] = Protocol::ALL.map(permitted);
    let [no_tcp, no_udp, no_icmp] = &denied;
    let left = [tcp.minus(no_tcp), udp.minus(no_udp), icmp.minus(no_icmp)];
    let everything_denied = denied
        .iter()
        .all(|ports| Ports::any().minus(ports).is_empty());
    let had_some = [&tcp, &udp, &icmp].iter().any(|ports| !ports.is_empty());
    if let Some((alias, rule)) = denies.first()
        && (everything_denied || had_some && left.iter().all(Ports::is_empty))
    {
        let denial = Denial {
            note: rule.reason.clone(),
            ..layer.deny(Reason::NameDenied, Some(&rule.at))
        };
        return Word::Deny(match alias {
            Some(alias) => denial.by_alias(alias),
            None => denial,
        });
    }
    let gates = layer
        .local_name_gate(name, &allows)
        .and_then(|()| layer.local_alias_gate(aliases, now));
    if let Err(denial) = gates {
        return Word::Deny(denial);
    }
    if left.iter().all(Ports::is_empty) {
        return Word::Deny(layer.deny(Reason::NameNotAllowed, None));
    }
    let rule = allows
        .first()
        .map_or_else(|| layer.policy().network_at.clone(), |rule| rule.at.clone());
    Word::Permit(
        Grant {
            rule,
            speech: Speech::Unsaid,
        },
        left,
    )
}

fn ports_of<'a>(rules: impl Iterator<Item = &'a Rule>, protocol: Protocol) -> Ports {
    let covering = rules.filter(|rule| {
        rule.covers_protocol(protocol) && (protocol.has_ports() || rule.covers_port(0, protocol))
    });
    Ports(
        covering
            .flat_map(|rule| rule.ports.0.iter().cloned())
            .collect(),
    )
    .normalised()
}
