//! From the ruleset to tables: base chains to built-in ones, expressions to words.

use std::collections::BTreeMap;

use super::words::{Words, anywhere, mark_text};
use super::{Line, TABLES, Table, TableChain, Tables, Unsayable};
use crate::ruleset::expr::{Expr, Fate, FlowMark, IpFamily};
use crate::ruleset::{Base, Chain, Element, Hook, NOBODY, Rule, Ruleset, SetName};

/// Before connection tracking (-200) is table `raw`.
const LAST_OF_RAW: i32 = -200;

impl Ruleset {
    /// The tables of one family.
    ///
    /// # Errors
    /// A rule that xtables has no words for: it is never left out.
    pub fn tables(&self, family: IpFamily) -> Result<Tables, Unsayable> {
        let mut lowering = Lowering {
            rules: self,
            family,
            made: Tables::open(),
            resets: false,
        };
        lowering.hooks()?;
        Ok(lowering.made)
    }
}

/// The chain that holds one rule for each member of a set, and whether members are sources.
pub(super) const fn set_chain(set: SetName, sources: bool) -> &'static str {
    match (set, sources) {
        (SetName::Source6, true) => "source6",
        (SetName::Source6, false) => "member6",
        (_, true) => "source4",
        (_, false) => "member4",
    }
}

/// Chains whose rules are members, in no order that matters but for the last rule.
pub(super) const SET_CHAINS: [&str; 4] = ["source4", "source6", "member4", "member6"];

/// The rule for a member that may send.
pub(super) fn from_member(element: &Element) -> Line {
    member(element, "-s", "-i", "RETURN")
}

/// The rule for a member that is sent to.
pub(super) fn to_member(element: &Element) -> Line {
    member(element, "-d", "-o", "ACCEPT")
}

fn member(element: &Element, address: &str, link: &str, target: &str) -> Line {
    let length = if element.address.is_ipv4() { 32 } else { 128 };
    let whole = format!("{}/{length}", element.address);
    let words = [
        address,
        &whole,
        link,
        element.interface.as_str(),
        "-j",
        target,
    ];
    Line(words.map(str::to_owned).into())
}

struct Lowering<'a> {
    rules: &'a Ruleset,
    family: IpFamily,
    made: Tables,
    /// Whether anything is answered with a reset.
    resets: bool,
}

/// A chain of the ruleset and where it is being put.
#[derive(Clone, Copy)]
struct Place {
    table: &'static str,
    chain: &'static str,
    /// Another base chain follows in the same hook: to accept is to go on there.
    followed: bool,
}

