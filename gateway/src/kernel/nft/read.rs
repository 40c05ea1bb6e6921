//! Reads the table back from the kernel, without libnftnl: what verifies is not what wrote.
//!
//! A parser of our own, over [`wire`](crate::kernel::wire): netlink-packet-netfilter (0.4) knows six kinds of expressions
//! of the many that our rules are made of, so all that it would give is the framing, and its tolerance of what it does
//! not know is the opposite of what is needed here.
//!
//! Everything is parsed into what a [`Ruleset`](netpolicy::ruleset::Ruleset) lowers to; an expression or attribute that
//! we never write becomes [`Vm::Foreign`], which equals nothing.

use std::io;

use netlink_sys::Socket;

use super::lower::Vm;
use crate::kernel::wire::{self, Attr, Attrs, Message, Received};

/// `NFNL_SUBSYS_NFTABLES << 8`
const SUBSYSTEM: u16 = 10 << 8;
const GET_TABLE: u16 = 1;
const GET_CHAIN: u16 = 4;
const GET_RULE: u16 = 7;
const GET_SET: u16 = 10;
const GET_SET_ELEMENT: u16 = 13;
const GET_OBJECT: u16 = 19;

/// What the kernel holds in this namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Family and name of every table, ours or not.
    pub tables: Vec<(u8, String)>,
    /// Chains of all tables.
    pub chains: Vec<FoundChain>,
    /// Sets of all tables.
    pub sets: Vec<FoundSet>,
    /// Named objects: table, name, type.
    pub objects: Vec<(String, String, u32)>,
}

/// A chain as the kernel holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundChain {
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Hook, priority, policy and type of a base chain.
    pub base: Option<(u32, i32, u32, String)>,
    /// The one link that it is hooked to, in family netdev.
    pub link: Option<String>,
    /// Its rules, in order.
    pub rules: Vec<FoundRule>,
}

/// A rule as the kernel holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundRule {
    /// Its comment.
    pub comment: String,
    /// Its expressions.
    pub steps: Vec<Vm>,
}

/// A set as the kernel holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundSet {
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Flags, key type, key length.
    pub shape: (u32, u32, u32),
    /// Keys; not read for meters.
    pub keys: Vec<Vec<u8>>,
}

/// A named counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Reads tables, chains, rules, sets, elements and objects of the namespace that the socket belongs to.
pub fn everything(socket: &Socket) -> io::Result<Found> {
    let tables = tables(socket)?;
    let mut chains = wire::dump(
        socket,
        |flags| ask(GET_CHAIN, flags),
        |m| Ok(Some(chain(m.attrs()))),
    )?;
    let rules = wire::dump(socket, |flags| ask(GET_RULE, flags), |m| Ok(Some(rule(m))))?;
    for (table, name, rule) in rules {
        match chains
            .iter_mut()
            .find(|chain| chain.table == table && chain.name == name)
        {
            Some(chain) => chain.rules.push(rule),
            None => return Err(io::Error::from_raw_os_error(libc::EINTR)),
        }
    }
    let mut sets = wire::dump(socket, |flags| ask(GET_SET, flags), |m| Ok(Some(set(m))))?;
    for (family, set) in &mut sets {
        if set.shape.0 & super::write::EVALUATED_FLAG == 0 {
            set.keys = elements(socket, *family, &set.table, &set.name)?;
        }
    }
    let objects = wire::dump(
        socket,
        |flags| ask(GET_OBJECT, flags),
        |m| {
            let attrs = m.attrs();
            let kind = attrs.find(3).and_then(Attr::be32).unwrap_or(0);
            Ok(text(attrs, 1)
                .zip(text(attrs, 2))
                .map(|(table, name)| (table, name, kind)))
        },
    )?;
    Ok(Found {
        tables,
        chains,
        sets: sets.into_iter().map(|(_, set)| set).collect(),
        objects,
    })
}

/// Family and name of every table of the namespace that the socket belongs to.
pub fn tables(socket: &Socket) -> io::Result<Vec<(u8, String)>> {
    wire::dump(
        socket,
        |flags| ask(GET_TABLE, flags),
        |message| Ok(message.family().zip(text(message.attrs(), 1))),
    )
}

/// The elements of one set.
pub fn elements(socket: &Socket, family: u8, table: &str, set: &str) -> io::Result<Vec<Vec<u8>>> {
    let request = |flags| {
        Message::new(SUBSYSTEM | GET_SET_ELEMENT, flags, family, 0)
            .text(1, table)
            .text(2, set)
    };
    let parts = wire::dump(socket, request, |message| {
        let list = message.attrs().find(3).map(Attr::nested);
        Ok(list.map(|list| {
            list.iter()
                .filter_map(|e| Some(value(e.nested().find(1)?).to_vec()))
                .collect::<Vec<_>>()
        }))
    })?;
    Ok(parts.into_iter().flatten().collect())
}

