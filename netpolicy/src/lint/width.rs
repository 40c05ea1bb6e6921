//! Entries that permit more than they look: names of everybody, hosts that take, fetch or resolve for anybody.
//!
//! Only `network: domains` is looked at: where everything public is permitted, an entry widens nothing.

use psl::Psl;

use super::catalogue::{Catalogue, Item, Kind};
use super::cover::{Denials, denies_web};
use super::{Code, Lint, is_own};
use crate::addr::AddressBook;
use crate::name::{Name, Pattern};
use crate::policy::{NetworkMode, Policy, Ports, Protocol, Rule, Selector};

/// Shortest prefix that one organisation usually has for itself.
const SHORTEST_V4: u8 = 16;
/// The same for IPv6: what a provider gets is a /32 or shorter.
const SHORTEST_V6: u8 = 33;

/// Warnings about width that nobody accepted.
pub(super) fn check(policy: &Policy, catalogue: &Catalogue) -> Vec<Lint> {
    if policy.network != NetworkMode::Domains {
        return Vec::new();
    }
    let own = policy.allow.iter().filter(|rule| is_own(rule, policy));
    let denials = Denials::of(policy);
    own.flat_map(|rule| of_rule(rule, &denials, catalogue))
        .collect()
}

fn of_rule(rule: &Rule, denials: &Denials<'_>, catalogue: &Catalogue) -> Vec<Lint> {
    match &rule.to {
        Selector::Host(pattern) => {
            let mut found: Vec<Lint> = suffix(rule, pattern).into_iter().collect();
            // who permits everybody permits each of these
            let everybody = found.iter().any(|lint| lint.code == Code::PublicSuffix);
            for kind in [Kind::ManyOwners, Kind::Uploads, Kind::Resolver, Kind::Relay] {
                if !everybody && found.iter().all(|lint| lint.code != kind.code()) {
                    found.extend(listed(rule, pattern, kind, denials, catalogue));
                }
            }
            found.retain(|lint| !catalogue.accepts(lint, Some(pattern)));
            found
        }
        Selector::Cidr(net) => {
            let shortest = if net.network().is_ipv4() {
                SHORTEST_V4
            } else {
                SHORTEST_V6
            };
            if net.prefix_len() >= shortest || !AddressBook::may_hold_public(net) {
                return Vec::new();
            }
            let message = format!("{net} holds servers of strangers");
            let lint = lint(
                rule,
                Code::WideNetwork,
                message,
                "name the prefixes that are meant, or hosts",
            );
            if catalogue.accepts(&lint, None) {
                Vec::new()
            } else {
                vec![lint]
            }
        }
    }
}

fn lint(rule: &Rule, code: Code, message: String, hint: &str) -> Lint {
    Lint {
        code,
        at: rule.at.clone(),
        message,
        hint: hint.to_owned(),
    }
}

/// A wildcard right below a public suffix.
fn suffix(rule: &Rule, pattern: &Pattern) -> Option<Lint> {
    let Pattern::Below(apex) = pattern else {
        return None;
    };
    match suffix_kind(apex)? {
        SuffixKind::Public => {
            let message =
                format!("`{pattern}` permits names of everybody: {apex} is a public suffix");
            Some(lint(
                rule,
                Code::PublicSuffix,
                message,
                "name the domains that are meant",
            ))
        }
        SuffixKind::Private => {
            let message = format!(
                "`{pattern}` permits names of strangers: {apex} gives names to its customers"
            );
            Some(lint(
                rule,
                Code::ManyOwners,
                message,
                "name the hosts that are meant",
            ))
        }
    }
}

/// Hosts of the list that an entry permits on the ports of the web.
fn listed(
    rule: &Rule,
    pattern: &Pattern,
    kind: Kind,
    denials: &Denials<'_>,
    catalogue: &Catalogue,
) -> Option<Lint> {
    let on_web =
        rule.protocol == Some(Protocol::Tcp) && !rule.ports.intersection(&Ports::web()).is_empty();
    // who may only read cannot send, as far as a request's path can be kept short
    let only_reads = !rule.http.is_empty()
        && rule.http.iter().all(|http| {
            !http.methods.is_empty() && http.methods.iter().all(|m| m == "GET" || m == "HEAD")
        });
    if !on_web || (kind == Kind::Uploads && only_reads) {
        return None;
    }
    let permits = |item: &&Item| {
        let within = pattern.covers(&item.host);
        // one name below `*.pastes.example` is as much a paste host; one customer's bucket is not everybody's
        let part = kind != Kind::ManyOwners && item.host.covers(pattern);
        item.kind == kind && (within || part) && !denies_web(denials, &item.host)
    };
    let items: Vec<&Item> = catalogue.items().iter().filter(permits).collect();
    let first = items.first()?;
    let more = match items.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more of this kind"),
    };
    let message = format!("`{pattern}` permits {}: {}{more}", first.host, first.note);
    let hint = match kind {
        Kind::ManyOwners => "name your own part of it, or deny the rest",
        Kind::Uploads => {
            "narrow it with `http`, deny the host, or accept the warning in a lints file"
        }
        Kind::Resolver => "remove it; the gateway answers names",
        Kind::Relay => "remove it, or deny the host",
    };
    Some(lint(rule, kind.code(), message, hint))
}

enum SuffixKind {
    Public,
    Private,
}

fn suffix_kind(name: &Name) -> Option<SuffixKind> {
    let suffix = psl::List.suffix(name.as_str().as_bytes())?;
    if suffix.as_bytes() != name.as_str().as_bytes() {
        return None;
    }
    Some(match suffix.typ() {
        Some(psl::Type::Private) => SuffixKind::Private,
        // a last label that the list does not know is one all the same
        Some(psl::Type::Icann) | None => SuffixKind::Public,
    })
}

/// Whether names right below this one belong to different owners: a public suffix, or a provider that gives names to
/// its customers.
pub fn is_public_suffix(name: &Name) -> bool {
    suffix_kind(name).is_some()
}
