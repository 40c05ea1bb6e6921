//! The rules on a kernel without nf_tables: whole tables through `iptables-restore`, read back through `iptables-save`.
//!
//! Owns: the order of the families (IPv6 first, so that no moment exists in which only IPv4 is shut), writing, reading
//! back, counters, and naming what a kernel lacks. Refuses to own: which tables there are and how they read
//! ([`netpolicy::ruleset::xtables`]), and when they are written.
//!
//! Each table is replaced at once, but not all three together: between two of them a packet meets one half of the old
//! rules and one half of the new. Every hook drops by default in both, and no half lets through what the other stops.
//! No kernel tells of foreign changes to these tables: a watch on the lock of the programs does, mostly ([`lock`]), and
//! whoever keeps the posture looks more often.

mod ask;
pub mod lock;
pub mod programs;

use std::fs;

use netpolicy::ruleset::xtables::{Change, Saved, Tables, change};
use netpolicy::ruleset::{COUNTERS, Element, IpFamily, Queue, Ruleset};

use super::error::{Act, KernelError, Mismatch};
use super::netns::Ns;
use super::nft::Counter;
use super::{sysctl, wire};
use programs::{Keep, Programs};

/// IPv6 first.
const FAMILIES: [IpFamily; 2] = [IpFamily::V6, IpFamily::V4];
/// More rules than any gateway's tables have; who offers a namespace with more is not asked to show them all.
const MOST_RULES: u32 = 1 << 18;
/// The same in octets: rules may be long, and a program that shows them holds them all.
const MOST_OCTETS: u32 = 64 << 20;
/// The counter of what the kernel's reassembly threw away: fragments never get as far as a table.
const FRAGMENTS: &str = "drop_fragment";

/// A chain that every gateway has in its IPv4 tables, whatever its posture: the senders that it knows.
const OWN_CHAIN: &str = "source4";
const OWN_TABLE: &str = "raw";

/// The tables of one namespace.
#[derive(Debug)]
pub struct Xtables {
    programs: Programs,
    ns: Ns,
}

impl Xtables {
    /// Finds the programs; changes nothing.
    pub fn open(ns: &Ns) -> Result<Self, KernelError> {
        Ok(Self {
            programs: Programs::find()?,
            ns: ns.duplicate()?,
        })
    }

    /// With these programs.
    #[cfg(test)]
    pub fn through(ns: &Ns, programs: Programs) -> Result<Self, KernelError> {
        let ns = ns.duplicate()?;
        Ok(Self { programs, ns })
    }

    /// Whose tables.
    pub const fn ns(&self) -> &Ns {
        &self.ns
    }

    /// Which program writes.
    pub fn program(&self) -> String {
        self.programs.restore().display().to_string()
    }

    /// Puts these rules in the place of everything that is there.
    pub fn replace(&self, rules: &Ruleset) -> Result<(), KernelError> {
        self.ns.run(sysctl::keep_no_fragments)?;
        for family in FAMILIES {
            let text = tables(rules, family)?.to_string();
            let written = self.programs.write(&self.ns, family, text, Keep::Nothing);
            written.map_err(|error| self.with_missing(error, rules, family))?;
        }
        // once more for settings that came with a module
        self.ns.run(sysctl::keep_no_fragments)
    }

    /// Lets members in or shuts them out, and leaves every other rule alone.
    pub fn change(&self, elements: &[Element], way: Change) -> Result<(), KernelError> {
        FAMILIES.into_iter().try_for_each(|family| {
            let text = change(elements, family, way);
            if text.is_empty() {
                return Ok(());
            }
            self.programs.write(&self.ns, family, text, Keep::Others)
        })
    }

    /// Takes everything away.
    pub fn clear(&self) -> Result<(), KernelError> {
        FAMILIES.into_iter().try_for_each(|family| {
            let text = Tables::open().to_string();
            self.programs.write(&self.ns, family, text, Keep::Nothing)
        })
    }

    /// Compares what is there with what was asked.
    pub fn check(&self, rules: &Ruleset) -> Result<(), KernelError> {
        for family in FAMILIES {
            let found = self.read(family)?.tables;
            if let Some(difference) = tables(rules, family)?.difference(&found) {
                let what = format!("{} ({})", difference.what, name(family));
                return Err(Mismatch::new(what, difference.wanted, difference.found).into());
            }
        }
        match self.ns.run(sysctl::keeps_fragments)? {
            Some(mismatch) => Err(mismatch.into()),
            None => Ok(()),
        }
    }

    /// Counts by kind, of both families.
    pub fn counters(&self) -> Result<Vec<(String, Counter)>, KernelError> {
        let saved = [self.read(IpFamily::V4)?, self.read(IpFamily::V6)?];
        let fragments = self.ns.run(|| {
            // The thread's own view: `/proc/self` is the main thread's, which is in another namespace.
            let path = "/proc/thread-self/net/snmp";
            let text = fs::read_to_string(path).act("reading the counters of reassembly")?;
            Ok(failed_reassemblies(&text))
        })?;
        let count = |name: &str| {
            let mut sum = Counter {
                packets: if name == FRAGMENTS { fragments } else { 0 },
                bytes: 0,
            };
            for (packets, bytes) in saved.iter().filter_map(|s| s.counters.get(name)) {
                sum.packets = sum.packets.saturating_add(*packets);
                sum.bytes = sum.bytes.saturating_add(*bytes);
            }
            (name.to_owned(), sum)
        };
        Ok(COUNTERS.into_iter().map(count).collect())
    }

    /// What is there, as the programs print it.
    pub fn text(&self) -> Result<String, KernelError> {
        let mut text = String::new();
        for family in FAMILIES {
            text.push_str("# ");
            text.push_str(name(family));
            text.push('\n');
            let printed = self.programs.save(&self.ns, family)?;
            let lines = printed.lines().filter(|line| !line.starts_with('#'));
            lines.for_each(|line| {
                text.push_str(line);
                text.push('\n');
            });
        }
        Ok(text)
    }