/// Every named counter with its value.
pub fn counters(socket: &Socket) -> io::Result<Vec<(String, Counter)>> {
    wire::dump(
        socket,
        |flags| ask(GET_OBJECT, flags),
        |message| {
            let attrs = message.attrs();
            let number = |kind| attrs.find(4)?.nested().find(kind).and_then(Attr::be64);
            let counter = Counter {
                bytes: number(1).unwrap_or(0),
                packets: number(2).unwrap_or(0),
            };
            Ok(text(attrs, 2).map(|name| (name, counter)))
        },
    )
}

fn ask(message: u16, flags: u16) -> Message {
    Message::new(SUBSYSTEM | message, flags, 0, 0)
}

fn text(attrs: Attrs<'_>, kind: u16) -> Option<String> {
    attrs.find(kind).and_then(Attr::text).map(str::to_owned)
}

fn chain(attrs: Attrs<'_>) -> FoundChain {
    let base = attrs.find(4).map(|hook| {
        let hook = hook.nested();
        let number = |kind| hook.find(kind).and_then(Attr::be32);
        let priority = number(2).unwrap_or(0).cast_signed();
        let policy = attrs.find(5).and_then(Attr::be32).unwrap_or(u32::MAX);
        (
            number(1).unwrap_or(u32::MAX),
            priority,
            policy,
            text(attrs, 7).unwrap_or_default(),
        )
    });
    FoundChain {
        table: text(attrs, 1).unwrap_or_default(),
        name: text(attrs, 3).unwrap_or_default(),
        base,
        link: attrs.find(4).and_then(|hook| text(hook.nested(), 3)),
        rules: Vec::new(),
    }
}

fn rule(message: Received<'_>) -> (String, String, FoundRule) {
    let attrs = message.attrs();
    // User data: type, length, NUL-terminated text; type 0 is the comment.
    let comment = attrs.find(7).and_then(|data| match data.value {
        [0, length, rest @ ..] => rest.get(..usize::from(*length).saturating_sub(1)),
        _ => None,
    });
    let comment = comment
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .unwrap_or_default();
    let steps = attrs
        .find(4)
        .map(|list| list.nested().iter().map(|e| step(e.nested())).collect())
        .unwrap_or_default();
    let place = (
        text(attrs, 1).unwrap_or_default(),
        text(attrs, 2).unwrap_or_default(),
    );
    (place.0, place.1, FoundRule { comment, steps })
}

fn set(message: Received<'_>) -> (u8, FoundSet) {
    let attrs = message.attrs();
    let number = |kind| attrs.find(kind).and_then(Attr::be32).unwrap_or(0);
    let found = FoundSet {
        table: text(attrs, 1).unwrap_or_default(),
        name: text(attrs, 2).unwrap_or_default(),
        shape: (number(3), number(4), number(5)),
        keys: Vec::new(),
    };
    (message.family().unwrap_or(0), found)
}

/// The bytes in `NFTA_DATA_VALUE`.
fn value(attr: Attr<'_>) -> &[u8] {
    attr.nested().find(1).map_or(&[], |value| value.value)
}

fn step(element: Attrs<'_>) -> Vm {
    let name = element.find(1).and_then(Attr::text).unwrap_or("");
    let data = element.find(2).map_or(Attrs(&[]), Attr::nested);
    known(name, data).unwrap_or_else(|| Vm::Foreign {
        name: name.to_owned(),
    })
}

