//! [`decide_connect`]: whether, and to which addresses, a flow may be dialled.
//!
//! A name is judged by the rules that name it and then by all its addresses; a bare address by `cidr` rules and classes,
//! or, where only a name can tell, by the name that its first bytes carry. What was checked is what the permit holds.

use std::net::IpAddr;

use super::address::to_address;
use super::layer::{Ask, Classed, Grant};
use super::permit::{DialPermit, Ground};
use super::snapshot::{Layer, LayerKind, Snapshot};
use super::speech::{Speech, both};
use super::{Answers, Connect, Denial, Destination, Direction, Intent};
use crate::addr::{AddressBook, Class};
use crate::ids::UnixSeconds;
use crate::name::Name;
use crate::policy::{Protocol, Speaks};
use crate::reason::Reason;

/// What the note of a denial says about Sallyport's own listeners.
const OWN: &str = "this is Sallyport's own listener; no policy opens it";

/// Decides whether (and to which addresses) a flow may be dialled.
pub fn decide_connect(s: &Snapshot, intent: &Intent, now: UnixSeconds) -> Connect {
    let ask = Ask {
        port: intent.port,
        protocol: intent.protocol,
        now,
    };
    let outcome = match (intent.direction, &intent.to) {
        (Direction::Ingress, Destination::Address { address, .. }) => ingress(s, *address, ask),
        // the gateway reaches into a sandbox by address only: a name could lead elsewhere
        (Direction::Ingress, Destination::Name { .. }) => {
            Err(Denial::fixed(Reason::AddressNotAllowed))
        }
        (Direction::Egress, Destination::Name { name, answers }) => {
            to_name(s, name, answers.as_ref(), ask)
        }
        (
            Direction::Egress,
            Destination::Address {
                address,
                bound,
                heard,
            },
        ) => {
            let place = Classed::new(s.book(), *address);
            never(s, &place, ask).map_or_else(|| to_address(s, &place, bound, heard, ask), Err)
        }
    };
    outcome.unwrap_or_else(Connect::Deny)
}

/// The same about an address of the gateway's pools that stands for no name in this network. The pools are the
/// gateway's, but what a sandbox needs to know is that its lease is not there.
pub fn decide_unleased(s: &Snapshot, intent: &Intent, now: UnixSeconds) -> Connect {
    match decide_connect(s, intent, now) {
        Connect::Deny(denial) if denial.reason == Reason::AddressGateway => Connect::Deny(Denial {
            reason: Reason::LeaseUnknown,
            ..denial
        }),
        decided => decided,
    }
}

/// A denial that holds under every policy: metadata, loopback, multicast, the gateway, own listeners.
fn never(s: &Snapshot, place: &Classed, ask: Ask) -> Option<Denial> {
    let reason = match place.class() {
        Class::Metadata => Reason::AddressMetadata,
        Class::Loopback => Reason::AddressLoopback,
        Class::Multicast => Reason::AddressMulticast,
        Class::Gateway => Reason::AddressGateway,
        Class::Host if s.own().ports.contains(&ask.port) => {
            return Some(
                Denial::fixed(Reason::AddressHost)
                    .of_class(Class::Host)
                    .noted(OWN),
            );
        }
        Class::Host | Class::Public | Class::Private | Class::Special => return None,
    };
    Some(Denial::fixed(reason).of_class(place.class()))
}

/// A name that is refused under every policy. Shared with look-ups, so that nothing is ever asked for it.
pub(super) fn never_name(s: &Snapshot, name: &Name) -> Option<Denial> {
    if AddressBook::is_metadata_name(name) {
        return Some(Denial::fixed(Reason::AddressMetadata).of_class(Class::Metadata));
    }
    s.own()
        .names
        .contains(name)
        .then(|| Denial::fixed(Reason::NameDenied).noted(OWN))
}

/// The same for a name and everything that it is an alias of.
pub(super) fn never_names(s: &Snapshot, name: &Name, aliases: &[Name]) -> Option<Denial> {
    never_name(s, name).or_else(|| {
        aliases
            .iter()
            .find_map(|alias| Some(never_name(s, alias)?.by_alias(alias)))
    })
}

/// Without any layer there is nobody who permits.
pub(super) fn no_layers() -> Denial {
    Denial::fixed(Reason::NetworkNone)
}

pub(super) fn to_name(
    s: &Snapshot,
    name: &Name,
    answers: Option<&Answers>,
    ask: Ask,
) -> Result<Connect, Denial> {
    let aliases = answers.map_or(&[][..], |answers| &answers.aliases);
    if let Some(denial) = never_names(s, name, aliases) {
        return Err(denial);
    }
    let grants = s
        .layers()
        .iter()
        .map(|layer| layer.judge_name(name, aliases, ask))
        .collect::<Result<Vec<_>, _>>()?;
    let Some(answers) = answers else {
        return if grants.is_empty() {
            Err(no_layers())
        } else {
            Ok(Connect::LookUp(name.clone()))
        };
    };
    if answers.addresses.is_empty() {
        return Err(Denial::fixed(Reason::NameUnresolvable));
    }
    let places: Vec<Classed> = answers
        .addresses
        .iter()
        .map(|address| Classed::new(s.book(), *address))
        .collect();
    // what is never reachable is reported before any layer's opinion on another answer
    for place in &places {
        if let Some(denial) = never(s, place, ask) {
            return Err(Denial {
                reason: Reason::NameResolvesToForbidden,
                ..denial
            });
        }
    }
    let mut granted = Vec::with_capacity(grants.len());
    for (layer, grant) in s.layers().iter().zip(grants) {
        granted.push(judge_answers(s, layer, grant, &places, ask)?);
    }
    let ground = make_ground(s, Some(name), &places, &granted, ask)?;
    Ok(Connect::Dial(DialPermit {
        ground: Ground {
            aliases: aliases.to_vec(),
            ..ground
        },
    }))
}

