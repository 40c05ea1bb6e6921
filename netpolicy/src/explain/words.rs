//! The sentences that say what happens and why.

use std::net::IpAddr;

use super::Question;
use super::outcome::{Outcome, name_of, said};
use crate::addr::Class;
use crate::decide::special::{Special, special};
use crate::decide::{Denial, Ground, Layer, Snapshot};
use crate::name::Host;
use crate::policy::http::canonical_path;
use crate::policy::{NetworkMode, Place, Ports, Protocol, Rule, Selector, Speaks};
use crate::reason::Reason;

/// What happens to the destination, and why.
pub(super) fn summary(
    s: &Snapshot,
    question: &Question,
    outcome: &Outcome,
    inspect: bool,
) -> String {
    let to = destination(question);
    let mut text = match outcome {
        Outcome::Permit(ground) => format!("{to} is permitted: {}", permit(s, question, ground)),
        Outcome::Deny(denial) => format!("{to} is denied: {}", why(s, question, denial)),
        Outcome::Ask(denial) => {
            let policy = policy_of(denial);
            format!(
                "{to} is named by nothing, so {policy} asks a person; nothing is looked up or sent before the answer."
            )
        }
    };
    if inspect && matches!(outcome, Outcome::Permit(_)) {
        text.push_str(" The gateway reads the requests inside and judges each.");
        if said(question).is_none() {
            text.push_str(" Ask with a method and a path to learn which are permitted.");
        }
    }
    if let Some((what, at)) = s.unenforced().next() {
        text.push_str(" Running under these policies is refused for now: ");
        text.push_str(what);
        text.push_str(" at ");
        text.push_str(&line(at));
        text.push_str(" is not enforced yet.");
    }
    text
}

/// `host:port` and the transport; what has no ports stands without one.
pub(super) fn destination(question: &Question) -> String {
    if !question.protocol.has_ports() {
        return format!("{} ({})", question.to, question.protocol.word());
    }
    format!(
        "{}:{} ({})",
        question.to,
        question.port,
        question.protocol.word()
    )
}

fn permit(s: &Snapshot, question: &Question, ground: &Ground) -> String {
    let mut parts = Vec::new();
    match ground.rules().last() {
        Some((_, policy, at)) => match rule_at(s, at) {
            Some(_) => parts.push(format!(
                "the allow entry at {} of policy {policy:?} covers it.",
                line(at)
            )),
            None => parts.push(format!(
                "policy {policy:?} permits what nothing denies ({}).",
                line(at)
            )),
        },
        None => parts.push("every layer permits it.".to_owned()),
    }
    if matches!(question.to, Host::Name(_)) && ground.addresses().is_empty() {
        let private = s.layers().iter().all(|layer| layer.policy().private);
        let classes = if private {
            "public, private or host addresses"
        } else {
            "public addresses"
        };
        parts.push(format!(
            "That holds if it leads to {classes} only, none of them denied."
        ));
    }
    let name = ground.name();
    parts.push(match (ground.speaks(), name) {
        _ if question.protocol == Protocol::Icmp => {
            "Echo requests pass, at a limited rate and size; nothing else of ICMP does.".to_owned()
        }
        (Speaks::Tls, Some(name)) if question.protocol == Protocol::Udp => {
            format!("It must be QUIC, with the server name {name} where its version can be read.")
        }
        (Speaks::Tls, None) if question.protocol == Protocol::Udp => {
            "It must be QUIC, with any server name that nothing denies.".to_owned()
        }
        (_, Some(name)) if question.protocol == Protocol::Udp => {
            format!("It may carry anything; a server name in QUIC must be {name}.")
        }
        (_, None) if question.protocol == Protocol::Udp => {
            "It may carry anything; a server name in QUIC must be one that nothing denies."
                .to_owned()
        }
        (Speaks::Tls, Some(name)) => format!("The flow must be TLS with the server name {name}."),
        (Speaks::Tls, None) => {
            "The flow must be TLS, with any server name that nothing denies.".to_owned()
        }
        (Speaks::Http, Some(name)) => format!("The flow must be HTTP with the host {name}."),
        (Speaks::Http, None) => {
            "The flow must be HTTP, with any host that nothing denies.".to_owned()
        }
        (Speaks::Any, Some(name)) => {
            format!("It may carry anything; a server name or Host in it must be {name}.")
        }
        (Speaks::Any, None) => {
            "It may carry anything; a server name or Host in it must be one that nothing denies."
                .to_owned()
        }
    });
    parts.join(" ")
}

