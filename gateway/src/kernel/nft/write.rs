//! Writes rules through libnftnl: the whole table in one batch, or set elements alone.
//!
//! A batch is one `sendmsg`: the kernel takes it whole or not at all, and packets meet either the old table or the new.

use std::ffi::CString;
use std::io;

use netlink_sys::{Socket, SocketAddr};
use netpolicy::ruleset::{
    Chain, Element, Fate, Hook, Key, METER_SIZE, METER_TIMEOUT, Ruleset, SetName, TABLE,
};
use nftnl::nftnl_sys as sys;
use nftnl::{Batch, ChainType, FinalizedBatch, MsgType, Policy, ProtoFamily, Rule, Table};

use super::ext::{Declaration, NamedCounter, Raw, RawSet};
use super::lower::{Vm, lower};
use crate::kernel::buffers;
use crate::kernel::error::{Act, KernelError};
use crate::kernel::lanes::{self, LaneChain};
use crate::kernel::wire;

/// Whole tables with thousands of elements exceed the default buffers; root may exceed the limit.
const BUFFER: usize = 32 << 20;

/// Opens the socket that writes. Its port number tells our own changes from foreign ones.
pub fn open() -> Result<Socket, KernelError> {
    let socket = wire::netfilter_socket().act("opening the rule socket")?;
    buffers::send(&socket, BUFFER).act("enlarging the rule socket's buffer")?;
    buffers::receive(&socket, BUFFER).act("enlarging the rule socket's buffer")?;
    Ok(socket)
}

/// Replaces the table by this one: add, delete, add in one transaction, so that it works whether it is there or not.
pub fn replace(socket: &Socket, rules: &Ruleset) -> Result<(), KernelError> {
    let mut batch = Batch::new();
    let table = table();
    batch.add(&table, MsgType::Add);
    batch.add(&table, MsgType::Del);
    batch.add(&table, MsgType::Add);
    for counter in &rules.counters {
        batch.add(&NamedCounter::new(&table, counter), MsgType::Add);
    }
    for (id, set) in (1..).zip(&rules.sets) {
        let mut raw = RawSet::new(&table, &declaration(set.name, id));
        for element in &set.elements {
            raw.element(&element.key());
        }
        batch.add(&raw, MsgType::Add);
        raw.write_elements(&mut batch, MsgType::Add);
    }
    let chains: Vec<_> = rules
        .chains
        .iter()
        .map(|chain| (chain, new_chain(&table, chain)))
        .collect();
    for (_, raw) in &chains {
        batch.add(raw, MsgType::Add);
    }
    for (chain, raw) in &chains {
        for rule in &chain.rules {
            let mut line = Rule::new(raw);
            for step in rule.exprs.iter().flat_map(lower) {
                line.add_expr(&expression(&step));
            }
            line.set_comment(c_text(rule.comment))
                .map_err(KernelError::Unusable)?;
            batch.add(&line, MsgType::Add);
        }
    }
    commit(socket, &batch.finalize()).act(format!("applying table {TABLE}"))
}

/// Takes the table away; fine when there is none.
pub fn delete(socket: &Socket) -> Result<(), KernelError> {
    let mut batch = Batch::new();
    let table = table();
    batch.add(&table, MsgType::Add);
    batch.add(&table, MsgType::Del);
    commit(socket, &batch.finalize()).act(format!("deleting table {TABLE}"))
}

