//! What would change an outcome: the entry to add, the line to remove, or that nothing does.

use super::Question;
use super::outcome::{Outcome, name_of};
use super::words::{line, mode_of, policy_of, rule_at, selector};
use crate::addr::Class;
use crate::decide::special::{Special, special};
use crate::decide::{Denial, LayerKind, Snapshot};
use crate::name::Host;
use crate::policy::http::canonical_path;
use crate::policy::{NetworkMode, Ports, Protocol};
use crate::reason::Reason;

/// What would change the outcome, if a policy can.
pub(super) fn of(s: &Snapshot, question: &Question, outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Permit(_) => {
            let selector = match name_of(question) {
                Some(name) => format!("host: {name}"),
                None => format!("cidr: {:?}", bare(&question.to)),
            };
            Some(format!(
                "To forbid it, add under `deny`: - {{ {selector} }}"
            ))
        }
        Outcome::Ask(_) => Some(format!(
            "To permit it without asking, add under `allow`: {}",
            entry(question)
        )),
        Outcome::Deny(denial) => {
            let text = against(s, question, denial)?;
            let floor = matches!(
                denial.layer,
                Some(LayerKind::Instance | LayerKind::Workspace)
            );
            let whose = if floor {
                "Only the owner of that floor can change this. "
            } else {
                ""
            };
            Some(format!("{whose}{text}"))
        }
    }
}

fn against(s: &Snapshot, question: &Question, denial: &Denial) -> Option<String> {
    let at = denial.rule.as_ref().map(line).unwrap_or_default();
    let policy = policy_of(denial);
    let entry = entry(question);
    Some(match denial.reason {
        Reason::NetworkNone if denial.layer.is_some() => {
            format!("Set `network: domains` at {at} and add under `allow`: {entry}")
        }
        Reason::NameNotAllowed => return by_name(s, question, denial),
        Reason::NameDenied | Reason::AddressDenied if denial.layer.is_some() => {
            let what = denial
                .rule
                .as_ref()
                .and_then(|at| rule_at(s, at))
                .map(selector)
                .unwrap_or_default();
            format!("Remove or narrow the deny entry for {what} at {at}.")
        }
        Reason::PortNotAllowed => format!(
            "In {policy}, add {} to `ports` of the entry at {at}.",
            question.port
        ),
        Reason::ProtocolNotAllowed if differs_in_protocol(s, question, denial) => {
            format!("In {policy}, add under `allow`: {entry}")
        }
        Reason::ProtocolNotAllowed => {
            format!("Let the entry at {at} say the same `speaks` as the other layers.")
        }
        Reason::AddressNotAllowed => {
            format!("Connect by a permitted name, or in {policy}, add under `allow`: {entry}")
        }
        Reason::AddressPrivate | Reason::AddressHost if denial.layer.is_some() => {
            let wide = mode_of(s, denial) == Some(NetworkMode::Internet);
            let also = if wide {
                ".".to_owned()
            } else {
                format!(" and add under `allow`: {entry}")
            };
            format!("In {policy}, set `private: true`{also}")
        }
        Reason::AddressSpecial => {
            format!("In {policy}, set `private: true` and add under `allow`: {entry}")
        }
        Reason::NameResolvesToForbidden => return by_class(s, denial),
        Reason::TlsNameMismatch | Reason::HttpHostMismatch => {
            format!(
                "Let the client send {} as server name or Host.",
                question.to
            )
        }
        Reason::HttpRequestNotAllowed => match question.path.as_deref().map(canonical_path) {
            Some(Err(_)) => "Let the client send the path in its plain form.".to_owned(),
            Some(Ok(_)) | None => {
                format!("Add the method and path under `http` of the entry at {at}.")
            }
        },
        _ => return None,
    })
}

/// A name that nothing names.
fn by_name(s: &Snapshot, question: &Question, denial: &Denial) -> Option<String> {
    let policy = policy_of(denial);
    let entry = entry(question);
    match name_of(question).and_then(special) {
        Some(Special::NotDns) => None,
        Some(Special::Local) if !is_private(s, denial) => Some(format!(
            "In {policy}, set `private: true` and add under `allow`: {entry}"
        )),
        Some(Special::Local) | None => Some(format!("In {policy}, add under `allow`: {entry}")),
    }
}

/// A permitted name that leads to a class that is not open.
fn by_class(s: &Snapshot, denial: &Denial) -> Option<String> {
    let policy = policy_of(denial);
    match denial.class? {
        Class::Private | Class::Host if denial.note.is_none() => {
            Some(format!("In {policy}, set `private: true`."))
        }
        Class::Special if is_private(s, denial) => Some(format!(
            "In {policy}, add a `cidr` entry that names the range."
        )),
        Class::Special => Some(format!(
            "In {policy}, set `private: true` and add a `cidr` entry that names the range."
        )),
        _ => None,
    }
}

/// Whether the layer that denied opens private networks.
fn is_private(s: &Snapshot, denial: &Denial) -> bool {
    s.layers()
        .iter()
        .any(|layer| Some(layer.kind()) == denial.layer && layer.policy().private)
}

/// Whether the entry that denied is one for another transport.
fn differs_in_protocol(s: &Snapshot, question: &Question, denial: &Denial) -> bool {
    let rule = denial.rule.as_ref().and_then(|at| rule_at(s, at));
    rule.is_none_or(|rule| !rule.covers_protocol(question.protocol))
}

/// The narrowest `allow` entry that names the destination.
fn entry(question: &Question) -> String {
    let web = question.protocol == Protocol::Tcp && Ports::web().contains(question.port);
    let (to, usual) = match name_of(question).filter(|_| matches!(question.to, Host::Name(_))) {
        Some(name) => (format!("host: {name}"), web),
        None => (format!("cidr: {:?}", bare(&question.to)), false),
    };
    let mut parts = vec![to];
    if question.protocol.has_ports() && !usual {
        parts.push(format!("ports: [{}]", question.port));
    }
    if question.protocol != Protocol::Tcp {
        parts.push(format!("protocol: {}", question.protocol.word()));
    }
    format!("- {{ {} }}", parts.join(", "))
}

/// An address without brackets.
fn bare(host: &Host) -> String {
    match host {
        Host::Name(name) => name.to_string(),
        Host::Address(address) => address.to_string(),
    }
}
