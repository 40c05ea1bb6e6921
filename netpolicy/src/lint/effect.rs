//! Entries that no flow can match: expired, without network, never reachable, denied, outside of a floor.
//!
//! Everything said here is safe to act on. Where an entry has an effect beside its own flows (a local name opens its
//! look-ups under `network: internet`, `unknown: ask` tells a miss from a denial) nothing is said.

use super::cover::{Denials, cover_ports, cover_selector};
use super::{Code, Lint, Setting, is_own};
use crate::addr::AddressBook;
use crate::decide::special::{Special, special};
use crate::ids::UnixSeconds;
use crate::name::{Name, Pattern};
use crate::policy::{NetworkMode, Place, Policy, Rule, Selector, Unknown};

/// Warnings about entries without effect.
pub(super) fn check(policy: &Policy, setting: &Setting<'_>) -> Vec<Lint> {
    let mut found = Vec::new();
    let looked = Looked {
        policy,
        setting,
        denials: Denials::of(policy),
        floors: setting
            .floors
            .iter()
            .map(|(_, floor)| Denials::of(floor))
            .collect(),
    };
    let allow = policy.allow.iter().filter(|rule| is_own(rule, policy));
    found.extend(allow.filter_map(|rule| of_allow(rule, &looked)));
    if policy.network == NetworkMode::None {
        let deny = policy.deny.iter().filter(|rule| is_own(rule, policy));
        found.extend(deny.map(|rule| no_network(&rule.at, policy)));
    }
    found.extend(idle_secrets(policy));
    found
}

fn lint(code: Code, at: &Place, message: String, hint: impl Into<String>) -> Lint {
    Lint {
        code,
        at: at.clone(),
        message,
        hint: hint.into(),
    }
}

fn no_network(at: &Place, policy: &Policy) -> Lint {
    let line = policy.network_at.line;
    let message = format!("the entry does nothing: line {line} says `network: none`");
    lint(
        Code::Dead,
        at,
        message,
        "remove it, or say `network: domains`",
    )
}

/// A policy with what its entries are looked at with.
struct Looked<'a> {
    policy: &'a Policy,
    setting: &'a Setting<'a>,
    denials: Denials<'a>,
    /// Of each floor.
    floors: Vec<Denials<'a>>,
}

fn of_allow(rule: &Rule, looked: &Looked<'_>) -> Option<Lint> {
    let (policy, setting) = (looked.policy, looked.setting);
    if !rule.in_force(setting.now) {
        let message = "the last day of the entry is over".to_owned();
        return Some(lint(
            Code::Expired,
            &rule.at,
            message,
            "remove it, or set a later `until`",
        ));
    }
    if policy.network == NetworkMode::None {
        return Some(no_network(&rule.at, policy));
    }
    // under `ask` a floor's denial comes before the question, and a host entry makes the gateway hear the floor first
    let heard = matches!(rule.to, Selector::Host(_)) && !setting.floors.is_empty();
    if policy.unknown == Unknown::Ask && heard {
        return None;
    }
    closed(rule, policy)
        .or_else(|| denied(rule, looked))
        .or_else(|| outside(rule, looked))
}

/// What no policy opens, or not this one.
fn closed(rule: &Rule, policy: &Policy) -> Option<Lint> {
    let at = &rule.at;
    match &rule.to {
        Selector::Host(pattern) => {
            let name = witness(pattern)?;
            if AddressBook::is_metadata_name(&name) {
                let message = format!("`{pattern}` is a metadata service, which no policy opens");
                return Some(lint(Code::Dead, at, message, "remove it"));
            }
            match special(&name)? {
                Special::NotDns => {
                    let message =
                        format!("`{pattern}` is no name of the DNS and is never looked up");
                    Some(lint(Code::Dead, at, message, "remove it"))
                }
                Special::Local if !policy.private => {
                    let message =
                        format!("`{pattern}` is a local name, and those need `private: true`");
                    Some(lint(
                        Code::Dead,
                        at,
                        message,
                        "remove it, or say `private: true`",
                    ))
                }
                Special::Local => None,
            }
        }
        Selector::Cidr(net) if AddressBook::is_never_open(net) => {
            let message = format!("no policy opens any address of {net}");
            Some(lint(Code::Dead, at, message, "remove it"))
        }
        Selector::Cidr(net) if !policy.private && !AddressBook::may_hold_public(net) => {
            let message = format!("no address of {net} is public, and others need `private: true`");
            Some(lint(
                Code::Dead,
                at,
                message,
                "remove it, or say `private: true`",
            ))
        }
        Selector::Cidr(_) => None,
    }
}

