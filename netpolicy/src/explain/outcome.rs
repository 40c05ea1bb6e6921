//! Lets the decisions answer a question: first the connect, then the first bytes, then the request.

use std::net::IpAddr;

use super::Question;
use crate::decide::special::special;
use crate::decide::{
    Answers, Connect, Denial, Destination, Direction, Evidence, Ground, Heard, Intent, Layer,
    LayerKind, Snapshot, decide_bytes, decide_connect, decide_unleased, judge_request, presume,
};
use crate::ids::UnixSeconds;
use crate::name::{Host, Name};
use crate::policy::{NetworkMode, Policy, Protocol, Rule, Selector, Speaks, Unknown};
use crate::reason::Reason;

/// What the decisions said.
pub(crate) enum Outcome {
    /// Permitted on this ground; without addresses where none were given.
    Permit(Ground),
    /// Denied.
    Deny(Denial),
    /// Named by nothing, so a person is asked; the denial that it would be otherwise.
    Ask(Denial),
}

pub(crate) fn of(s: &Snapshot, question: &Question, now: UnixSeconds) -> Outcome {
    let found = connect(s, question, now).and_then(|ground| {
        bytes(s, question, &ground, now)?;
        request(s, question, &ground, now)?;
        Ok(ground)
    });
    match found {
        Ok(ground) => Outcome::Permit(ground),
        Err(denial) if asks(s, question, &denial, now) => Outcome::Ask(denial),
        Err(denial) => Outcome::Deny(denial),
    }
}

/// More than a name and a heard name never has to be looked up or heard.
const MOST_STEPS: usize = 5;

fn connect(s: &Snapshot, question: &Question, now: UnixSeconds) -> Result<Ground, Denial> {
    let to = match &question.to {
        Host::Name(name) if question.resolves_to.is_empty() && question.aliases.is_empty() => {
            return presume(s, name, question.port, question.protocol, now);
        }
        Host::Name(name) => Destination::Name {
            name: name.clone(),
            answers: None,
        },
        Host::Address(address) => Destination::Address {
            address: *address,
            bound: question.bound.clone(),
            heard: Heard::NotYet,
        },
    };
    dialled(s, question, to, now)
}

/// As a door has it decided: first by the destination alone, then by what is looked up and heard, if only that can tell.
fn dialled(
    s: &Snapshot,
    question: &Question,
    to: Destination,
    now: UnixSeconds,
) -> Result<Ground, Denial> {
    let mut intent = Intent {
        direction: Direction::Egress,
        protocol: question.protocol,
        port: question.port,
        to,
    };
    for _ in 0..MOST_STEPS {
        let decided = if question.unleased {
            decide_unleased(s, &intent, now)
        } else {
            decide_connect(s, &intent, now)
        };
        match (decided, &mut intent.to) {
            (Connect::Dial(permit), _) => return Ok(permit.into_ground()),
            (Connect::Deny(denial), _) => return Err(denial),
            (
                Connect::LookUp(_),
                Destination::Name { answers, .. }
                | Destination::Address {
                    heard: Heard::Name { answers, .. },
                    ..
                },
            ) => *answers = Some(supposed_answers(question)),
            (Connect::Hear(_), Destination::Address { heard, .. }) => {
                *heard = match &question.sni {
                    Some(name) => Heard::Name {
                        name: name.clone(),
                        answers: None,
                    },
                    None => Heard::Nothing,
                };
            }
            // a door has nothing to look up or to hear there either
            (Connect::LookUp(_), Destination::Address { .. })
            | (Connect::Hear(_), Destination::Name { .. }) => break,
        }
    }
    Err(Denial::fixed(Reason::NameAmbiguous))
}

/// What the resolver says about the name; one without addresses has the address that is asked about.
fn supposed_answers(question: &Question) -> Answers {
    let addresses = match &question.to {
        Host::Address(address) if question.resolves_to.is_empty() => vec![*address],
        _ => question.resolves_to.clone(),
    };
    Answers {
        addresses,
        aliases: question.aliases.clone(),
    }
}

/// The server name that is supposed to be heard in a flow to an address; without addresses of its own it has this one.
fn supposed(question: &Question, address: IpAddr) -> Heard {
    let Some(name) = &question.sni else {
        return Heard::Nothing;
    };
    let addresses = if question.resolves_to.is_empty() {
        vec![address]
    } else {
        question.resolves_to.clone()
    };
    Heard::Name {
        name: name.clone(),
        answers: Some(addresses.into()),
    }
}

