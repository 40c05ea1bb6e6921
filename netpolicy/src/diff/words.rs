//! Changes as sentences.

use std::collections::BTreeSet;

use super::state::{Found, State};
use super::{Change, Effect};
use crate::ids::UnixSeconds;
use crate::policy::{Place, Policy, Ports, Protocol, Speaks};

/// One change of a destination.
pub(super) fn change(
    what: &str,
    ports: &Ports,
    protocol: Protocol,
    was: &Found,
    is: &Found,
) -> Change {
    let word = verb(&was.state, &is.state);
    let by = |at: &Option<Place>| at.as_ref().map(|at| format!("{}:{}", at.file, at.line));
    let is_by = by(&is.by);
    let ports_word = if !protocol.has_ports() {
        String::new()
    } else if *ports == Ports::any() {
        " every port".to_owned()
    } else {
        format!(" ports {ports}")
    };
    let place = is_by
        .as_ref()
        .map(|by| format!(" ({by})"))
        .unwrap_or_default();
    Change {
        effect: effect(
            &was.state,
            &is.state,
            ports.0.first().map_or(0, |first| *first.start()),
        ),
        what: what.to_owned(),
        ports: protocol.has_ports().then(|| ports.to_string()),
        protocol: Some(protocol),
        was: shown(&was.state),
        is: shown(&is.state),
        since: None,
        was_by: by(&was.by),
        is_by,
        text: format!("{word}: {what}, {}{ports_word}{place}", protocol.word()),
    }
}

/// A change that happens later says so.
pub(super) fn finish(change: Change, since: Option<UnixSeconds>) -> Change {
    match since {
        None => change,
        Some(at) => Change {
            text: format!("from {} on, {}", crate::time::day(at), change.text),
            since: Some(at.0),
            ..change
        },
    }
}

fn verb(was: &State, is: &State) -> String {
    match (was, is) {
        (State::Deny, State::Permit { .. }) => "newly permitted".to_owned(),
        (State::Permit { .. }, State::Deny) => "newly denied".to_owned(),
        (State::Deny, State::Ask) => "newly asked about, was denied".to_owned(),
        (State::Ask, State::Deny) => "newly denied, was asked about".to_owned(),
        (State::Ask, State::Permit { .. }) => "newly permitted without asking".to_owned(),
        (State::Permit { .. }, State::Ask) => "newly asked about, was permitted".to_owned(),
        _ => format!("{} instead of {}", shown(is), shown(was)),
    }
}

fn shown(state: &State) -> String {
    match state {
        State::Deny => "denied".to_owned(),
        State::Ask => "asked about".to_owned(),
        State::Permit { speaks, requests } => {
            let bytes = match speaks {
                None => "permitted",
                Some(Speaks::Any) => "permitted whatever its bytes are",
                Some(Speaks::Tls) => "permitted as TLS",
                Some(Speaks::Http) => "permitted as HTTP",
            };
            match requests {
                None => bytes.to_owned(),
                Some(requests) => {
                    let list: Vec<String> = requests
                        .iter()
                        .map(|(method, path)| format!("{method} {path}"))
                        .collect();
                    format!("{bytes} for {}", list.join(", "))
                }
            }
        }
    }
}

/// Whether a change on this port widens.
pub(super) fn effect(was: &State, is: &State, port: u16) -> Effect {
    let rank = |state: &State| match state {
        State::Deny => 0,
        State::Ask => 1,
        State::Permit { .. } => 2,
    };
    match rank(is).cmp(&rank(was)) {
        std::cmp::Ordering::Greater => return Effect::Wider,
        std::cmp::Ordering::Less => return Effect::Narrower,
        std::cmp::Ordering::Equal => {}
    }
    if permits_all_of(is, was, port) {
        Effect::Wider
    } else if permits_all_of(was, is, port) {
        Effect::Narrower
    } else {
        Effect::Other
    }
}

fn permits_all_of(wide: &State, narrow: &State, port: u16) -> bool {
    let (
        State::Permit { speaks, requests },
        State::Permit {
            speaks: less,
            requests: fewer,
        },
    ) = (wide, narrow)
    else {
        return wide == narrow;
    };
    // `speaks` stands beside TCP only
    let judged = |speaks: &Option<Speaks>| {
        speaks.unwrap_or_else(|| Speaks::default_for(port, Protocol::Tcp))
    };
    let bytes = judged(speaks) == Speaks::Any || judged(speaks) == judged(less);
    let calls = match (requests, fewer) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(all), Some(some)) => some.is_subset(all),
    };
    bytes && calls
}

