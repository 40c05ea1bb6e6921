//! Compares what the kernel holds with a ruleset: tables, chains, every rule and expression, sets and their elements.

use std::collections::BTreeSet;

use netpolicy::ruleset::{Chain, Fate, Hook, Rule, Ruleset, Set, TABLE};

use super::lower::{Vm, fate_code, lower};
use super::read::{Found, FoundChain, FoundRule, FoundSet};
use super::write::{EVALUATED_FLAG, TIMEOUT_FLAG, key_shape};
use crate::kernel::error::Mismatch;
use crate::kernel::lanes::{self, LaneChain};

/// `NFPROTO_INET`
const INET: u8 = 1;
/// `NFPROTO_NETDEV`
const NETDEV: u8 = 5;
/// `NFT_OBJECT_COUNTER`
const COUNTER: u32 = 1;

/// The first difference, if any. Other tables in the namespace are a difference too: nobody else has business there.
pub fn check(rules: &Ruleset, wanted_lanes: &[LaneChain], found: &Found) -> Result<(), Mismatch> {
    let mut tables = vec![(INET, TABLE.to_owned())];
    if !wanted_lanes.is_empty() {
        tables.push((NETDEV, lanes::TABLE.to_owned()));
    }
    let there: BTreeSet<_> = found.tables.iter().collect();
    if there != tables.iter().collect() || found.tables.len() != tables.len() {
        return Err(Mismatch::new(
            "tables",
            format!("{tables:?}"),
            format!("{:?}", found.tables),
        ));
    }
    let names = |wanted: Vec<&str>, there: Vec<&str>, what: &str| {
        let (wanted, there): (BTreeSet<_>, BTreeSet<_>) =
            (wanted.into_iter().collect(), there.into_iter().collect());
        if wanted == there {
            Ok(())
        } else {
            Err(Mismatch::new(
                what,
                format!("{wanted:?}"),
                format!("{there:?}"),
            ))
        }
    };
    let (own, of_lanes): (Vec<_>, Vec<_>) =
        found.chains.iter().partition(|c| c.table != lanes::TABLE);
    check_lanes(wanted_lanes, &of_lanes)?;
    let chains = own.iter().map(|c| c.name.as_str()).collect();
    names(
        rules.chains.iter().map(|c| c.name).collect(),
        chains,
        "chains",
    )?;
    let sets = found.sets.iter().map(|s| s.name.as_str()).collect();
    names(
        rules.sets.iter().map(|s| s.name.as_str()).collect(),
        sets,
        "sets",
    )?;
    let objects = found
        .objects
        .iter()
        .filter(|(_, _, kind)| *kind == COUNTER)
        .map(|(_, name, _)| name.as_str());
    names(rules.counters.clone(), objects.collect(), "counters")?;
    if found.objects.len() != rules.counters.len() {
        return Err(Mismatch::new(
            "named objects",
            rules.counters.len(),
            found.objects.len(),
        ));
    }
    for chain in &rules.chains {
        own.iter()
            .filter(|c| c.name == chain.name)
            .try_for_each(|there| check_chain(chain, there))?;
    }
    for set in &rules.sets {
        found
            .sets
            .iter()
            .filter(|s| s.name == set.name.as_str())
            .try_for_each(|there| check_set(set, there))?;
    }
    Ok(())
}

/// The lanes, chain by chain.
fn check_lanes(wanted: &[LaneChain], there: &[&FoundChain]) -> Result<(), Mismatch> {
    if wanted.len() != there.len() {
        return Err(Mismatch::new("chains of lanes", wanted.len(), there.len()));
    }
    let accept = fate_code(Fate::Accept).cast_unsigned();
    for chain in wanted {
        let link = chain.link.as_str();
        let wanted = FoundChain {
            table: lanes::TABLE.to_owned(),
            name: link.to_owned(),
            // `NF_NETDEV_INGRESS` is 0.
            base: Some((0, lanes::PRIORITY, accept, "filter".to_owned())),
            link: Some(link.to_owned()),
            rules: chain
                .rules
                .iter()
                .map(|rule| FoundRule {
                    comment: rule.comment.to_owned(),
                    steps: rule.steps.clone(),
                })
                .collect(),
        };
        let found = there.iter().find(|c| c.name == link);
        if found.is_none_or(|found| **found != wanted) {
            return Err(Mismatch::new(
                format!("lanes of {link}"),
                format!("{wanted:?}"),
                format!("{found:?}"),
            ));
        }
    }
    Ok(())
}

