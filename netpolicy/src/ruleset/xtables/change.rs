//! Members come and go: a few rules for `iptables-restore --noflush`, all others untouched.

use std::fmt::Write as _;

use super::lower::{from_member, set_chain, to_member};
use super::words::family_of;
use crate::ruleset::{Element, IpFamily};

/// Which way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Let in.
    Add,
    /// Shut out.
    Remove,
}

/// The text for the members of one family; empty without any. Each table is a transaction of its own: what lets
/// packets in comes last, and goes first.
pub fn change<'a>(
    elements: impl IntoIterator<Item = &'a Element>,
    family: IpFamily,
    change: Change,
) -> String {
    let ours = elements
        .into_iter()
        .filter(|e| family_of(e.address) == family);
    let (mut raw, mut filter) = (String::new(), String::new());
    for element in ours {
        let (sources, members) = (
            set_chain(element.set(), true),
            set_chain(element.set(), false),
        );
        let act = |chain| match change {
            // before the rule that ends the chain
            Change::Add => format!("-I {chain} 1"),
            Change::Remove => format!("-D {chain}"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(raw, "{} {}", act(sources), from_member(element));
        let _ = writeln!(filter, "{} {}", act(members), to_member(element));
    }
    if raw.is_empty() {
        return raw;
    }
    let raw = format!("*raw\n{raw}COMMIT\n");
    let filter = format!("*filter\n{filter}COMMIT\n");
    match change {
        Change::Add => filter + &raw,
        Change::Remove => raw + &filter,
    }
}