/// Changes of what is not about a destination: limits, ingress, secrets, names, explanations.
pub(super) fn settings(before: &Policy, after: &Policy) -> Vec<Change> {
    let mut found = limits(before, after);
    found.extend(ingress(before, after));
    found.extend(secrets(before, after));
    let names = |policy: &Policy| match policy.names {
        crate::policy::NamesMode::Leased => "leased",
        crate::policy::NamesMode::Real => "real",
    };
    found.extend(setting("names", names(before), names(after), Effect::Other));
    let flag = |on: bool| if on { "true" } else { "false" };
    found.extend(setting(
        "explain",
        flag(before.explain),
        flag(after.explain),
        Effect::Other,
    ));
    let image = |policy: &Policy| {
        if policy.needs_packages.is_some() {
            "permitted"
        } else {
            "not permitted"
        }
    };
    let effect = if after.needs_packages.is_some() {
        Effect::Wider
    } else {
        Effect::Narrower
    };
    found.extend(setting(
        "hosts of the image's settings (packages)",
        image(before),
        image(after),
        effect,
    ));
    found
}

fn setting(what: &str, was: &str, is: &str, effect: Effect) -> Option<Change> {
    (was != is).then(|| Change {
        effect,
        what: what.to_owned(),
        ports: None,
        protocol: None,
        was: was.to_owned(),
        is: is.to_owned(),
        since: None,
        was_by: None,
        is_by: None,
        text: format!("{what}: {is} instead of {was}"),
    })
}

fn limits(before: &Policy, after: &Policy) -> Vec<Change> {
    let (a, b) = (&before.limits, &after.limits);
    let rows = [
        (
            "limits.flows",
            a.flows.map(u64::from),
            b.flows.map(u64::from),
        ),
        ("limits.rate", a.rate.map(u64::from), b.rate.map(u64::from)),
        ("limits.upload", a.upload, b.upload),
        ("limits.download", a.download, b.download),
        ("limits.bandwidth", a.bandwidth, b.bandwidth),
        (
            "limits.names",
            a.names.map(u64::from),
            b.names.map(u64::from),
        ),
        ("limits.records", a.records, b.records),
    ];
    let shown =
        |limit: Option<u64>| limit.map_or_else(|| "the default".to_owned(), |n| n.to_string());
    let changed = rows.into_iter().filter_map(|(what, was, is)| {
        let effect = match (was, is) {
            (Some(was), Some(is)) if is > was => Effect::Wider,
            (Some(_), Some(_)) => Effect::Narrower,
            // the gateway's default may be either
            _ => Effect::Other,
        };
        setting(what, &shown(was), &shown(is), effect)
    });
    changed.collect()
}

fn ingress(before: &Policy, after: &Policy) -> Vec<Change> {
    let ports = |policy: &Policy| {
        policy
            .ingress
            .iter()
            .fold(Ports::none(), |all, rule| all.union(&rule.ports))
    };
    let (was, is) = (ports(before), ports(after));
    let rows = [
        (is.minus(&was), Effect::Wider, "newly opened"),
        (was.minus(&is), Effect::Narrower, "newly closed"),
    ];
    let changed = rows.into_iter().filter(|(ports, ..)| !ports.is_empty());
    changed
        .map(|(ports, effect, word)| Change {
            effect,
            what: "ingress".to_owned(),
            ports: Some(ports.to_string()),
            protocol: Some(Protocol::Tcp),
            was: if effect == Effect::Wider {
                "closed"
            } else {
                "open"
            }
            .to_owned(),
            is: if effect == Effect::Wider {
                "open"
            } else {
                "closed"
            }
            .to_owned(),
            since: None,
            was_by: None,
            is_by: None,
            text: format!("{word}: ingress, tcp ports {ports}"),
        })
        .collect()
}

fn secrets(before: &Policy, after: &Policy) -> Vec<Change> {
    let set = |policy: &Policy| -> BTreeSet<String> {
        let each = policy.secrets.iter();
        each.map(|secret| {
            format!(
                "secret {} to {} as {:?}",
                secret.secret, secret.host, secret.header
            )
        })
        .collect()
    };
    let (was, is) = (set(before), set(after));
    let new = is
        .difference(&was)
        .filter_map(|what| setting(what, "not sent", "sent", Effect::Wider));
    let gone = was
        .difference(&is)
        .filter_map(|what| setting(what, "sent", "not sent", Effect::Narrower));
    new.chain(gone).collect()
}
