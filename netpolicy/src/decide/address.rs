//! Flows to bare addresses: what `cidr` entries and classes permit, what bound names say, and where only a heard name
//! can tell. The way of [`super::connect`] for flows that do not begin with a name.

use super::connect::{dial, never_names, no_layers, to_name};
use super::layer::{Ask, Classed, Grant};
use super::snapshot::{Layer, Snapshot};
use super::speech::{Speech, both};
use super::{Answers, Connect, Denial, DialPermit, Ground, Heard};
use crate::name::Name;
use crate::policy::{NetworkMode, Speaks};
use crate::reason::Reason;

/// An address, with the names that `names: real` answered for it in this network.
pub(super) fn to_address(
    s: &Snapshot,
    place: &Classed,
    bound: &[Name],
    heard: &Heard,
    ask: Ask,
) -> Result<Connect, Denial> {
    match (bound, heard) {
        ([], _) => unbound(s, place, heard, ask),
        ([name], _) => as_bound(s, place, name, heard, ask),
        (several, Heard::Name { name, .. }) if several.contains(name) => {
            as_bound(s, place, name, heard, ask)
        }
        (several, _) => as_one_of(s, place, several, heard, ask),
    }
}

/// A flow to the address of one bound name is a flow to that name; the address alone may still be permitted.
fn as_bound(
    s: &Snapshot,
    place: &Classed,
    name: &Name,
    heard: &Heard,
    ask: Ask,
) -> Result<Connect, Denial> {
    match to_name(s, name, Some(&vec![place.address].into()), ask) {
        Err(denial) if is_miss(&denial) => {
            // the denial of a later layer must not be passed by the miss of an earlier one
            if let Some(denied) = denied_by_any(s, name, ask) {
                return Err(denied);
            }
            match unbound(s, place, heard, ask) {
                // the reason that speaks of the name helps more
                Err(other) if is_miss(&other) => Err(denial),
                outcome => outcome,
            }
        }
        outcome => outcome,
    }
}

/// Several names lead here and the bytes named none of them (yet).
fn as_one_of(
    s: &Snapshot,
    place: &Classed,
    names: &[Name],
    heard: &Heard,
    ask: Ask,
) -> Result<Connect, Denial> {
    let denied = names.iter().find_map(|name| denied_by_any(s, name, ask));
    match (unbound(s, place, heard, ask), heard, denied) {
        (outcome, Heard::Name { .. }, _) => outcome,
        (Err(denial), _, _) if is_miss(&denial) => ambiguous(names, s, place, heard, ask),
        // one of the names is denied, so even where the address is permitted the flow must say which it wants
        (Ok(Connect::Dial(_)), Heard::NotYet, Some(_)) => Ok(Connect::Hear(Speaks::Any)),
        (Ok(Connect::Dial(_)), _, Some(denial)) => Err(denial),
        (outcome, _, _) => outcome,
    }
}

fn denied_by_any(s: &Snapshot, name: &Name, ask: Ask) -> Option<Denial> {
    s.layers()
        .iter()
        .find_map(|layer| layer.name_denial(name, ask))
}

/// Whether a denial only means that nothing permits, so that another ground may still do.
fn is_miss(denial: &Denial) -> bool {
    use Reason::{AddressNotAllowed, NameNotAllowed, PortNotAllowed, ProtocolNotAllowed};
    matches!(
        denial.reason,
        NameNotAllowed | PortNotAllowed | ProtocolNotAllowed | AddressNotAllowed
    )
}

/// Nothing but a name could permit this: worth hearing only if at least one of the names would pass.
fn ambiguous(
    names: &[Name],
    s: &Snapshot,
    place: &Classed,
    heard: &Heard,
    ask: Ask,
) -> Result<Connect, Denial> {
    let mut first = None;
    for name in names {
        match (
            to_name(s, name, Some(&vec![place.address].into()), ask),
            heard,
        ) {
            (Ok(_), Heard::NotYet) => {
                return Ok(Connect::Hear(Speaks::Any));
            }
            (Ok(_), _) => return Err(Denial::fixed(Reason::NameAmbiguous).of_class(place.class())),
            (Err(denial), _) => first = first.or(Some(denial)),
        }
    }
    Err(first.unwrap_or_else(|| Denial::fixed(Reason::NameAmbiguous)))
}

/// One layer's word on a bare address.
enum Word {
    /// Permitted; `named` if the heard name, with the address among its answers, is what permits it.
    Permit { grant: Grant, named: bool },
    /// Only a name can tell.
    Hear(Speaks),
    /// The heard name would permit, if the address is among its answers.
    LookUp,
}