/// A `deny` entry of the same policy covers everything that the entry names.
fn denied(rule: &Rule, looked: &Looked<'_>) -> Option<Lint> {
    let policy = looked.policy;
    if opens_local_names(rule, policy) {
        return None;
    }
    // under `ask` a miss is asked about and a wrong transport is not: only a denial of both says the same without it
    let both = policy.unknown == Unknown::Ask;
    let by = covering_denial(rule, &looked.denials, looked.setting.now, both)?;
    let message = format!(
        "the entry does nothing: {} denies all of it",
        place(&by.at, &rule.at)
    );
    Some(lint(
        Code::Denied,
        &rule.at,
        message,
        "remove one of the two",
    ))
}

fn covering_denial<'a>(
    rule: &Rule,
    by: &Denials<'a>,
    now: UnixSeconds,
    both: bool,
) -> Option<&'a Rule> {
    by.near(&rule.to).find(|deny| {
        let transport = deny.protocol.is_none() || (!both && deny.protocol == rule.protocol);
        transport
            && deny.in_force(now)
            && cover_selector(&deny.to, &rule.to)
            && cover_ports(&deny.ports, &rule.ports)
    })
}

/// Whether the entry's presence lets a local name be looked up and reached on other ports too.
fn opens_local_names(rule: &Rule, policy: &Policy) -> bool {
    let Selector::Host(pattern) = &rule.to else {
        return false;
    };
    let may_be_local = match pattern {
        Pattern::Exact(name) => special(name).is_some(),
        // `*.arpa` holds local names and others
        Pattern::Below(apex) => {
            apex.parent().is_none() || witness(pattern).is_none_or(|name| special(&name).is_some())
        }
    };
    policy.network == NetworkMode::Internet && policy.private && may_be_local
}

/// A floor lets nothing of the entry pass.
fn outside(rule: &Rule, looked: &Looked<'_>) -> Option<Lint> {
    let (policy, setting) = (looked.policy, looked.setting);
    if policy.unknown == Unknown::Ask || opens_local_names(rule, policy) {
        return None;
    }
    let floors = setting.floors.iter().zip(&looked.floors);
    floors.into_iter().find_map(|((kind, floor), denials)| {
        let denial = covering_denial(rule, denials, setting.now, true);
        let passes = match floor.network {
            NetworkMode::None => false,
            NetworkMode::Internet => true,
            NetworkMode::Domains => floor
                .allow
                .iter()
                .any(|other| meet(rule, other, setting.now)),
        };
        if passes && denial.is_none() {
            return None;
        }
        let at = denial.map_or(&floor.network_at, |denial| &denial.at);
        let floor = &floor.name;
        let message = format!(
            "the {} floor `{floor}` ({}:{}) lets nothing of the entry pass",
            kind.word(),
            at.file,
            at.line
        );
        Some(lint(
            Code::OutsideFloor,
            &rule.at,
            message,
            "remove it, or ask the floor's owner to open it",
        ))
    })
}

/// Whether some flow could be granted by both entries, each for its own layer: by the same name, the same address, or
/// by a name in one layer and by its address in the other.
fn meet(rule: &Rule, other: &Rule, now: UnixSeconds) -> bool {
    let same = match (&rule.to, &other.to) {
        (Selector::Host(a), Selector::Host(b)) => a.covers(b) || b.covers(a),
        (Selector::Cidr(a), Selector::Cidr(b)) => a.contains(b) || b.contains(a),
        (Selector::Host(_), Selector::Cidr(_)) | (Selector::Cidr(_), Selector::Host(_)) => true,
    };
    same && other.in_force(now)
        && rule.protocol == other.protocol
        && !rule.ports.intersection(&other.ports).is_empty()
}

/// Secrets whose host no entry permits.
fn idle_secrets(policy: &Policy) -> Vec<Lint> {
    let permitted = |host: &Pattern| {
        policy.allow.iter().any(|rule| match &rule.to {
            Selector::Host(pattern) => pattern.covers(host) || host.covers(pattern),
            Selector::Cidr(_) => false,
        })
    };
    let idle = policy.secrets.iter().filter(|secret| match policy.network {
        NetworkMode::None => true,
        NetworkMode::Domains => policy.needs_packages.is_none() && !permitted(&secret.host),
        NetworkMode::Internet => false,
    });
    idle.map(|secret| {
        let message = format!(
            "the secret is never sent: no `allow` entry names {}",
            secret.host
        );
        lint(
            Code::Dead,
            &secret.at,
            message,
            "remove it, or allow its host",
        )
    })
    .collect()
}

/// Some name that the pattern matches and nothing else is said about. `None` where no name fits below the apex.
pub(super) fn witness(pattern: &Pattern) -> Option<Name> {
    match pattern {
        Pattern::Exact(name) => Some(name.clone()),
        Pattern::Below(apex) => Name::parse(&format!("x.{apex}")).ok(),
    }
}

/// A place as seen from another: the line alone where the file is the same.
pub(super) fn place(at: &Place, from: &Place) -> String {
    if at.file == from.file {
        format!("line {}", at.line)
    } else {
        format!("{}:{}", at.file, at.line)
    }
}