/// Replaces the table of lanes by this one, or takes it away where there are none.
pub fn replace_lanes(socket: &Socket, chains: &[LaneChain]) -> Result<(), KernelError> {
    let mut batch = Batch::new();
    let table = Table::new(c_text(lanes::TABLE), ProtoFamily::NetDev);
    batch.add(&table, MsgType::Add);
    batch.add(&table, MsgType::Del);
    if !chains.is_empty() {
        batch.add(&table, MsgType::Add);
    }
    for chain in chains {
        let name = c_text(chain.link.as_str());
        let mut raw = nftnl::Chain::new(&name, &table);
        // Family netdev counts its own hooks; its ingress is 0, as prerouting is elsewhere.
        raw.set_hook(nftnl::Hook::PreRouting, lanes::PRIORITY);
        raw.set_type(ChainType::Filter);
        raw.set_policy(Policy::Accept);
        raw.set_device(&name);
        batch.add(&raw, MsgType::Add);
        for rule in &chain.rules {
            let mut line = Rule::new(&raw);
            for step in &rule.steps {
                line.add_expr(&expression(step));
            }
            line.set_comment(c_text(rule.comment))
                .map_err(KernelError::Unusable)?;
            batch.add(&line, MsgType::Add);
        }
    }
    let result = commit(socket, &batch.finalize());
    match result {
        // A kernel without the family has no lanes; members are refused there, everything else works.
        Err(error)
            if chains.is_empty()
                && matches!(
                    error.raw_os_error(),
                    Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::ENOENT)
                ) =>
        {
            Ok(())
        }
        result => result.act(format!("applying table {}", lanes::TABLE)),
    }
}

/// Adds or deletes set elements, all or none.
pub fn change_elements(
    socket: &Socket,
    elements: &[Element],
    kind: MsgType,
) -> Result<(), KernelError> {
    let mut batch = Batch::new();
    let table = table();
    for name in SetName::ALL {
        let mut raw = RawSet::named(&table, name.as_str());
        elements
            .iter()
            .filter(|e| e.set() == name)
            .for_each(|e| raw.element(&e.key()));
        raw.write_elements(&mut batch, kind);
    }
    commit(socket, &batch.finalize()).act("changing the source sets")
}

fn table() -> Table {
    Table::new(c_text(TABLE), ProtoFamily::Inet)
}

fn new_chain<'a>(table: &'a Table, chain: &Chain) -> nftnl::Chain<'a> {
    let mut raw = nftnl::Chain::new(c_text(chain.name), table);
    if let Some(base) = chain.base {
        raw.set_hook(hook(base.hook), base.priority);
        raw.set_type(ChainType::Filter);
        raw.set_policy(match base.policy {
            Fate::Accept => Policy::Accept,
            Fate::Drop => Policy::Drop,
        });
    }
    raw
}

const fn hook(hook: Hook) -> nftnl::Hook {
    match hook {
        Hook::Prerouting => nftnl::Hook::PreRouting,
        Hook::Input => nftnl::Hook::In,
        Hook::Forward => nftnl::Hook::Forward,
        Hook::Output => nftnl::Hook::Out,
    }
}

/// Flags and types of linux/netfilter/nf_tables.h and nft's datatype numbers (concatenations are shifted by 6 bits).
pub(super) const TIMEOUT_FLAG: u32 = 0x10;
pub(super) const EVALUATED_FLAG: u32 = 0x20;
const TYPE_IPV4: u32 = 7;
const TYPE_IPV6: u32 = 8;
const TYPE_INTERFACE: u32 = 41;

fn declaration(name: SetName, id: u32) -> Declaration<'static> {
    let (key_type, key_length) = key_shape(name.key());
    let (flags, meter) = if name.is_meter() {
        (
            TIMEOUT_FLAG | EVALUATED_FLAG,
            Some((METER_SIZE, u64::from(METER_TIMEOUT) * 1000)),
        )
    } else {
        (0, None)
    };
    let host_order = matches!(name.key(), Key::InterfaceIpv4 | Key::InterfaceIpv6);
    Declaration {
        name: name.as_str(),
        id,
        flags,
        key_type,
        key_length,
        meter,
        host_order,
    }
}

/// Type number and length of a key.
pub(super) const fn key_shape(key: Key) -> (u32, u32) {
    match key {
        Key::InterfaceIpv4 => ((TYPE_INTERFACE << 6) | TYPE_IPV4, 20),
        Key::InterfaceIpv6 => ((TYPE_INTERFACE << 6) | TYPE_IPV6, 32),
        Key::Ipv4 => (TYPE_IPV4, 4),
        Key::Ipv6 => (TYPE_IPV6, 16),
    }
}