fn why(s: &Snapshot, question: &Question, denial: &Denial) -> String {
    let policy = policy_of(denial);
    let at = denial.rule.as_ref().map(line).unwrap_or_default();
    let rule = denial.rule.as_ref().and_then(|at| rule_at(s, at));
    let note = denial
        .note
        .as_ref()
        .map(|note| format!(" Its author says: {note}."))
        .unwrap_or_default();
    if denial.layer.is_none()
        && let Some(text) = under_every_policy(denial.reason)
    {
        return text.to_owned();
    }
    match denial.reason {
        Reason::NetworkNone => format!("{policy} gives no network ({at})."),
        Reason::NameNotAllowed => not_named(s, question, denial),
        Reason::NameDenied => format!(
            "the deny entry at {at} of {policy} names it, and deny beats every allow.{note}"
        ),
        Reason::AddressDenied => {
            format!(
                "the deny entry at {at} of {policy} covers its address, and a denied address beats every name.{note}"
            )
        }
        Reason::PortNotAllowed => match rule {
            Some(rule) => format!(
                "the allow entry at {at} of {policy} covers it for {} only.",
                ports_words(&rule.ports)
            ),
            None => format!("{policy} permits nothing on this port ({at})."),
        },
        Reason::ProtocolNotAllowed => match rule.and_then(|rule| rule.protocol) {
            Some(own) if own != question.protocol => {
                format!(
                    "the allow entry at {at} of {policy} covers it for {} only.",
                    own.word()
                )
            }
            _ => format!(
                "the layers want its bytes judged in ways that exclude each other ({at} of {policy})."
            ),
        },
        Reason::AddressNotAllowed => not_covered(question, denial),
        Reason::NameResolvesToForbidden => leads_astray(question, denial),
        Reason::AddressPrivate => {
            format!(
                "the address is on a private network, and {policy} does not say `private: true` ({at})."
            )
        }
        Reason::AddressHost => {
            format!(
                "the address is this machine's own, and {policy} does not say `private: true` ({at})."
            )
        }
        Reason::AddressSpecial => format!(
            "the address is in a special-purpose range, and {policy} has no `cidr` entry that names it under `private: true` ({at})."
        ),
        Reason::TlsNameMismatch | Reason::HttpHostMismatch => {
            let said = question
                .sni
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            format!(
                "the flow is for {}, and its bytes name {said} ({at} of {policy}).",
                question.to
            )
        }
        Reason::HttpRequestNotAllowed => bad_request(question, &at, &policy),
        other => other.help().to_owned(),
    }
}

/// Denials that no policy makes and none opens.
fn under_every_policy(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::NetworkNone => "there is no policy, and without one nothing is permitted.",
        Reason::NameDenied => "it is Sallyport's own name, which no policy opens.",
        Reason::AddressHost => {
            "the port belongs to Sallyport itself on this machine, and no policy opens it."
        }
        Reason::AddressMetadata => "it is a cloud metadata service, which no policy opens.",
        Reason::AddressLoopback => {
            "it is a loopback or unspecified address, which no policy opens."
        }
        Reason::AddressMulticast => {
            "it is a multicast or broadcast address, which no policy opens."
        }
        Reason::LeaseUnknown => {
            "it is of the gateway's pools and stands for no name in this network; look the name up again."
        }
        Reason::AddressGateway => "it belongs to the gateway or its pools, which no policy opens.",
        _ => return None,
    })
}

