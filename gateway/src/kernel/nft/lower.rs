//! Rules as the kernel's expressions: registers, offsets and byte order.
//!
//! Owns nothing but the translation. Register 1 carries every comparison; a concatenated key fills registers 1 and 2.

use std::net::IpAddr;

use ipnet::IpNet;
use netpolicy::ruleset::{Expr, Fate, IcmpAnswer, IpFamily, SetName, burst};

/// One kernel expression, with every attribute that matters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Vm {
    /// Load packet metadata.
    Meta {
        /// `NFT_META_*`
        key: u32,
        /// Destination register.
        register: u32,
    },
    /// Set packet metadata from register 1.
    MetaSet {
        /// `NFT_META_*`
        key: u32,
    },
    /// Load packet bytes.
    Payload {
        /// `NFT_PAYLOAD_*_HEADER`
        base: u32,
        /// Offset in that header.
        offset: u32,
        /// Length in bytes.
        length: u32,
        /// Destination register.
        register: u32,
    },
    /// Load into register 1 whether an IPv6 extension header is there.
    HeaderExists {
        /// Its number.
        kind: u8,
    },
    /// Mask register 1.
    Mask {
        /// As many bytes as are looked at.
        mask: Vec<u8>,
    },
    /// Compare register 1.
    Compare {
        /// Equal or not.
        equal: bool,
        /// With these bytes.
        data: Vec<u8>,
    },
    /// Look the key in register 1 up.
    Lookup {
        /// Where.
        set: String,
        /// Match when it is absent.
        inverted: bool,
    },
    /// Load bytes into register 1.
    Load {
        /// These.
        data: Vec<u8>,
    },
    /// Decide.
    Verdict {
        /// `NF_*` or `NFT_*`
        code: i32,
        /// Target chain of a goto.
        chain: Option<String>,
    },
    /// Assign the packet to a transparent socket on the port in register 1.
    Tproxy {
        /// `NFPROTO_*`
        family: u32,
    },
    /// Answer.
    Reject {
        /// `NFT_REJECT_*`
        kind: u32,
        /// Code of an `icmpx` answer.
        code: Option<u8>,
    },
    /// Count in a named counter.
    Count {
        /// Its name.
        name: String,
    },
    /// Write register 1 into the packet; no checksum covers the place.
    PayloadWrite {
        /// `NFT_PAYLOAD_*_HEADER`
        base: u32,
        /// Offset in that header.
        offset: u32,
        /// Length in bytes.
        length: u32,
    },
    /// Put the frame on the link whose index is in register 1.
    Forward,
    /// Skip connection tracking.
    Untrack,
    /// Update a meter keyed by register 1; matches while over the rate.
    Meter {
        /// The dynamic set.
        set: String,
        /// Packets a second.
        rate: u64,
        /// Packets.
        burst: u32,
    },
    /// Hold the packet.
    Queue {
        /// Queue number.
        number: u16,
    },
    /// An xtables target.
    Target {
        /// Its name.
        name: String,
        /// Its revision.
        revision: u32,
        /// Its arguments.
        info: Vec<u8>,
    },
    /// Something that we never write.
    Foreign {
        /// What the kernel calls it.
        name: String,
    },
}

// linux/netfilter/nf_tables.h
pub(in crate::kernel) const META_PROTOCOL: u32 = 1;
pub(super) const META_MARK: u32 = 3;
pub(super) const META_IIFNAME: u32 = 6;
pub(super) const META_OIFNAME: u32 = 7;
pub(super) const META_NFPROTO: u32 = 15;
pub(super) const META_L4PROTO: u32 = 16;
pub(in crate::kernel) const NETWORK: u32 = 1;
pub(in crate::kernel) const TRANSPORT: u32 = 2;
const REJECT_TCP_RESET: u32 = 1;
const REJECT_ICMPX: u32 = 2;
const GOTO: i32 = -4;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
const FRAGMENT_HEADER: u8 = 44;