const COMPARE_EQUAL: u32 = 0;
const COMPARE_DIFFERS: u32 = 1;
const HEADER_PRESENT: u32 = 1;
const LOOKUP_INVERTED: u32 = 1;
const LIMIT_INVERTED: u32 = 1;
const DYNSET_UPDATE: u32 = 1;
const COUNTER_OBJECT: u32 = 1;

/// The libnftnl form of one kernel expression.
fn expression(step: &Vm) -> Raw {
    match step {
        Vm::Meta { key, register } => Raw::new(c"meta")
            .word(sys::NFTNL_EXPR_META_KEY, *key)
            .word(sys::NFTNL_EXPR_META_DREG, *register),
        Vm::MetaSet { key } => Raw::new(c"meta")
            .word(sys::NFTNL_EXPR_META_KEY, *key)
            .word(sys::NFTNL_EXPR_META_SREG, 1),
        Vm::Payload {
            base,
            offset,
            length,
            register,
        } => Raw::new(c"payload")
            .word(sys::NFTNL_EXPR_PAYLOAD_BASE, *base)
            .word(sys::NFTNL_EXPR_PAYLOAD_OFFSET, *offset)
            .word(sys::NFTNL_EXPR_PAYLOAD_LEN, *length)
            .word(sys::NFTNL_EXPR_PAYLOAD_DREG, *register),
        Vm::HeaderExists { kind } => Raw::new(c"exthdr")
            .word(sys::NFTNL_EXPR_EXTHDR_DREG, 1)
            .byte(sys::NFTNL_EXPR_EXTHDR_TYPE, *kind)
            .word(sys::NFTNL_EXPR_EXTHDR_OFFSET, 0)
            .word(sys::NFTNL_EXPR_EXTHDR_LEN, 1)
            .word(sys::NFTNL_EXPR_EXTHDR_FLAGS, HEADER_PRESENT)
            .word(sys::NFTNL_EXPR_EXTHDR_OP, 0),
        Vm::Mask { mask } => masked(mask),
        Vm::Compare { equal, data } => Raw::new(c"cmp")
            .word(sys::NFTNL_EXPR_CMP_SREG, 1)
            .word(
                sys::NFTNL_EXPR_CMP_OP,
                if *equal {
                    COMPARE_EQUAL
                } else {
                    COMPARE_DIFFERS
                },
            )
            .bytes(sys::NFTNL_EXPR_CMP_DATA, data),
        Vm::Lookup { set, inverted } => {
            let raw = Raw::new(c"lookup")
                .word(sys::NFTNL_EXPR_LOOKUP_SREG, 1)
                .text(sys::NFTNL_EXPR_LOOKUP_SET, set);
            if *inverted {
                raw.word(sys::NFTNL_EXPR_LOOKUP_FLAGS, LOOKUP_INVERTED)
            } else {
                raw
            }
        }
        Vm::Load { data } => Raw::new(c"immediate")
            .word(sys::NFTNL_EXPR_IMM_DREG, 1)
            .bytes(sys::NFTNL_EXPR_IMM_DATA, data),
        Vm::PayloadWrite {
            base,
            offset,
            length,
        } => Raw::new(c"payload")
            .word(sys::NFTNL_EXPR_PAYLOAD_BASE, *base)
            .word(sys::NFTNL_EXPR_PAYLOAD_OFFSET, *offset)
            .word(sys::NFTNL_EXPR_PAYLOAD_LEN, *length)
            .word(sys::NFTNL_EXPR_PAYLOAD_SREG, 1),
        Vm::Untrack => Raw::new(c"notrack"),
        Vm::Forward => Raw::new(c"fwd").word(sys::NFTNL_EXPR_FWD_SREG_DEV, 1),
        other => action(other),
    }
}