fn not_named(s: &Snapshot, question: &Question, denial: &Denial) -> String {
    let policy = policy_of(denial);
    let Some(name) = name_of(question) else {
        return format!("{policy} names nothing that fits.");
    };
    match special(name) {
        Some(Special::NotDns) => format!("{name} is no DNS name, and nothing looks it up."),
        Some(Special::Local) => {
            let private = s
                .layers()
                .iter()
                .any(|l| Some(l.kind()) == denial.layer && l.policy().private);
            let lacks = if private {
                "has no allow entry for it"
            } else {
                "does not say `private: true` beside an allow entry for it"
            };
            format!("{name} means something on a local network only, and {policy} {lacks}.")
        }
        None => format!("no allow entry of {policy} names {name}."),
    }
}

fn not_covered(question: &Question, denial: &Denial) -> String {
    let policy = policy_of(denial);
    match (&question.to, &question.sni) {
        (Host::Address(_), Some(name)) if !question.resolves_to.is_empty() => {
            format!(
                "{name} does not lead to this address, and no `cidr` entry of {policy} covers it."
            )
        }
        _ => format!(
            "no `cidr` entry of {policy} covers the address, and the flow names no permitted host."
        ),
    }
}

fn leads_astray(question: &Question, denial: &Denial) -> String {
    let class = denial.class.map_or("a forbidden", class_words);
    let all: Vec<String> = question.resolves_to.iter().map(IpAddr::to_string).collect();
    let own = if denial.note.is_some() {
        " and port of Sallyport itself"
    } else {
        ""
    };
    format!(
        "the name is permitted, but one of its addresses ({}) is {class} address{own}, and then none is dialled.",
        all.join(", ")
    )
}

fn bad_request(question: &Question, at: &str, policy: &str) -> String {
    let (method, path) = said(question).unwrap_or(("GET", "/"));
    match canonical_path(path) {
        Err(error) => format!("the path cannot be judged: {error} ({at} of {policy})."),
        Ok(path) => format!("no `http` rule at {at} of {policy} permits {method} {path}."),
    }
}

fn ports_words(ports: &Ports) -> String {
    let single = matches!(ports.0.as_slice(), [range] if range.start() == range.end());
    if single {
        format!("port {ports}")
    } else {
        format!("ports {ports}")
    }
}

/// A class with its article.
pub(super) fn class_words(class: Class) -> &'static str {
    match class {
        Class::Public => "a public",
        Class::Private => "a private",
        Class::Host => "a host",
        Class::Special => "a special-purpose",
        Class::Metadata => "a metadata",
        Class::Loopback => "a loopback",
        Class::Multicast => "a multicast",
        Class::Gateway => "a gateway",
    }
}

/// The policy that denied, with its layer where that is not the job's own.
pub(super) fn policy_of(denial: &Denial) -> String {
    use crate::decide::LayerKind::{Instance, Workspace};
    let name = denial.policy.as_deref().unwrap_or("?");
    match denial.layer {
        Some(kind @ (Instance | Workspace)) => format!("the {} floor {name:?}", kind.word()),
        _ => format!("policy {name:?}"),
    }
}

/// `file:line`.
pub(super) fn line(at: &Place) -> String {
    at.line()
}

/// The entry that stands at a place.
pub(super) fn rule_at<'a>(s: &'a Snapshot, at: &Place) -> Option<&'a Rule> {
    let mut policies = s.layers().iter().map(Layer::policy);
    policies.find_map(|policy| {
        policy
            .allow
            .iter()
            .chain(&policy.deny)
            .find(|rule| rule.at == *at)
    })
}

/// What a rule names, as it is written.
pub(super) fn selector(rule: &Rule) -> String {
    match &rule.to {
        Selector::Host(pattern) => pattern.to_string(),
        Selector::Cidr(net) => net.to_string(),
    }
}

/// The mode of the layer that denied.
pub(super) fn mode_of(s: &Snapshot, denial: &Denial) -> Option<NetworkMode> {
    s.layers()
        .iter()
        .find(|layer| Some(layer.kind()) == denial.layer)
        .map(|layer| layer.policy().network)
}