    /// Tries how first SYNs can be held, by applying rules that hold them and opening what reads them.
    pub fn detect_queue(
        &self,
        number: u16,
        rules: impl Fn(Queue) -> Ruleset,
    ) -> Result<Queue, KernelError> {
        let readable = self.ns.run(|| Ok(wire::netfilter_socket().is_ok()))?;
        let held = Queue::Compat(number);
        if readable {
            match self.replace(&rules(held)) {
                Ok(()) => return Ok(held),
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "first packets cannot be held");
                }
            }
        }
        Ok(Queue::None)
    }

    fn read(&self, family: IpFamily) -> Result<Saved, KernelError> {
        let text = self.programs.save(&self.ns, family)?;
        Saved::parse(&text)
            .map_err(std::io::Error::other)
            .act(format!("reading the {} tables back", name(family)))
    }

    /// Says which of the needed matches and targets the kernel does not know, where that is why it refused.
    fn with_missing(&self, error: KernelError, rules: &Ruleset, family: IpFamily) -> KernelError {
        let KernelError::Io { act, source } = error else {
            return error;
        };
        let Ok(tables) = tables(rules, family) else {
            return KernelError::Io { act, source };
        };
        let needed = needed(&tables.to_string());
        let asked = self.ns.run(move || Ok(ask::missing(family, needed)));
        let missing = asked.unwrap_or_default().join(", ");
        if missing.is_empty() {
            return KernelError::Io { act, source };
        }
        let source = std::io::Error::other(format!("{source} (the kernel lacks {missing})"));
        KernelError::Io { act, source }
    }
}

/// Whether a namespace holds legacy tables that somebody made; without the programs nothing could be done about them.
pub fn are_there(ns: &Ns) -> Result<bool, KernelError> {
    ns.run(|| {
        Ok(FAMILIES
            .into_iter()
            .any(|family| !ask::tables(family).is_empty()))
    })
}

/// Rules in legacy tables of a namespace that should have none. A policy may stay: it opens nothing.
pub fn strangers(ns: &Ns) -> Result<Option<Mismatch>, KernelError> {
    for (family, table, held) in counted(ns)? {
        let count = held.rules;
        if count > 0 {
            let what = format!("table {table} of iptables ({})", name(family));
            return Ok(Some(Mismatch::new(
                what,
                "no rules",
                format!("{count} rules"),
            )));
        }
    }
    Ok(None)
}

/// Whether the legacy tables of a namespace are a gateway's. Without the programs no gateway could have made them.
pub fn are_a_gateways(ns: &Ns) -> Result<bool, KernelError> {
    let held = counted(ns)?;
    if held.is_empty() {
        return Ok(false);
    }
    if held
        .iter()
        .any(|(_, _, held)| held.rules > MOST_RULES || held.size > MOST_OCTETS)
    {
        let refused = "refusing to attach: the namespace has tables of iptables that are too large to look through";
        return Err(KernelError::Unusable(refused));
    }
    let Ok(tables) = Xtables::open(ns) else {
        return Ok(false);
    };
    let place = (IpFamily::V4, OWN_TABLE);
    // asking for a table that is not there would make it
    let is_there =
        |(family, table, _): &(IpFamily, String, ask::Held)| (*family, &**table) == place;
    Ok(held.iter().any(is_there) && tables.programs.has_chain(ns, place, OWN_CHAIN)?)
}

/// The tables of a namespace, each with what it holds.
fn counted(ns: &Ns) -> Result<Vec<(IpFamily, String, ask::Held)>, KernelError> {
    ns.run(|| {
        let mut counted = Vec::new();
        for family in FAMILIES {
            for table in ask::tables(family) {
                let held = ask::held(family, &table)
                    .act(format!("asking for table {table} of iptables"))?;
                counted.push((family, table, held));
            }
        }
        Ok(counted)
    })
}

fn tables(rules: &Ruleset, family: IpFamily) -> Result<Tables, KernelError> {
    rules
        .tables(family)
        .map_err(std::io::Error::other)
        .act("saying the rules in the words of iptables")
}

const fn name(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "IPv4",
        IpFamily::V6 => "IPv6",
    }
}

/// Matches and targets that a text names: lower case are matches, upper case targets.
fn needed(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut names: Vec<String> = words
        .windows(2)
        .filter_map(|pair| match pair {
            ["-m", name] => Some((*name).to_owned()),
            ["-j", name] if !["ACCEPT", "DROP", "RETURN"].contains(name) => {
                let target = name.bytes().all(|b| b.is_ascii_uppercase());
                target.then(|| (*name).to_owned())
            }
            _ => None,
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

/// `ReasmFails` of `/proc/net/snmp`: IPv4 fragments that were thrown away.
fn failed_reassemblies(text: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with("Ip: "));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return 0;
    };
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs
        .find(|(name, _)| *name == "ReasmFails")
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_parts_are_named_once() {
        let text = "-A A -p tcp -m tcp --dport 53 -m u32 --u32 \"0\" -j source4\n-A A -m u32 -j CT --notrack\n-A A -j DROP";
        assert_eq!(needed(text), ["CT", "tcp", "u32"]);
    }

    #[test]
    fn fragments_that_reassembly_threw_away_are_found() {
        let text =
            "Ip: Forwarding ReasmReqds ReasmFails FragOKs\nIp: 2 9 7 0\nIcmp: InMsgs\nIcmp: 1\n";
        assert_eq!(failed_reassemblies(text), 7);
        assert_eq!(failed_reassemblies("Ip: nothing"), 0);
    }
}