/// The NFQUEUE target's revision 3: `struct xt_NFQ_info_v3 { u16 queuenum, queues_total, flags; }`, padded to 8.
fn queue_target(number: u16) -> Vm {
    let mut info = number.to_ne_bytes().to_vec();
    info.extend(1_u16.to_ne_bytes());
    info.extend([0; 4]);
    Vm::Target {
        name: "NFQUEUE".into(),
        revision: 3,
        info,
    }
}

/// The kernel expressions of one part of a rule, in order.
pub fn lower(expr: &Expr) -> Vec<Vm> {
    match expr {
        Expr::Family(family) => vec![meta(META_NFPROTO), equal([nfproto(*family)])],
        Expr::Protocol(transport) => vec![meta(META_L4PROTO), equal([transport.number()])],
        Expr::Fragment4 => vec![network(6, 2), mask([0x3f, 0xff]), differs([0, 0])],
        Expr::MayCut4 => vec![network(6, 2), mask([0x40, 0]), equal([0, 0])],
        Expr::Fragment6 => vec![
            Vm::HeaderExists {
                kind: FRAGMENT_HEADER,
            },
            equal([1]),
        ],
        Expr::Options4 => vec![network(0, 1), mask([0x0f]), differs([5])],
        Expr::NextHeader6(number) => vec![network(6, 1), equal([*number])],
        Expr::To(IpAddr::V4(address)) => vec![network(16, 4), equal(address.octets())],
        Expr::To(IpAddr::V6(address)) => vec![network(24, 16), equal(address.octets())],
        Expr::ToNet(net) => to_net(*net),
        Expr::HopLimit(limit) => vec![network(7, 1), equal([*limit])],
        Expr::IcmpType(kind) | Expr::Icmpv6Type(kind) => vec![transport(0, 1), equal([*kind])],
        Expr::PortClosed(family) => port_closed(*family),
        Expr::SourceNotIn(set) => pair(META_IIFNAME, Side::Source, *set, true),
        Expr::DestinationIn(set) => pair(META_OIFNAME, Side::Destination, *set, false),
        Expr::Port(port) => vec![transport(2, 2), equal(port.to_be_bytes())],
        Expr::Flags { mask: bits, value } => vec![transport(13, 1), mask([*bits]), equal([*value])],
        Expr::Mark(mark) => vec![meta(META_MARK), equal((*mark as u32).to_ne_bytes())],
        Expr::Over { meter, rate } => vec![
            address(Side::Source, is_v4(*meter), 1),
            Vm::Meter {
                set: meter.as_str().into(),
                rate: u64::from(*rate),
                burst: burst(*rate),
            },
        ],
        Expr::Count(name) => vec![Vm::Count {
            name: (*name).into(),
        }],
        Expr::Untrack => vec![Vm::Untrack],
        Expr::SetMark(mark) => {
            vec![
                Vm::Load {
                    data: (*mark as u32).to_ne_bytes().into(),
                },
                Vm::MetaSet { key: META_MARK },
            ]
        }
        Expr::Tproxy { family, port } => vec![
            Vm::Load {
                data: port.to_be_bytes().into(),
            },
            Vm::Tproxy {
                family: u32::from(nfproto(*family)),
            },
        ],
        Expr::Queue(number) => vec![Vm::Queue { number: *number }],
        Expr::QueueCompat(number) => vec![queue_target(*number)],
        Expr::RejectReset => vec![Vm::Reject {
            kind: REJECT_TCP_RESET,
            code: None,
        }],
        Expr::Reject(answer) => vec![Vm::Reject {
            kind: REJECT_ICMPX,
            code: Some(icmpx(*answer)),
        }],
        Expr::Goto(chain) => vec![Vm::Verdict {
            code: GOTO,
            chain: Some((*chain).into()),
        }],
        Expr::End(fate) => vec![Vm::Verdict {
            code: fate_code(*fate),
            chain: None,
        }],
    }
}

