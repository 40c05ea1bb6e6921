//! The words that both halves of the builder use.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::expr::{ACK, Expr, FIN, Fate, IpFamily, RST, SYN, Transport};
use super::{Base, Chain, Hook, Plan, Rule};

pub(super) const ACCEPT: Expr = Expr::End(Fate::Accept);
pub(super) const DROP: Expr = Expr::End(Fate::Drop);
const ECHO_REQUEST: u8 = 8;
const ECHO_REQUEST6: u8 = 128;
pub(super) const NEIGHBOUR_SOLICITATION: u8 = 135;
pub(super) const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

pub(super) fn v4() -> Expr {
    Expr::Family(IpFamily::V4)
}

pub(super) fn v6() -> Expr {
    Expr::Family(IpFamily::V6)
}

/// What of `ICMPv6` is answered at all: `meta nfproto ipv6 meta l4proto ipv6-icmp goto discovery`.
pub(super) fn to_discovery() -> Rule {
    rule(
        "icmpv6",
        [
            v6(),
            Expr::Protocol(Transport::Icmpv6),
            Expr::Goto("discovery"),
        ],
    )
}

pub(super) fn tcp() -> Expr {
    Expr::Protocol(Transport::Tcp)
}

pub(super) fn udp() -> Expr {
    Expr::Protocol(Transport::Udp)
}

pub(super) fn flags(mask: u8, value: u8) -> Expr {
    Expr::Flags { mask, value }
}

pub(super) fn first_syn() -> Expr {
    flags(FIN | SYN | RST | ACK, SYN)
}

pub(super) fn services(plan: &Plan) -> [(Expr, Expr); 2] {
    [
        (v4(), Expr::To(IpAddr::V4(plan.service4))),
        (v6(), Expr::To(IpAddr::V6(plan.service6))),
    ]
}

/// The ICMP that something exists for: echo requests go to one chain, words on closed UDP ports to another.
pub(super) fn wanted_icmp(echo: &'static str, closed: &'static str) -> [Rule; 4] {
    let four = |comment, what, to| {
        let icmp = Expr::Protocol(Transport::Icmp);
        rule(comment, [v4(), icmp, what, Expr::Goto(to)])
    };
    let six = |comment, what, to| {
        let icmp = Expr::Protocol(Transport::Icmpv6);
        rule(comment, [v6(), icmp, what, Expr::Goto(to)])
    };
    [
        four("echo request", Expr::IcmpType(ECHO_REQUEST), echo),
        six("echo request", Expr::Icmpv6Type(ECHO_REQUEST6), echo),
        four("closed port", Expr::PortClosed(IpFamily::V4), closed),
        six("closed port", Expr::PortClosed(IpFamily::V6), closed),
    ]
}

pub(super) fn rule<const N: usize>(comment: &'static str, exprs: [Expr; N]) -> Rule {
    Rule {
        comment,
        exprs: exprs.into(),
    }
}

pub(super) fn chain(name: &'static str, rules: Vec<Rule>) -> Chain {
    Chain {
        name,
        base: None,
        rules,
    }
}

pub(super) fn base(
    name: &'static str,
    hook: Hook,
    priority: i32,
    policy: Fate,
    rules: Vec<Rule>,
) -> Chain {
    Chain {
        name,
        base: Some(Base {
            hook,
            priority,
            policy,
        }),
        rules,
    }
}

pub(super) fn net4(address: [u8; 4], length: u8) -> IpNet {
    // A constant prefix; its length is within 32 by construction.
    Ipv4Net::new_assert(address.into(), length).into()
}

pub(super) fn net6(first: u16, length: u8) -> IpNet {
    Ipv6Net::new_assert(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0), length).into()
}

/// ff02::1:ffXX:XXXX of an address (RFC 4291 section 2.7.1).
pub(super) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., _, seventh, eighth] = address.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (seventh & 0xff), eighth)
}