fn unbound(s: &Snapshot, place: &Classed, heard: &Heard, ask: Ask) -> Result<Connect, Denial> {
    if let Heard::Name { name, answers } = heard
        && let Some(denial) = never_names(s, name, aliases_of(answers.as_ref()))
    {
        return Err(denial);
    }
    let words = s
        .layers()
        .iter()
        .map(|layer| judge_address(s, layer, place, heard, ask));
    let words = words.collect::<Result<Vec<_>, _>>()?;
    if words.is_empty() {
        return Err(no_layers());
    }
    let hear = words.iter().filter_map(|word| {
        if let Word::Hear(speaks) = word {
            Some(*speaks)
        } else {
            None
        }
    });
    if let Some(speaks) = hear.reduce(|a, b| both(a, b).unwrap_or(Speaks::Any)) {
        return Ok(Connect::Hear(speaks));
    }
    let heard_name = if let Heard::Name { name, .. } = heard {
        Some(name)
    } else {
        None
    };
    if let Some(name) = heard_name
        && words.iter().any(|word| matches!(word, Word::LookUp))
    {
        return Ok(Connect::LookUp(name.clone()));
    }
    let mut bound_name = None;
    let mut grants = Vec::with_capacity(words.len());
    for word in words {
        let Word::Permit { grant, named } = word else {
            continue;
        };
        bound_name = if named { heard_name } else { bound_name };
        grants.push(grant);
    }
    let dialled = dial(s, bound_name, std::slice::from_ref(place), &grants, ask)?;
    Ok(match (dialled, heard) {
        // what the name was an alias of is judged again whenever the flow is
        (Connect::Dial(DialPermit { ground }), Heard::Name { answers, .. })
            if bound_name.is_some() =>
        {
            let aliases = aliases_of(answers.as_ref()).to_vec();
            Connect::Dial(DialPermit {
                ground: Ground { aliases, ..ground },
            })
        }
        (dialled, _) => dialled,
    })
}

fn aliases_of(answers: Option<&Answers>) -> &[Name] {
    answers.map_or(&[], |answers| &answers.aliases)
}

fn judge_address(
    s: &Snapshot,
    layer: &Layer,
    place: &Classed,
    heard: &Heard,
    ask: Ask,
) -> Result<Word, Denial> {
    if layer.policy().network == NetworkMode::None {
        return Err(layer.deny(Reason::NetworkNone, None));
    }
    if let Some(denial) = layer.address_denial(place, ask) {
        return Err(denial);
    }
    layer
        .class_gate(place, ask, s.book())
        .map_err(|reason| layer.deny(reason, None).of_class(place.class()))?;
    let by_net = layer.net_grant(place.address, ask);
    match (layer.policy().network, by_net) {
        (NetworkMode::Internet, by_net) => in_internet(layer, by_net, heard, ask),
        (_, Some(grant)) => match heard {
            Heard::Name { name, answers } => layer
                .denial_of(name, aliases_of(answers.as_ref()), ask)
                .map_or(Ok(()), Err),
            Heard::NotYet | Heard::Nothing => Ok(()),
        }
        .map(|()| Word::Permit {
            grant,
            named: false,
        }),
        (_, None) => by_heard_name(layer, place, heard, ask),
    }
}

/// `network: internet`: the address is permitted; a name matters only where an entry could deny it.
fn in_internet(
    layer: &Layer,
    by_net: Option<Grant>,
    heard: &Heard,
    ask: Ask,
) -> Result<Word, Denial> {
    let grant = by_net.unwrap_or_else(|| Grant {
        rule: layer.policy().network_at.clone(),
        speech: Speech::Unsaid,
    });
    match heard {
        Heard::NotYet
            if layer
                .index
                .deny
                .host_could_apply(ask.port, ask.protocol, ask.now)
                .is_some() =>
        {
            Ok(Word::Hear(Speaks::Any))
        }
        Heard::NotYet | Heard::Nothing => Ok(Word::Permit {
            grant,
            named: false,
        }),
        Heard::Name { name, answers } => {
            match layer.denial_of(name, aliases_of(answers.as_ref()), ask) {
                Some(denial) => Err(denial),
                None => Ok(Word::Permit {
                    grant,
                    named: false,
                }),
            }
        }
    }
}

/// `network: domains` without a `cidr` entry: only a permitted name that leads to this very address opens it.
fn by_heard_name(layer: &Layer, place: &Classed, heard: &Heard, ask: Ask) -> Result<Word, Denial> {
    match heard {
        Heard::NotYet => {
            match layer
                .index
                .allow
                .host_could_apply(ask.port, ask.protocol, ask.now)
            {
                Some(speaks) => Ok(Word::Hear(speaks)),
                None => Err(layer.address_miss(place, ask)),
            }
        }
        Heard::Nothing => Err(layer.address_miss(place, ask)),
        Heard::Name { name, answers } => {
            let grant = layer.judge_name(name, aliases_of(answers.as_ref()), ask)?;
            match answers {
                None => Ok(Word::LookUp),
                Some(answers) if answers.addresses.contains(&place.address) => {
                    Ok(Word::Permit { grant, named: true })
                }
                Some(_) => Err(layer.address_miss(place, ask)),
            }
        }
    }
}
