//! Changes as sentences.

use std::collections::BTreeSet;

use super::state::{Found, State};
use super::{Change, Effect};
use crate::ids::UnixSeconds;
use crate::policy::{Limits, Place, Policy, Ports, Protocol, Speaks};

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
        _ => format!("{} instead of {}", beside(is, was), beside(was, is)),
    }
}

/// What is permitted, beside what is too: where bytes are judged otherwise, the usual way has words as well.
fn beside(state: &State, other: &State) -> String {
    match (state, other) {
        (
            State::Permit { speaks: None, .. },
            State::Permit {
                speaks: Some(_), ..
            },
        ) => {
            let usual = "permitted with the bytes usual for its port";
            shown(state).replacen("permitted", usual, 1)
        }
        _ => shown(state),
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
    let wide = |limit: Option<u32>| limit.map(u64::from);
    let usual = |limit: u32| Some(u64::from(limit));
    let (flows, rate) = (usual(Limits::USUAL_FLOWS), usual(Limits::USUAL_RATE));
    let names = usual(Limits::USUAL_NAMES);
    let rows = [
        (
            "flows",
            wide(a.flows),
            wide(b.flows),
            flows,
            number as Shown,
        ),
        ("rate", wide(a.rate), wide(b.rate), rate, number),
        ("upload", a.upload, b.upload, None, size),
        ("download", a.download, b.download, None, size),
        ("bandwidth", a.bandwidth, b.bandwidth, None, size),
        ("names", wide(a.names), wide(b.names), names, number),
        ("records", a.records, b.records, None, number),
    ];
    let changed = rows.into_iter().filter_map(|(key, was, is, usual, form)| {
        // without a limit of its own everything passes, or what is usual
        let most = |limit: Option<u64>| limit.or(usual).unwrap_or(u64::MAX);
        // what is usual is the same whether it is written or not
        if key != "records" && most(is) == most(was) {
            return None;
        }
        let effect = match most(is).cmp(&most(was)) {
            // the share of the record that a network has anyway may be either
            _ if key == "records" && (was.is_none() || is.is_none()) => Effect::Other,
            std::cmp::Ordering::Greater => Effect::Wider,
            std::cmp::Ordering::Less => Effect::Narrower,
            std::cmp::Ordering::Equal => Effect::Other,
        };
        let shown = |limit: Option<u64>| match (limit, usual) {
            (Some(limit), _) => form(limit),
            (None, Some(usual)) => format!("the default ({})", form(usual)),
            (None, None) if key == "records" => "the network's share of the record".to_owned(),
            (None, None) => "no limit".to_owned(),
        };
        setting(&format!("limits.{key}"), &shown(was), &shown(is), effect)
    });
    changed.collect()
}

/// How a limit is written.
type Shown = fn(u64) -> String;

fn number(limit: u64) -> String {
    limit.to_string()
}

/// As a policy says it, in the largest unit that it is a multiple of.
fn size(bytes: u64) -> String {
    let units = [
        ("TiB", 1_u64 << 40),
        ("TB", 1_000_000_000_000),
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("KiB", 1 << 10),
        ("KB", 1000),
    ];
    let fits = units
        .into_iter()
        .find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    fits.map_or_else(
        || format!("{bytes}B"),
        |(word, unit)| format!("{}{word}", bytes / unit),
    )
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