/// `None` when an attribute is missing, or is there with a value that we never write.
fn known(name: &str, data: Attrs<'_>) -> Option<Vm> {
    let word = |kind| data.find(kind).and_then(Attr::be32);
    let absent_or = |kind, wanted| word(kind).is_none_or(|found| found == wanted).then_some(());
    match name {
        "meta" => match (word(1), word(3)) {
            (Some(register), None) => Some(Vm::Meta {
                key: word(2)?,
                register,
            }),
            (None, Some(1)) => Some(Vm::MetaSet { key: word(2)? }),
            _ => None,
        },
        "payload" => {
            let (base, offset, length) = (word(2)?, word(3)?, word(4)?);
            match (word(1), word(5)) {
                (Some(register), None) => Some(Vm::Payload {
                    base,
                    offset,
                    length,
                    register,
                }),
                (None, Some(1)) => {
                    (6..=8).try_for_each(|kind| absent_or(kind, 0))?;
                    Some(Vm::PayloadWrite {
                        base,
                        offset,
                        length,
                    })
                }
                _ => None,
            }
        }
        "exthdr" => {
            let shape = (word(1)?, word(3)?, word(4)?, word(5)?, word(6)?);
            (shape == (1, 0, 1, 1, 0)).then_some(())?;
            Some(Vm::HeaderExists {
                kind: data.find(2)?.byte()?,
            })
        }
        "bitwise" => {
            absent_or(6, 0)?;
            let (mask, xor) = (value(data.find(4)?), value(data.find(5)?));
            let plain = word(1)? == 1 && word(2)? == 1 && xor.iter().all(|byte| *byte == 0);
            (plain && usize::try_from(word(3)?).ok()? == mask.len()).then(|| Vm::Mask {
                mask: mask.to_vec(),
            })
        }
        "cmp" => {
            let equal = match (word(1)?, word(2)?) {
                (1, 0) => true,
                (1, 1) => false,
                _ => return None,
            };
            Some(Vm::Compare {
                equal,
                data: value(data.find(3)?).to_vec(),
            })
        }
        "lookup" => {
            let inverted = match (word(2)?, word(3), word(5)) {
                (1, None, None | Some(0)) => false,
                (1, None, Some(1)) => true,
                _ => return None,
            };
            Some(Vm::Lookup {
                set: text(data, 1)?,
                inverted,
            })
        }
        _ => acting(name, data),
    }
}

/// Expressions that do something to the packet; as [`known`].
fn acting(name: &str, data: Attrs<'_>) -> Option<Vm> {
    let word = |kind| data.find(kind).and_then(Attr::be32);
    match name {
        "immediate" => immediate(data),
        "notrack" => Some(Vm::Untrack),
        "fwd" => (word(1)? == 1 && word(2).is_none()).then_some(Vm::Forward),
        "tproxy" => match (word(2), word(3)) {
            (None, Some(1)) => Some(Vm::Tproxy { family: word(1)? }),
            _ => None,
        },
        "reject" => {
            let kind = word(1)?;
            let code = (kind != 1)
                .then(|| data.find(2).and_then(Attr::byte))
                .flatten();
            Some(Vm::Reject { kind, code })
        }
        "objref" => (word(1)? == 1)
            .then(|| text(data, 2))
            .flatten()
            .map(|name| Vm::Count { name }),
        "dynset" => meter(data),
        "queue" => {
            let half = |kind| data.find(kind).and_then(Attr::be16);
            let plain = half(2).is_none_or(|n| n == 1)
                && half(3).is_none_or(|n| n == 0)
                && word(4).is_none();
            plain.then_some(())?;
            Some(Vm::Queue { number: half(1)? })
        }
        "target" => Some(Vm::Target {
            name: text(data, 1)?,
            revision: word(2)?,
            info: data.find(3)?.value.to_vec(),
        }),
        _ => None,
    }
}

fn immediate(data: Attrs<'_>) -> Option<Vm> {
    let register = data.find(1)?.be32()?;
    let inner = data.find(2)?.nested();
    match (register, inner.find(1), inner.find(2)) {
        (1, Some(bytes), None) => Some(Vm::Load {
            data: bytes.value.to_vec(),
        }),
        (0, None, Some(verdict)) => {
            let verdict = verdict.nested();
            Some(Vm::Verdict {
                code: verdict.find(1)?.be32()?.cast_signed(),
                chain: text(verdict, 2),
            })
        }
        _ => None,
    }
}

fn meter(data: Attrs<'_>) -> Option<Vm> {
    let word = |kind| data.find(kind).and_then(Attr::be32);
    let plain = word(3)? == 1 && word(4)? == 1 && word(5).is_none() && data.find(10).is_none();
    let timeout = data.find(6).and_then(Attr::be64).unwrap_or(0);
    (plain && timeout == 0).then_some(())?;
    let inner = data.find(7)?.nested();
    (inner.find(1)?.text()? == "limit").then_some(())?;
    let limit = inner.find(2)?.nested();
    let (unit, kind, flags) = (
        limit.find(2)?.be64()?,
        limit.find(4)?.be32()?,
        limit.find(5)?.be32()?,
    );
    ((unit, kind, flags) == (1, 0, 1)).then_some(())?;
    Some(Vm::Meter {
        set: text(data, 1)?,
        rate: limit.find(1)?.be64()?,
        burst: limit.find(3)?.be32()?,
    })
}