/// The ground that a flow to a name would have if all its addresses are acceptable. For explanations: nothing can be
/// dialled with it, and a denial of every address is seen.
pub(crate) fn presume(
    s: &Snapshot,
    name: &Name,
    port: u16,
    protocol: Protocol,
    now: UnixSeconds,
) -> Result<Ground, Denial> {
    let ask = Ask {
        port,
        protocol,
        now,
    };
    if let Some(denial) = never_name(s, name) {
        return Err(denial);
    }
    let grants = s
        .layers()
        .iter()
        .map(|layer| layer.judge_name(name, &[], ask))
        .collect::<Result<Vec<_>, _>>()?;
    // one layer may close one family and another the other: nothing is left all the same
    let closed = |family: IpAddr| {
        let mut layers = s.layers().iter();
        layers.find_map(|layer| layer.denies_all_like(family, ask))
    };
    let (v4, v6) = (IpAddr::from([0; 4]), IpAddr::from([0; 16]));
    match closed(v6).and_then(|_| closed(v4)) {
        Some(denial) => Err(denial),
        None => make_ground(s, Some(name), &[], &grants, ask),
    }
}

/// All answers of a permitted name in one layer; `cidr` entries may still say how bytes are judged.
fn judge_answers(
    s: &Snapshot,
    layer: &Layer,
    grant: Grant,
    places: &[Classed],
    ask: Ask,
) -> Result<Grant, Denial> {
    for place in places {
        if let Some(denial) = layer.address_denial(place, ask) {
            return Err(denial);
        }
        if layer.class_gate(place, ask, s.book()).is_err() {
            return Err(layer
                .deny(Reason::NameResolvesToForbidden, Some(&grant.rule))
                .of_class(place.class()));
        }
    }
    let unsaid = grant.speech == Speech::Unsaid;
    let nets = places
        .iter()
        .filter(|_| unsaid)
        .filter_map(|place| layer.net_grant(place.address, ask));
    Ok(nets.fold(grant, |grant, net| Grant {
        speech: grant.speech.within_layer(net.speech),
        ..grant
    }))
}

/// The permit for what all layers grant.
pub(super) fn dial(
    s: &Snapshot,
    name: Option<&Name>,
    places: &[Classed],
    grants: &[Grant],
    ask: Ask,
) -> Result<Connect, Denial> {
    make_ground(s, name, places, grants, ask).map(|ground| Connect::Dial(DialPermit { ground }))
}

/// All layers permit: what they say about bytes is combined.
fn make_ground(
    s: &Snapshot,
    name: Option<&Name>,
    places: &[Classed],
    grants: &[Grant],
    ask: Ask,
) -> Result<Ground, Denial> {
    let mut speaks = Speaks::Any;
    for (layer, grant) in s.layers().iter().zip(grants) {
        let wanted = grant.speech.speaks().unwrap_or(Speaks::Any);
        speaks = both(speaks, wanted)
            .ok_or_else(|| layer.deny(Reason::ProtocolNotAllowed, Some(&grant.rule)))?;
    }
    if grants.is_empty() || grants.len() != s.layers().len() {
        return Err(no_layers());
    }
    let mut addresses: Vec<IpAddr> = Vec::with_capacity(places.len());
    for place in places {
        if !addresses.contains(&place.address) {
            addresses.push(place.address);
        }
    }
    Ok(Ground {
        direction: Direction::Egress,
        name: name.cloned(),
        aliases: Vec::new(),
        addresses,
        port: ask.port,
        protocol: ask.protocol,
        speaks,
        class: places.first().map(Classed::class),
        rules: rules_of(s, grants),
        hash: s.hash(),
    })
}

/// Layer, policy and line for the record.
pub(super) fn rules_of(
    s: &Snapshot,
    grants: &[Grant],
) -> Vec<(LayerKind, String, crate::policy::Place)> {
    let layers = s.layers().iter();
    layers
        .zip(grants)
        .map(|(layer, grant)| {
            (
                layer.kind(),
                layer.policy().name.clone(),
                grant.rule.clone(),
            )
        })
        .collect()
}

/// The way in: only ports that an `ingress` entry of the job names, and of every other layer that has any.
fn ingress(s: &Snapshot, address: IpAddr, ask: Ask) -> Result<Connect, Denial> {
    let place = Classed::new(s.book(), address);
    // sandboxes live in the gateway's pools; anything else is no way in
    if place.class() != Class::Gateway {
        return Err(Denial::fixed(Reason::AddressNotAllowed).of_class(place.class()));
    }
    if s.job().is_none() {
        return Err(no_layers());
    }
    if ask.protocol != Protocol::Tcp {
        return Err(Denial::fixed(Reason::ProtocolNotAllowed));
    }
    let mut grants = Vec::new();
    for layer in s.layers() {
        let entries = &layer.policy().ingress;
        let entry = entries.iter().find(|entry| entry.ports.contains(ask.port));
        let silent_floor = entries.is_empty() && layer.kind() != LayerKind::Job;
        match entry {
            Some(entry) => grants.push(Grant {
                rule: entry.at.clone(),
                speech: Speech::Unsaid,
            }),
            None if silent_floor => grants.push(Grant {
                rule: layer.policy().network_at.clone(),
                speech: Speech::Unsaid,
            }),
            None => {
                return Err(layer.deny(
                    Reason::PortNotAllowed,
                    entries.first().map(|entry| &entry.at),
                ));
            }
        }
    }
    let ground = make_ground(s, None, &[place], &grants, ask)?;
    Ok(Connect::Dial(DialPermit {
        ground: Ground {
            direction: Direction::Ingress,
            ..ground
        },
    }))
}
