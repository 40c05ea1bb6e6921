//! Compares what the kernel holds with a ruleset: tables, chains, every rule and expression, sets and their elements.

use std::collections::BTreeSet;

use netpolicy::ruleset::{Chain, Hook, Rule, Ruleset, Set, TABLE};

use super::lower::{Vm, fate_code, lower};
use super::read::{Found, FoundChain, FoundRule, FoundSet};
use super::write::{EVALUATED_FLAG, TIMEOUT_FLAG, key_shape};
use crate::kernel::error::Mismatch;

/// `NFPROTO_INET`
const INET: u8 = 1;
/// `NFT_OBJECT_COUNTER`
const COUNTER: u32 = 1;

/// The first difference, if any. Other tables in the namespace are a difference too: nobody else has business there.
pub fn check(rules: &Ruleset, found: &Found) -> Result<(), Mismatch> {
    let tables = [(INET, TABLE.to_owned())];
    if found.tables != tables {
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
    let chains = found.chains.iter().map(|c| c.name.as_str()).collect();
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
        found
            .chains
            .iter()
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
