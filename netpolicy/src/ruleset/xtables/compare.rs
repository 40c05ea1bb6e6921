//! What differs between the tables that were asked for and those that are there.

use std::fmt;

use super::lower::SET_CHAINS;
use super::{Table, TableChain, Tables};
use crate::ruleset::expr::Fate;

/// One difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The table, chain or rule.
    pub what: String,
    /// What it should be.
    pub wanted: String,
    /// What it is.
    pub found: String,
}

impl Difference {
    fn new(what: String, wanted: impl fmt::Display, found: impl fmt::Display) -> Self {
        Self {
            what,
            wanted: wanted.to_string(),
            found: found.to_string(),
        }
    }
}

impl Tables {
    /// The first difference. A table that nobody asked for is one, unless it does nothing.
    pub fn difference(&self, found: &Self) -> Option<Difference> {
        let foreign = found
            .tables
            .iter()
            .find(|(name, table)| !self.tables.contains_key(*name) && !table.does_nothing());
        if let Some((name, _)) = foreign {
            return Some(Difference::new(format!("table {name}"), "nothing", "rules"));
        }
        self.tables
            .iter()
            .find_map(|(name, table)| match found.tables.get(name) {
                Some(there) => table.difference(name, there),
                None => Some(Difference::new(format!("table {name}"), "rules", "nothing")),
            })
    }
}

impl Table {
    fn does_nothing(&self) -> bool {
        let inert =
            |chain: &TableChain| chain.policy == Some(Fate::Accept) && chain.rules.is_empty();
        self.chains.values().all(inert)
    }

    fn difference(&self, table: &str, found: &Self) -> Option<Difference> {
        let names = |table: &Self| {
            let names: Vec<&str> = table.chains.keys().map(String::as_str).collect();
            names.join(" ")
        };
        let (wanted, there) = (names(self), names(found));
        if wanted != there {
            return Some(Difference::new(
                format!("chains of table {table}"),
                wanted,
                there,
            ));
        }
        let mut pairs = self.chains.iter().zip(found.chains.values());
        pairs.find_map(|((name, chain), there)| chain.difference(table, name, there))
    }
}

impl TableChain {
    fn difference(&self, table: &str, name: &str, found: &Self) -> Option<Difference> {
        let what = format!("chain {name} of table {table}");
        if self.policy != found.policy {
            let policy = |chain: &Self| format!("policy {:?}", chain.policy);
            return Some(Difference::new(what, policy(self), policy(found)));
        }
        if self.rules.len() != found.rules.len() {
            let count = |chain: &Self| format!("{} rules", chain.rules.len());
            return Some(Difference::new(what, count(self), count(found)));
        }
        let (wanted, there) = (self.ordered(name), found.ordered(name));
        let mut pairs = wanted.rules.iter().zip(&there.rules).enumerate();
        pairs.find_map(|(at, (rule, there))| {
            let what = format!("rule {at} of {what}");
            (rule != there).then(|| Difference::new(what, rule, there))
        })
    }

    /// Members stand in the order in which they came; only the rule that ends the chain has its place.
    fn ordered(&self, name: &str) -> Self {
        let mut ordered = self.clone();
        if SET_CHAINS.contains(&name) {
            let members = if name.starts_with("source") {
                ordered.rules.len().saturating_sub(1)
            } else {
                ordered.rules.len()
            };
            if let Some(members) = ordered.rules.get_mut(..members) {
                members.sort();
            }
        }
        ordered
    }
}
