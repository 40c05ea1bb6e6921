//! How much a policy may say: what one decision, one look-up and one check of it may cost.
//!
//! A decision reads the entries that speak of its name or address, so those are few; a check reads all entries, so they
//! are bounded too. Counted are entries after sets were expanded. Refuses to own: the size of the text ([`super::tree`]).

use std::collections::HashMap;

use ipnet::IpNet;

use super::mistake::Mistakes;
use crate::name::Pattern;
use crate::policy::{Place, Policy, Rule, Selector};

/// Entries of one policy (`allow`, `deny`, `ingress`, `secrets`): as many as learning writes, and more than anybody reads.
pub const MOST_ENTRIES: usize = 10_000;

/// Labels of all host names of one policy: each may cost a node of the tree that decisions read (some hundred octets), and
/// real names have three or four.
pub const MOST_LABELS: usize = 8 * MOST_ENTRIES;

/// Port ranges and paths of `http` lines of all entries of a list that speak of one name or of one address. A decision reads them
/// one by one: four of its passes over so many cost microseconds, and floods are decided one by one.
pub const MOST_ON_ONE: usize = 256;

/// Notes what is more than the bounds.
pub(super) fn check(policy: &Policy, mistakes: &mut Mistakes) {
    let places = places(policy);
    if let Some(first) = places.get(MOST_ENTRIES) {
        let own = Some(*first).filter(|at| at.file == policy.at.file);
        let count = places.len();
        mistakes.hint(
            own.unwrap_or(&policy.at),
            format!("the policy has {count} entries; {MOST_ENTRIES} are the most"),
            "name domains (`*.example.com`) and prefixes instead of each host",
        );
        return;
    }
    let rules = policy.allow.iter().chain(&policy.deny);
    let labels: usize = rules.map(labels).sum();
    if labels > MOST_LABELS {
        mistakes.hint(
            &policy.at,
            format!("the names of the policy have {labels} labels; {MOST_LABELS} are the most"),
            "name domains (`*.example.com`) instead of each host",
        );
        return;
    }
    for (list, rules) in [("allow", &policy.allow), ("deny", &policy.deny)] {
        let all: usize = rules.iter().map(weight).sum();
        if all <= MOST_ON_ONE {
            continue;
        }
        if let Some((rule, count)) = crowded_name(rules).or_else(|| crowded_net(rules)) {
            let own = Some(&rule.at).filter(|at| at.file == policy.at.file);
            let what = match &rule.to {
                Selector::Host(pattern) => pattern.to_string(),
                Selector::Cidr(net) => net.to_string(),
            };
            mistakes.hint(
                own.unwrap_or(&policy.at),
                format!(
                    "entries of `{list}` name {count} port ranges and requests of `{what}`; {MOST_ON_ONE} are the most"
                ),
                "write ranges such as 8000-8999, or `ports: any`",
            );
        }
    }
}

fn places(policy: &Policy) -> Vec<&Place> {
    let rules = policy.allow.iter().chain(&policy.deny).map(|rule| &rule.at);
    let ingress = policy.ingress.iter().map(|rule| &rule.at);
    let secrets = policy.secrets.iter().map(|secret| &secret.at);
    rules.chain(ingress).chain(secrets).collect()
}

fn labels(rule: &Rule) -> usize {
    match &rule.to {
        Selector::Host(pattern) => pattern.name().labels().count(),
        Selector::Cidr(_) => 0,
    }
}

/// What one entry adds to a decision that reads it.
fn weight(rule: &Rule) -> usize {
    let requests = rule.http.iter().map(|http| http.paths.len().max(1));
    rule.ports.0.len().max(1) + requests.sum::<usize>()
}

/// The first entry of a host about which too much is said, by entries of its own and of wildcards above it.
fn crowded_name(rules: &[Rule]) -> Option<(&Rule, usize)> {
    let mut exact: HashMap<&str, usize> = HashMap::new();
    let mut below: HashMap<&str, usize> = HashMap::new();
    for rule in rules {
        let (of, name) = match &rule.to {
            Selector::Host(Pattern::Exact(name)) => (&mut exact, name),
            Selector::Host(Pattern::Below(apex)) => (&mut below, apex),
            Selector::Cidr(_) => continue,
        };
        *of.entry(name.as_str()).or_default() += weight(rule);
    }
    let at = |of: &HashMap<&str, usize>, name: &str| of.get(name).copied().unwrap_or_default();
    let above = |name: &str| -> usize {
        if below.is_empty() {
            return 0;
        }
        let dots = name.match_indices('.');
        dots.filter_map(|(dot, _)| name.get(dot + 1..))
            .map(|apex| at(&below, apex))
            .sum()
    };
    rules.iter().find_map(|rule| {
        let own = match &rule.to {
            Selector::Host(Pattern::Exact(name)) => {
                at(&exact, name.as_str()) + above(name.as_str())
            }
            Selector::Host(Pattern::Below(apex)) => {
                at(&below, apex.as_str()) + above(apex.as_str())
            }
            Selector::Cidr(_) => return None,
        };
        (own > MOST_ON_ONE).then_some((rule, own))
    })
}

/// The same for prefixes and the wider ones that hold them.
fn crowded_net(rules: &[Rule]) -> Option<(&Rule, usize)> {
    let mut nets: Vec<(IpNet, &Rule)> = rules
        .iter()
        .filter_map(|rule| match &rule.to {
            Selector::Cidr(net) => Some((*net, rule)),
            Selector::Host(_) => None,
        })
        .collect();
    nets.sort_by_key(|(net, _)| (net.network(), net.prefix_len()));
    // prefixes that hold the one that is looked at, each with what was said so far on the way to it
    let mut open: Vec<(IpNet, usize)> = Vec::new();
    for (net, rule) in nets {
        while open.last().is_some_and(|(wide, _)| !wide.contains(&net)) {
            open.pop();
        }
        let said = open.last().map_or(0, |(_, said)| *said) + weight(rule);
        if said > MOST_ON_ONE {
            return Some((rule, said));
        }
        match open.last_mut() {
            Some((same, sum)) if *same == net => *sum = said,
            _ => open.push((net, said)),
        }
    }
    None
}
