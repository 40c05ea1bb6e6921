//! The same rules for a kernel without nf_tables: whole tables of iptables and ip6tables, as data.
//!
//! Owns: what a [`Ruleset`](super::Ruleset) is in the words of xtables ([`Ruleset::tables`](super::Ruleset::tables)),
//! its text for `iptables-restore`, reading what `iptables-save` prints, and comparing the two.
//! Refuses to own: which rules there are (they come from the ruleset, expression by expression) and running programs.
//!
//! | in the ruleset | here |
//! |---|---|
//! | prerouting before -200, then -150; filter hooks | `raw` and `mangle` PREROUTING; `filter` INPUT, FORWARD, OUTPUT |
//! | a named counter and what follows it | a chain of that name; its first rule counts |
//! | a set of interface and address | a chain with one rule for each member |
//! | a meter | `hashlimit` by source |
//! | TPROXY to a port where nobody listens | `socket --transparent`: the target would drop what has no session |
//! | TCP reset | a mark that INPUT rejects (the target works nowhere else) |
//! | ICMP error | dropped: for IPv4 the kernel finds no way back from there, so the gateway says it where it decided |
//!
//! Invariants: an expression that cannot be said is an error, never left out; words are those that `iptables-save`
//! prints, so that reading back is comparing. Fragments are gone before any of these tables sees them (see
//! `kernel::sysctl` of the gateway); their rules stay for kernels that show them.

mod change;
mod compare;
mod lower;
mod read;
mod words;

use std::collections::BTreeMap;
use std::fmt;

use super::expr::Fate;

pub use change::{Change, change};
pub use compare::Difference;
pub use read::{Saved, Unreadable};

/// The tables that rules are put in.
pub const TABLES: [&str; 3] = ["raw", "mangle", "filter"];

/// All tables of one family, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tables {
    /// Each.
    pub tables: BTreeMap<String, Table>,
}

/// One table: its chains by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// Each.
    pub chains: BTreeMap<String, TableChain>,
}

/// One chain.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableChain {
    /// What becomes of a packet that no rule decided, for the built-in ones.
    pub policy: Option<Fate>,
    /// Its rules, in order.
    pub rules: Vec<Line>,
}

/// One rule, without the name of its chain: the words of the command line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Line(pub Vec<String>);

/// A rule that cannot be said with xtables.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("iptables has no words for rule `{rule}` of chain {chain}")]
pub struct Unsayable {
    /// The chain.
    pub chain: &'static str,
    /// Its comment.
    pub rule: &'static str,
}

impl Tables {
    /// Empty tables that let everything through: how a namespace is born, and how it is left behind.
    pub fn open() -> Self {
        let tables = TABLES.map(|name| {
            let chains = built_in(name).iter().map(|chain| {
                let chain_of = TableChain {
                    policy: Some(Fate::Accept),
                    rules: Vec::new(),
                };
                ((*chain).to_owned(), chain_of)
            });
            let chains = chains.collect();
            (name.to_owned(), Table { chains })
        });
        Self {
            tables: tables.into(),
        }
    }
}

/// The chains that a table has by itself.
const fn built_in(table: &str) -> &'static [&'static str] {
    match table.as_bytes() {
        b"raw" => &["PREROUTING", "OUTPUT"],
        b"mangle" => &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
        _ => &["INPUT", "FORWARD", "OUTPUT"],
    }
}

impl fmt::Display for Tables {
    /// As `iptables-restore` reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, table) in &self.tables {
            writeln!(f, "*{name}")?;
            for (name, chain) in &table.chains {
                let policy = match chain.policy {
                    Some(Fate::Accept) => "ACCEPT",
                    Some(Fate::Drop) => "DROP",
                    None => "-",
                };
                writeln!(f, ":{name} {policy} [0:0]")?;
            }
            for (name, chain) in &table.chains {
                for rule in &chain.rules {
                    writeln!(f, "-A {name} {rule}")?;
                }
            }
            writeln!(f, "COMMIT")?;
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, word) in self.0.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            // Words are ours or parsed; a quote in one cannot come from a ruleset.
            if word.contains([' ', '&', '>', '=']) {
                write!(f, "{space}\"{word}\"")?;
            } else {
                write!(f, "{space}{word}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