/// Type and code, and in the quote behind the ICMP header: a plain IPv4 header, and its protocol.
fn port_closed(family: IpFamily) -> Vec<Vm> {
    const UDP: u8 = 17;
    match family {
        IpFamily::V4 => vec![
            transport(0, 2),
            equal([3, 3]),
            transport(8, 1),
            equal([0x45]),
            transport(17, 1),
            equal([UDP]),
        ],
        IpFamily::V6 => vec![
            transport(0, 2),
            equal([1, 4]),
            transport(14, 1),
            equal([UDP]),
        ],
    }
}

/// `NF_DROP` and `NF_ACCEPT`.
pub(in crate::kernel) const fn fate_code(fate: Fate) -> i32 {
    match fate {
        Fate::Drop => 0,
        Fate::Accept => 1,
    }
}

#[derive(Clone, Copy)]
enum Side {
    Source,
    Destination,
}

fn pair(interface: u32, side: Side, set: SetName, inverted: bool) -> Vec<Vm> {
    vec![
        Vm::Meta {
            key: interface,
            register: 1,
        },
        address(side, is_v4(set), 2),
        Vm::Lookup {
            set: set.as_str().into(),
            inverted,
        },
    ]
}

const fn is_v4(set: SetName) -> bool {
    matches!(
        set,
        SetName::Source4
            | SetName::Connects4
            | SetName::Questions4
            | SetName::Datagrams4
            | SetName::Echoes4
    )
}

fn address(side: Side, v4: bool, register: u32) -> Vm {
    let (offset, length) = match (v4, side) {
        (true, Side::Source) => (12, 4),
        (true, Side::Destination) => (16, 4),
        (false, Side::Source) => (8, 16),
        (false, Side::Destination) => (24, 16),
    };
    Vm::Payload {
        base: NETWORK,
        offset,
        length,
        register,
    }
}

/// Prefixes on a byte boundary are compared without a mask, as `nft` does.
fn to_net(net: IpNet) -> Vec<Vm> {
    let (offset, bytes) = match net.network() {
        IpAddr::V4(address) => (16, address.octets().to_vec()),
        IpAddr::V6(address) => (24, address.octets().to_vec()),
    };
    let prefix = usize::from(net.prefix_len());
    if prefix % 8 == 0 {
        let data: Vec<u8> = bytes.into_iter().take(prefix / 8).collect();
        let length = u32::from(net.prefix_len() / 8);
        return vec![
            Vm::Payload {
                base: NETWORK,
                offset,
                length,
                register: 1,
            },
            Vm::Compare { equal: true, data },
        ];
    }
    let mask_bytes = match net.netmask() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let length = u32::from(net.max_prefix_len() / 8);
    vec![
        Vm::Payload {
            base: NETWORK,
            offset,
            length,
            register: 1,
        },
        Vm::Mask { mask: mask_bytes },
        Vm::Compare {
            equal: true,
            data: bytes,
        },
    ]
}

fn meta(key: u32) -> Vm {
    Vm::Meta { key, register: 1 }
}

fn network(offset: u32, length: u32) -> Vm {
    Vm::Payload {
        base: NETWORK,
        offset,
        length,
        register: 1,
    }
}

fn transport(offset: u32, length: u32) -> Vm {
    Vm::Payload {
        base: TRANSPORT,
        offset,
        length,
        register: 1,
    }
}

fn mask<const N: usize>(mask: [u8; N]) -> Vm {
    Vm::Mask { mask: mask.into() }
}

fn equal<const N: usize>(data: [u8; N]) -> Vm {
    Vm::Compare {
        equal: true,
        data: data.into(),
    }
}

fn differs<const N: usize>(data: [u8; N]) -> Vm {
    Vm::Compare {
        equal: false,
        data: data.into(),
    }
}

const fn nfproto(family: IpFamily) -> u8 {
    match family {
        IpFamily::V4 => NFPROTO_IPV4,
        IpFamily::V6 => NFPROTO_IPV6,
    }
}

/// `NFT_REJECT_ICMPX_*`
const fn icmpx(answer: IcmpAnswer) -> u8 {
    match answer {
        IcmpAnswer::NoRoute => 0,
        IcmpAnswer::PortUnreachable => 1,
        IcmpAnswer::HostUnreachable => 2,
        IcmpAnswer::Prohibited => 3,
    }
}
