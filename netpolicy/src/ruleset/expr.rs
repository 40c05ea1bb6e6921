//! What a rule is made of. Each variant carries its nft text in [`Expr::render`](super::render) beside its meaning.
//!
//! The vocabulary is closed and small: a rule that cannot be said with it is a rule that nobody has thought through.

use std::net::IpAddr;

use ipnet::IpNet;

use super::SetName;

/// Address family of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The upper-layer protocols that rules name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmpv6,
}

impl Transport {
    /// IANA protocol number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Icmp => 1,
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Icmpv6 => 58,
        }
    }
}

/// What happens to a packet in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Goes on to the next hook.
    Accept,
    /// Vanishes.
    Drop,
}

/// The mark that a verdict on a held SYN carries, and that the next chain turns into an answer.
///
/// Only the gateway sets marks: the veth between two namespaces clears what a sandbox sets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum FlowMark {
    /// Deliver to a listener; also routes the packet to the local table.
    Deliver = 1,
    /// Answer with a TCP reset: refused, or denied.
    Reset = 2,
    /// Answer that the host is unreachable.
    HostUnreachable = 3,
    /// Answer that there is no route.
    NoRoute = 4,
    /// Answer that it is prohibited.
    Prohibited = 5,
}

/// ICMP answers that exist in both families (nft: `icmpx`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpAnswer {
    /// No route to the destination.
    NoRoute,
    /// Nobody listens at that port.
    PortUnreachable,
    /// The host cannot be reached.
    HostUnreachable,
    /// Prohibited.
    Prohibited,
}

/// One part of a rule: a match, or something done to the packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expr {
    /// The packet is of this family.
    Family(IpFamily),
    /// The upper-layer protocol.
    Protocol(Transport),
    /// An IPv4 fragment, the first included (more-fragments bit or an offset).
    Fragment4,
    /// An IPv4 packet that routers may cut (the don't-fragment bit is clear).
    MayCut4,
    /// An IPv6 fragment header anywhere in the chain.
    Fragment6,
    /// An IPv4 header with options.
    Options4,
    /// This number in the next-header field of the fixed IPv6 header.
    NextHeader6(u8),
    /// Destination address.
    To(IpAddr),
    /// Destination prefix.
    ToNet(IpNet),
    /// IPv6 hop limit: 255 proves that no router forwarded it (RFC 4861).
    HopLimit(u8),
    /// ICMP type; follows `Protocol(Icmp)`.
    IcmpType(u8),
    /// ICMPv6 type.
    Icmpv6Type(u8),
    /// A port unreachable that quotes the plain header of a UDP packet; follows a [`Expr::Protocol`] of this family.
    PortClosed(IpFamily),
    /// Interface and source are not a pair of the set.
    SourceNotIn(SetName),
    /// Interface and destination are a pair of the set.
    DestinationIn(SetName),
    /// TCP or UDP destination port; follows a [`Expr::Protocol`].
    Port(u16),
    /// TCP flags under a mask; follows `Protocol(Tcp)`.
    Flags {
        /// Bits looked at.
        mask: u8,
        /// Their value.
        value: u8,
    },
    /// The packet's mark.
    Mark(FlowMark),
    /// The source has gone over so many packets a second (a burst of twice that is free).
    Over {
        /// The meter.
        meter: SetName,
        /// Packets a second.
        rate: u32,
    },
    /// Count under this name.
    Count(&'static str),
    /// Keep connection tracking away: no table to fill.
    Untrack,
    /// Set the mark.
    SetMark(FlowMark),
    /// Hand to the transparent listener on this port, or to the socket that the packet already belongs to.
    Tproxy {
        /// Family; a tproxy expression serves one.
        family: IpFamily,
        /// Port of the listener.
        port: u16,
    },
    /// Hold for the gateway's verdict (nf_tables `queue`), without bypass.
    Queue(u16),
    /// The same through the NFQUEUE target of xtables.
    QueueCompat(u16),
    /// Answer with a TCP reset.
    RejectReset,
    /// Answer with an ICMP error.
    Reject(IcmpAnswer),
    /// Continue in another chain and do not come back.
    Goto(&'static str),
    /// The end.
    End(Fate),
}

/// TCP FIN.
pub const FIN: u8 = 0x01;
/// TCP SYN.
pub const SYN: u8 = 0x02;
/// TCP RST.
pub const RST: u8 = 0x04;
/// TCP ACK.
pub const ACK: u8 = 0x10;
