//! Reads what `iptables-save -c` prints.
//!
//! Strict: a line that is not understood is an error, because what is not understood cannot be compared.

use std::collections::BTreeMap;

use super::{Line, TableChain, Tables};
use crate::ruleset::expr::Fate;

/// Text that is no list of tables.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line} cannot be read: {text}")]
pub struct Unreadable {
    /// Its number, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
}

/// What is there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Saved {
    /// The tables.
    pub tables: Tables,
    /// Packets and bytes that the first rule of each chain has seen, over all tables.
    pub counters: BTreeMap<String, (u64, u64)>,
}

impl Saved {
    /// Reads the output of `iptables-save -c`.
    ///
    /// # Errors
    /// The first line that is not understood, or that ends too early.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        let mut saved = Self::default();
        let mut table = None;
        let mut last = 0;
        for (number, line) in (1..).zip(text.lines()) {
            last = number;
            let unreadable = || Unreadable {
                line: number,
                text: line.chars().take(200).collect(),
            };
            let read = match line.split_at_checked(1) {
                None | Some(("#", _)) => Some(()),
                Some(("*", name)) if table.is_none() => {
                    table = Some(name.to_owned());
                    let fresh = saved
                        .tables
                        .tables
                        .insert(name.to_owned(), super::Table::default());
                    fresh.is_none().then_some(())
                }
                Some((":", rest)) => saved.chain(table.as_deref(), rest),
                Some(_) if line == "COMMIT" => table.take().map(drop),
                Some(_) => saved.rule(table.as_deref(), line),
            };
            read.ok_or_else(unreadable)?;
        }
        match table {
            Some(name) => Err(Unreadable {
                line: last + 1,
                text: format!("the end, inside table {name}"),
            }),
            None => Ok(saved),
        }
    }

    /// `PREROUTING DROP [0:0]`
    fn chain(&mut self, table: Option<&str>, rest: &str) -> Option<()> {
        let table = self.tables.tables.get_mut(table?)?;
        let mut words = rest.split(' ');
        let name = words.next()?;
        let policy = match words.next()? {
            "-" => None,
            "ACCEPT" => Some(Fate::Accept),
            "DROP" => Some(Fate::Drop),
            _ => return None,
        };
        counts(words.next()?)?;
        let chain = TableChain {
            policy,
            rules: Vec::new(),
        };
        let twice = words.next().is_some() || table.chains.insert(name.to_owned(), chain).is_some();
        (!twice).then_some(())
    }

    /// `[3:120] -A PREROUTING -j DROP`
    fn rule(&mut self, table: Option<&str>, line: &str) -> Option<()> {
        let (counted, rest) = line.split_once(" -A ")?;
        let (packets, bytes) = counts(counted)?;
        let mut words = split(rest)?.into_iter();
        let name = words.next()?;
        let table = self.tables.tables.get_mut(table?)?;
        let chain = table.chains.get_mut(&name)?;
        if chain.rules.is_empty() {
            let sum = self.counters.entry(name).or_default();
            *sum = (sum.0.saturating_add(packets), sum.1.saturating_add(bytes));
        }
        chain.rules.push(Line(words.collect()));
        Some(())
    }
}

/// `[packets:bytes]`
fn counts(text: &str) -> Option<(u64, u64)> {
    let (packets, bytes) = text.strip_prefix('[')?.strip_suffix(']')?.split_once(':')?;
    Some((packets.parse().ok()?, bytes.parse().ok()?))
}

/// Words, some in double quotes with backslashes before quotes and backslashes.
fn split(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut letters = text.chars().peekable();
    while letters.peek().is_some() {
        let mut word = String::new();
        if letters.next_if_eq(&'"').is_some() {
            loop {
                match letters.next()? {
                    '"' => break,
                    '\\' => word.push(letters.next()?),
                    letter => word.push(letter),
                }
            }
        } else {
            while let Some(letter) = letters.next_if(|letter| *letter != ' ') {
                word.push(letter);
            }
        }
        words.push(word);
        match letters.next() {
            None => break,
            Some(' ') => {}
            Some(_) => return None,
        }
    }
    Some(words)
}