fn check_chain(chain: &Chain, there: &FoundChain) -> Result<(), Mismatch> {
    let base = chain.base.map(|base| {
        let policy = fate_code(base.policy).cast_unsigned();
        (
            hook_number(base.hook),
            base.priority,
            policy,
            "filter".to_owned(),
        )
    });
    if base != there.base {
        let what = format!("chain {}", chain.name);
        return Err(Mismatch::new(
            what,
            format!("{base:?}"),
            format!("{:?}", there.base),
        ));
    }
    if chain.rules.len() != there.rules.len() {
        let what = format!("number of rules in chain {}", chain.name);
        return Err(Mismatch::new(what, chain.rules.len(), there.rules.len()));
    }
    let mut pairs = chain.rules.iter().zip(&there.rules).enumerate();
    pairs.try_for_each(|(at, (rule, there))| check_rule(chain.name, at, rule, there))
}

fn check_rule(chain: &str, at: usize, rule: &Rule, there: &FoundRule) -> Result<(), Mismatch> {
    let steps: Vec<Vm> = rule.exprs.iter().flat_map(lower).collect();
    let what = || format!("rule {at} of chain {chain} ({})", rule.comment);
    if rule.comment != there.comment {
        return Err(Mismatch::new(what(), rule.comment, &there.comment));
    }
    if steps.len() != there.steps.len() {
        return Err(Mismatch::new(
            what(),
            format!("{steps:?}"),
            format!("{:?}", there.steps),
        ));
    }
    match steps
        .iter()
        .zip(&there.steps)
        .find(|(wanted, found)| wanted != found)
    {
        Some((wanted, found)) => Err(Mismatch::new(
            what(),
            format!("{wanted:?}"),
            format!("{found:?}"),
        )),
        None => Ok(()),
    }
}

fn check_set(set: &Set, there: &FoundSet) -> Result<(), Mismatch> {
    let (kind, length) = key_shape(set.name.key());
    let flags = if set.name.is_meter() {
        TIMEOUT_FLAG | EVALUATED_FLAG
    } else {
        0
    };
    let what = || format!("set {}", set.name.as_str());
    if (flags, kind, length) != there.shape {
        return Err(Mismatch::new(
            what(),
            format!("{:?}", (flags, kind, length)),
            format!("{:?}", there.shape),
        ));
    }
    if set.name.is_meter() {
        return Ok(());
    }
    let wanted: BTreeSet<Vec<u8>> = set
        .elements
        .iter()
        .map(netpolicy::ruleset::Element::key)
        .collect();
    let found: BTreeSet<Vec<u8>> = there.keys.iter().cloned().collect();
    if let Some(missing) = wanted.difference(&found).next() {
        return Err(Mismatch::new(
            what(),
            format!("element {}", show(missing)),
            "nothing",
        ));
    }
    match found.difference(&wanted).next() {
        Some(extra) => Err(Mismatch::new(
            what(),
            "nothing",
            format!("element {}", show(extra)),
        )),
        None => Ok(()),
    }
}

/// `NF_INET_*`
const fn hook_number(hook: Hook) -> u32 {
    match hook {
        Hook::Prerouting => 0,
        Hook::Input => 1,
        Hook::Forward => 2,
        Hook::Output => 3,
    }
}

fn show(key: &[u8]) -> String {
    let (name, address) = key.split_at_checked(16).unwrap_or((key, &[]));
    let name = String::from_utf8_lossy(name);
    format!("{} {address:?}", name.trim_end_matches('\0'))
}