/// Expressions that do something to the packet.
fn action(step: &Vm) -> Raw {
    match step {
        Vm::Tproxy { family } => Raw::new(c"tproxy")
            .word(sys::NFTNL_EXPR_TPROXY_FAMILY, *family)
            .word(sys::NFTNL_EXPR_TPROXY_REG_PORT, 1),
        Vm::Reject { kind, code } => {
            let raw = Raw::new(c"reject").word(sys::NFTNL_EXPR_REJECT_TYPE, *kind);
            raw.byte(sys::NFTNL_EXPR_REJECT_CODE, code.unwrap_or(0))
        }
        Vm::Count { name } => Raw::new(c"objref")
            .word(sys::NFTNL_EXPR_OBJREF_IMM_TYPE, COUNTER_OBJECT)
            .text(sys::NFTNL_EXPR_OBJREF_IMM_NAME, name),
        Vm::Meter { set, rate, burst } => Raw::new(c"dynset")
            .word(sys::NFTNL_EXPR_DYNSET_SREG_KEY, 1)
            .word(sys::NFTNL_EXPR_DYNSET_OP, DYNSET_UPDATE)
            .text(sys::NFTNL_EXPR_DYNSET_SET_NAME, set)
            .inner(
                sys::NFTNL_EXPR_DYNSET_EXPRESSIONS,
                Raw::new(c"limit")
                    .long(sys::NFTNL_EXPR_LIMIT_RATE, *rate)
                    .long(sys::NFTNL_EXPR_LIMIT_UNIT, 1)
                    .word(sys::NFTNL_EXPR_LIMIT_BURST, *burst)
                    .word(sys::NFTNL_EXPR_LIMIT_TYPE, 0)
                    .word(sys::NFTNL_EXPR_LIMIT_FLAGS, LIMIT_INVERTED),
            ),
        Vm::Queue { number } => Raw::new(c"queue")
            .half(sys::NFTNL_EXPR_QUEUE_NUM, *number)
            .half(sys::NFTNL_EXPR_QUEUE_TOTAL, 1)
            .half(sys::NFTNL_EXPR_QUEUE_FLAGS, 0),
        Vm::Target {
            name,
            revision,
            info,
        } => Raw::new(c"target")
            .text(sys::NFTNL_EXPR_TG_NAME, name)
            .word(sys::NFTNL_EXPR_TG_REV, *revision)
            .given(sys::NFTNL_EXPR_TG_INFO, info),
        Vm::Verdict { code, chain } => {
            let raw = Raw::new(c"immediate")
                .word(sys::NFTNL_EXPR_IMM_DREG, 0)
                .word(sys::NFTNL_EXPR_IMM_VERDICT, code.cast_unsigned());
            match chain {
                Some(chain) => raw.text(sys::NFTNL_EXPR_IMM_CHAIN, chain),
                None => raw,
            }
        }
        // Never lowered from a rule: an expression that only a foreign dump can hold must not be written. The kernel
        // refuses the batch.
        _ => Raw::new(c"immediate"),
    }
}

fn masked(mask: &[u8]) -> Raw {
    Raw::new(c"bitwise")
        .word(sys::NFTNL_EXPR_BITWISE_SREG, 1)
        .word(sys::NFTNL_EXPR_BITWISE_DREG, 1)
        .word(
            sys::NFTNL_EXPR_BITWISE_LEN,
            u32::try_from(mask.len()).unwrap_or(u32::MAX),
        )
        .bytes(sys::NFTNL_EXPR_BITWISE_MASK, mask)
        .bytes(sys::NFTNL_EXPR_BITWISE_XOR, &vec![0; mask.len()])
}

/// Sends a batch as one datagram and collects the answers, which the kernel has queued when the send returns.
fn commit(socket: &Socket, batch: &FinalizedBatch) -> io::Result<()> {
    let bytes: Vec<u8> = batch.iter().flatten().copied().collect();
    socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
    let mut buffer = Vec::with_capacity(1 << 16);
    let (mut answers, mut first_error) = (0_usize, None);
    loop {
        buffer.clear();
        match socket.recv(&mut buffer, libc::MSG_DONTWAIT) {
            Ok(_) => {
                for errno in wire::messages(&buffer).filter_map(wire::Received::error) {
                    answers += 1;
                    if errno != 0 && first_error.is_none() {
                        first_error = Some(errno);
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    match (first_error, answers) {
        (Some(errno), _) => Err(io::Error::from_raw_os_error(errno)),
        (None, 0) => Err(io::Error::other("the kernel answered nothing")),
        (None, _) => Ok(()),
    }
}

fn c_text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}