impl Lowering<'_> {
    fn hooks(&mut self) -> Result<(), Unsayable> {
        let mut hooked: BTreeMap<(&str, &str), Vec<(Base, &Chain)>> = BTreeMap::new();
        for chain in &self.rules.chains {
            if let Some(base) = chain.base {
                hooked.entry(place(base)).or_default().push((base, chain));
            }
        }
        for ((table, built_in), mut chains) in hooked {
            chains.sort_by_key(|(base, _)| base.priority);
            let last = chains.len() - 1;
            for (at, (base, chain)) in chains.into_iter().enumerate() {
                if at < last {
                    self.earlier(table, built_in, base, chain)?;
                } else {
                    let place = Place {
                        table,
                        chain: built_in,
                        followed: false,
                    };
                    self.chain(table, built_in).policy = Some(base.policy);
                    self.fill(place, chain)?;
                }
            }
        }
        if self.resets {
            let mut words = Words::default();
            words.take(&Expr::Protocol(crate::ruleset::Transport::Tcp));
            words.take(&Expr::Mark(FlowMark::Reset));
            let line = words.line("refused", target(["REJECT", "--reject-with", "tcp-reset"]));
            self.chain("filter", "INPUT").rules.insert(0, line);
        }
        Ok(())
    }

    /// A base chain before another one of the same hook and table: a chain that is called.
    fn earlier(
        &mut self,
        table: &'static str,
        built_in: &'static str,
        base: Base,
        chain: &Chain,
    ) -> Result<(), Unsayable> {
        let call = Words::default().line("", target([chain.name]));
        self.chain(table, built_in).rules.push(call);
        let place = Place {
            table,
            chain: chain.name,
            followed: true,
        };
        self.fill(place, chain)?;
        if base.policy == Fate::Drop {
            let end = Words::default().line("", target(["DROP"]));
            self.chain(table, chain.name).rules.push(end);
        }
        Ok(())
    }

    fn fill(&mut self, place: Place, chain: &Chain) -> Result<(), Unsayable> {
        for rule in &chain.rules {
            if let Some(line) = self.rule(place, chain.name, rule)? {
                self.chain(place.table, place.chain).rules.push(line);
            }
        }
        Ok(())
    }

    /// One rule, and the chains it needs; `None` for one of the other family.
    fn rule(
        &mut self,
        place: Place,
        chain: &'static str,
        rule: &Rule,
    ) -> Result<Option<Line>, Unsayable> {
        let other = |expr: &Expr| matches!(expr, Expr::Family(family) if *family != self.family);
        if rule.exprs.iter().any(other) {
            return Ok(None);
        }
        let mut words = Words::default();
        let mut rest = rule.exprs.as_slice();
        while let Some((first, after)) = rest.split_first()
            && words.take(first)
        {
            rest = after;
        }
        let unsayable = Unsayable {
            chain,
            rule: rule.comment,
        };
        let target = self.target(place, &mut words, rest, unsayable)?;
        Ok(Some(words.line(rule.comment, target)))
    }

    /// What is done to a packet that matched.
    fn target(
        &mut self,
        place: Place,
        words: &mut Words,
        rest: &[Expr],
        unsayable: Unsayable,
    ) -> Result<Vec<String>, Unsayable> {
        Ok(match rest {
            [Expr::End(fate)] => end(*fate, place.followed),
            [Expr::Goto(chain)] => {
                self.reach(place.table, chain, &unsayable)?;
                go(chain)
            }
            [Expr::Untrack] => target(["CT", "--notrack"]),
            [Expr::Queue(number) | Expr::QueueCompat(number)] => {
                target(["NFQUEUE", "--queue-num", &number.to_string()])
            }
            [
                Expr::Tproxy { port: NOBODY, .. },
                Expr::SetMark(mark),
                Expr::End(Fate::Accept),
            ] => {
                words.say(["-m", "socket", "--transparent"]);
                self.marked(place.table, *mark)
            }
            [
                Expr::Tproxy { port, .. },
                Expr::SetMark(mark),
                Expr::End(Fate::Accept),
            ] => tproxy(self.family, *port, *mark),
            [Expr::SetMark(mark), Expr::End(Fate::Accept)] if !place.followed => {
                self.marked(place.table, *mark)
            }
            [Expr::RejectReset] => {
                self.resets = true;
                self.marked(place.table, FlowMark::Reset)
            }
            [Expr::Reject(_)] => target(["DROP"]),
            [Expr::Count(name), end] => {
                let ends = std::slice::from_ref(end);
                let then = self.target(place, &mut Words::default(), ends, unsayable)?;
                let rule = Words::default().line("", then);
                self.chain(place.table, name).rules = vec![rule];
                go(name)
            }
            [Expr::SourceNotIn(set), tail @ ..] => {
                let then = self.target(place, &mut Words::default(), tail, unsayable)?;
                let mut rules = self.members(*set, from_member);
                rules.push(Words::default().line("", then));
                self.set(place.table, set_chain(*set, true), rules)
            }
            [Expr::DestinationIn(set), Expr::End(Fate::Accept)] => {
                let rules = self.members(*set, to_member);
                self.set(place.table, set_chain(*set, false), rules)
            }
            _ => return Err(unsayable),
        })
    }

    /// Makes a chain that rules go to, once for each table.
    fn reach(
        &mut self,
        table: &'static str,
        name: &'static str,
        unsayable: &Unsayable,
    ) -> Result<(), Unsayable> {
        let there = self.made.tables.get(table);
        if there.is_some_and(|table| table.chains.contains_key(name)) {
            return Ok(());
        }
        let chain = self.rules.chains.iter().find(|chain| chain.name == name);
        let chain = chain.ok_or_else(|| unsayable.clone())?;
        // There before it is filled: a loop among chains ends here.
        self.chain(table, name);
        let place = Place {
            table,
            chain: name,
            followed: false,
        };
        self.fill(place, chain)
    }

    fn members(&self, set: SetName, line: fn(&Element) -> Line) -> Vec<Line> {
        let sets = self.rules.sets.iter().filter(|there| there.name == set);
        sets.flat_map(|set| set.elements.iter().map(line)).collect()
    }

    fn set(&mut self, table: &'static str, name: &'static str, rules: Vec<Line>) -> Vec<String> {
        self.chain(table, name).rules = rules;
        target([name])
    }

    /// Goes to a chain that sets a mark and lets the packet go on to routing.
    fn marked(&mut self, table: &'static str, mark: FlowMark) -> Vec<String> {
        let name = format!("mark_{}", mark as u32);
        let mark = format!("{}/0xffffffff", mark_text(mark));
        let set = Words::default().line("", target(["MARK", "--set-xmark", &mark]));
        let accept = Words::default().line("", target(["ACCEPT"]));
        self.chain(table, &name).rules = vec![set, accept];
        go(&name)
    }

    fn chain(&mut self, table: &str, name: &str) -> &mut TableChain {
        let table: &mut Table = self.made.tables.entry(table.to_owned()).or_default();
        table.chains.entry(name.to_owned()).or_default()
    }
}

/// The table and the chain of it that stand at a hook.
const fn place(base: Base) -> (&'static str, &'static str) {
    let [raw, mangle, filter] = TABLES;
    match base.hook {
        Hook::Prerouting if base.priority < LAST_OF_RAW => (raw, "PREROUTING"),
        Hook::Prerouting => (mangle, "PREROUTING"),
        Hook::Input => (filter, "INPUT"),
        Hook::Forward => (filter, "FORWARD"),
        Hook::Output => (filter, "OUTPUT"),
    }
}

fn end(fate: Fate, followed: bool) -> Vec<String> {
    target([match (fate, followed) {
        (Fate::Accept, false) => "ACCEPT",
        (Fate::Accept, true) => "RETURN",
        (Fate::Drop, _) => "DROP",
    }])
}

fn tproxy(family: IpFamily, port: u16, mark: FlowMark) -> Vec<String> {
    let (port, mark) = (port.to_string(), format!("{}/0xffffffff", mark_text(mark)));
    let to = anywhere(family);
    target([
        "TPROXY",
        "--on-port",
        &port,
        "--on-ip",
        to,
        "--tproxy-mark",
        &mark,
    ])
}

fn target<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    ["-j"].into_iter().chain(words).map(str::to_owned).collect()
}

fn go(chain: &str) -> Vec<String> {
    ["-g", chain].map(str::to_owned).into()
}