/// The server name that is supposed must fit the flow.
fn bytes(
    s: &Snapshot,
    question: &Question,
    ground: &Ground,
    now: UnixSeconds,
) -> Result<(), Denial> {
    let Some(name) = question
        .sni
        .clone()
        .filter(|_| question.protocol == Protocol::Tcp)
    else {
        return Ok(());
    };
    let evidence = if ground.speaks() == Speaks::Http {
        let (method, path) = said(question).unwrap_or(("GET", "/"));
        Evidence::Http {
            host: Some(Host::Name(name)),
            port: None,
            method: method.to_owned(),
            path: path.to_owned(),
        }
    } else {
        Evidence::Tls { name: Some(name) }
    };
    match decide_bytes(s, ground, &evidence, now) {
        // with inspection the request inside decides, and that is asked next
        Err(denial) if denial.reason == Reason::HttpRequestNotAllowed => Ok(()),
        decided => decided.map(|_| ()),
    }
}

/// The request that is supposed must fit; without one, a host with request rules is permitted as such.
fn request(
    s: &Snapshot,
    question: &Question,
    ground: &Ground,
    now: UnixSeconds,
) -> Result<(), Denial> {
    match said(question) {
        Some((method, path)) => judge_request(s, ground, ground.name(), Some((method, path)), now),
        None => Ok(()),
    }
}

/// Method and path, as far as one of them is asked about.
pub(super) fn said(question: &Question) -> Option<(&str, &str)> {
    match (question.method.as_deref(), question.path.as_deref()) {
        (None, None) => None,
        (method, path) => Some((method.unwrap_or("GET"), path.unwrap_or("/"))),
    }
}

/// Whether the job's policy asks a person about this: named by nothing, and nothing else stands against it.
fn asks(s: &Snapshot, question: &Question, denial: &Denial, now: UnixSeconds) -> bool {
    let asking = |job: &Policy| job.unknown == Unknown::Ask && job.network == NetworkMode::Domains;
    let local = matches!(&question.to, Host::Name(name) if special(name).is_some());
    is_miss(denial.reason)
        && denial.layer == Some(LayerKind::Job)
        && s.job().is_some_and(asking)
        && !local
        && !denied_when_heard(s, question, now)
}

fn is_miss(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NameNotAllowed
            | Reason::AddressNotAllowed
            | Reason::PortNotAllowed
            // an entry for other transports is as one for other ports
            | Reason::ProtocolNotAllowed
    )
}

/// Whether the server name that is supposed in a flow to an address is denied: nobody is asked about such a flow.
fn denied_when_heard(s: &Snapshot, question: &Question, now: UnixSeconds) -> bool {
    let (Host::Address(address), Some(_)) = (&question.to, &question.sni) else {
        return false;
    };
    let intent = Intent {
        direction: Direction::Egress,
        protocol: question.protocol,
        port: question.port,
        to: Destination::Address {
            address: *address,
            bound: Vec::new(),
            heard: supposed(question, *address),
        },
    };
    matches!(decide_connect(s, &intent, now), Connect::Deny(denial) if !is_miss(denial.reason))
}

/// Whether the gateway would read the requests inside: rules with methods and paths, or secrets for this host.
pub(super) fn inspects(
    s: &Snapshot,
    question: &Question,
    outcome: &Outcome,
    now: UnixSeconds,
) -> bool {
    let judged = match outcome {
        Outcome::Permit(_) => true,
        Outcome::Deny(denial) => denial.reason == Reason::HttpRequestNotAllowed,
        Outcome::Ask(_) => false,
    };
    let Some(name) = name_of(question).filter(|_| judged) else {
        return false;
    };
    s.layers().iter().map(Layer::policy).any(|policy| {
        let reads = |rule: &Rule| {
            let names_it = matches!(&rule.to, Selector::Host(pattern) if pattern.matches(name));
            names_it && !rule.http.is_empty() && rule.applies(question.port, question.protocol, now)
        };
        policy.allow.iter().any(reads)
            || policy
                .secrets
                .iter()
                .any(|secret| secret.host.matches(name))
    })
}

/// The name that a question is about.
pub(super) fn name_of(question: &Question) -> Option<&Name> {
    match (&question.to, &question.sni) {
        (Host::Name(name), _) | (Host::Address(_), Some(name)) => Some(name),
        (Host::Address(_), None) => None,
    }
}
