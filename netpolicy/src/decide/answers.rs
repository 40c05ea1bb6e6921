//! [`decide_answers`]: whether what a permitted name leads to may be told to its sandbox.
//!
//! A look-up has no port, a decision about addresses has one (a `cidr` entry opens or closes it per port). So the
//! answer may be told if on some port that the rules name for this name a flow to it would be dialled. That flow is
//! decided again when it comes: telling opens nothing.

use super::snapshot::Snapshot;
use super::{Answers, Connect, Denial, Destination, Direction, Intent, decide_connect};
use crate::ids::UnixSeconds;
use crate::name::Name;
use crate::policy::Protocol;
use crate::reason::Reason;

/// Tried first: nearly every rule is about them, and `network: internet` permits them unless something denies.
const USUAL: [(u16, Protocol); 2] = [(443, Protocol::Tcp), (80, Protocol::Tcp)];

/// Decides whether the addresses of a permitted name may be answered: one forbidden address spoils the whole answer.
///
/// The denial is the one about the addresses, if one is; it keeps the class that decided.
pub fn decide_answers(
    s: &Snapshot,
    name: &Name,
    answers: &Answers,
    now: UnixSeconds,
) -> Result<(), Denial> {
    let mut spoilt: Option<Denial> = None;
    let to = Destination::Name {
        name: name.clone(),
        answers: Some(answers.clone()),
    };
    let mut intent = Intent {
        direction: Direction::Egress,
        protocol: Protocol::Tcp,
        port: 0,
        to,
    };
    for (port, protocol) in USUAL.into_iter().chain(ports_of(s, name, now)) {
        (intent.port, intent.protocol) = (port, protocol);
        match decide_connect(s, &intent, now) {
            Connect::Dial(_) | Connect::LookUp(_) | Connect::Hear(_) => return Ok(()),
            Connect::Deny(denial) => {
                let about_addresses =
                    denial.class.is_some() || denial.reason == Reason::NameResolvesToForbidden;
                spoilt = spoilt
                    .filter(|earlier| earlier.class.is_some() || !about_addresses)
                    .or(Some(denial));
            }
        }
    }
    spoilt.map_or(Ok(()), Err)
}

/// The first port of every range that a host rule for this name allows, in every layer.
fn ports_of<'a>(
    s: &'a Snapshot,
    name: &'a Name,
    now: UnixSeconds,
) -> impl Iterator<Item = (u16, Protocol)> + use<'a> {
    let rules = s
        .layers()
        .iter()
        .flat_map(move |layer| layer.allows_of(name, now));
    rules.flat_map(|rule| {
        let protocol = rule.protocol.unwrap_or(Protocol::Tcp);
        rule.ports
            .0
            .iter()
            .map(move |range| (*range.start(), protocol))
    })
}
