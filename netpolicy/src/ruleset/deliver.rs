//! The second half of a packet's way: to its listener, or to the answer for the place that it asked for; and the hooks
//! that nothing else may pass.
//!
//! Owns the chains from priority mangle on. Refuses to own which sources and shapes get this far.

use super::build::Posture;
use super::expr::{Expr, Fate, FlowMark, IcmpAnswer, IpFamily, Transport};
use super::words::{
    ACCEPT, DROP, base, chain, first_syn, rule, services, tcp, to_discovery, udp, v4, v6,
    wanted_icmp,
};
use super::{
    Chain, Hook, NOBODY, Plan, Queue, SERVICE_BROKER, SERVICE_DNS, SERVICE_PROXY, SetName,
};

/// After the verdict on a held SYN: an accepted packet goes on to the next base chain, not to the next rule.
const MANGLE: i32 = -150;
const FILTER: i32 = 0;

/// Gives each packet that got this far to its listener, or answers for the place that it asked for.
pub(super) fn deliver(plan: &Plan, posture: Posture) -> Chain {
    // meta nfproto ipv4 meta l4proto icmp icmp type 8 goto to_echo, and the word on a closed UDP port: goto to_session
    let mut rules: Vec<_> = wanted_icmp("to_echo", "to_session").into();
    rules.extend([
        to_discovery(),
        // udp dport 53 goto to_dns
        rule(
            "dns over udp",
            [udp(), Expr::Port(SERVICE_DNS), Expr::Goto("to_dns")],
        ),
        // tcp dport 53 goto to_dns
        rule(
            "dns over tcp",
            [tcp(), Expr::Port(SERVICE_DNS), Expr::Goto("to_dns")],
        ),
    ]);
    for (port, comment, to_chain) in [
        (SERVICE_BROKER, "broker", "to_broker"),
        (SERVICE_PROXY, "proxy", "to_proxy"),
    ] {
        // ip daddr SERVICE tcp dport 80 goto to_broker
        rules.extend(services(plan).map(|(family, to)| {
            rule(
                comment,
                [family, to, tcp(), Expr::Port(port), Expr::Goto(to_chain)],
            )
        }));
    }
    match (posture, plan.queue) {
        // tcp flags & (fin | syn | rst | ack) == syn counter name "reject_sealed" reject with tcp reset
        (Posture::Sealed, _) => {
            rules.push(rule(
                "sealed",
                [
                    tcp(),
                    first_syn(),
                    Expr::Count("reject_sealed"),
                    Expr::RejectReset,
                ],
            ));
        }
        // tcp flags & (fin | syn | rst | ack) == syn goto verdict
        (Posture::Enforcing, Queue::Native(_) | Queue::Compat(_)) => {
            rules.push(rule(
                "first syn",
                [tcp(), first_syn(), Expr::Goto("verdict")],
            ));
        }
        (Posture::Enforcing, Queue::None) => {}
    }
    rules.extend([
        // meta l4proto tcp goto to_door
        rule("tcp", [tcp(), Expr::Goto("to_door")]),
        // meta l4proto udp goto to_udp
        rule("udp", [udp(), Expr::Goto("to_udp")]),
        // counter name "drop_other" drop
        rule("anything else", [Expr::Count("drop_other"), DROP]),
    ]);
    base("deliver", Hook::Prerouting, MANGLE, Fate::Drop, rules)
}

/// Turns the mark of a verdict into the answer that a router or the far end would give.
pub(super) fn verdict() -> Chain {
    let answer = |comment, mark, answer| rule(comment, [Expr::Mark(mark), tcp(), answer]);
    let rules = vec![
        // meta mark 1 goto to_door
        rule(
            "dialled",
            [Expr::Mark(FlowMark::Deliver), Expr::Goto("to_door")],
        ),
        // meta mark 2 meta l4proto tcp reject with tcp reset
        answer("refused", FlowMark::Reset, Expr::RejectReset),
        // meta mark 3 meta l4proto tcp reject with icmpx type host-unreachable
        answer(
            "host unreachable",
            FlowMark::HostUnreachable,
            Expr::Reject(IcmpAnswer::HostUnreachable),
        ),
        // meta mark 4 meta l4proto tcp reject with icmpx type no-route
        answer(
            "no route",
            FlowMark::NoRoute,
            Expr::Reject(IcmpAnswer::NoRoute),
        ),
        // meta mark 5 meta l4proto tcp reject with icmpx type admin-prohibited
        answer(
            "prohibited",
            FlowMark::Prohibited,
            Expr::Reject(IcmpAnswer::Prohibited),
        ),
        // counter name "drop_no_verdict" drop: a SYN that nobody decided
        rule("no verdict", [Expr::Count("drop_no_verdict"), DROP]),
    ];
    chain("verdict", rules)
}

/// Hands over to one transparent listener. Segments of a socket that exists go to that socket (also replies to
/// connections that the gateway opened); without a listener the packet falls through and is dropped.
pub(super) fn listener(name: &'static str, port: u16) -> Chain {
    let to = |family: IpFamily| {
        // meta nfproto ipv4 meta mark set 1 meta l4proto tcp tproxy ip to :9040 accept
        let steps = |transport| {
            let exprs = [
                Expr::Family(family),
                Expr::Protocol(transport),
                Expr::Tproxy { family, port },
                Expr::SetMark(FlowMark::Deliver),
                ACCEPT,
            ];
            rule("to the listener", exprs)
        };
        if name == "to_dns" {
            vec![steps(Transport::Tcp), steps(Transport::Udp)]
        } else {
            vec![steps(Transport::Tcp)]
        }
    };
    let mut rules = to(IpFamily::V4);
    rules.extend(to(IpFamily::V6));
    // counter name "drop_other" drop
    rules.push(rule("nobody listens", [Expr::Count("drop_other"), DROP]));
    chain(name, rules)
}

/// Datagrams go to the session that they belong to (a socket bound to the destination and connected to the source), and
/// without one to the door, up to a rate: a flood that no session takes must not fill the door's buffer for all. Sealed,
/// sessions go on and everything else is refused.
pub(super) fn to_udp(plan: &Plan, posture: Posture) -> Chain {
    let hand = |comment, family: IpFamily, cut: Option<Expr>, port| {
        // meta nfproto ipv4 meta l4proto udp tproxy ip to :9041 meta mark set 1 accept
        let mut made = rule(comment, [Expr::Family(family), udp()]);
        made.exprs.extend(cut);
        made.exprs.extend([
            Expr::Tproxy { family, port },
            Expr::SetMark(FlowMark::Deliver),
            ACCEPT,
        ]);
        made
    };
    let over = |family: Expr, meter| {
        let rate = plan.limits.datagrams;
        rule(
            "datagrams of one source",
            [
                family,
                udp(),
                Expr::Over { meter, rate },
                Expr::Count("drop_rate"),
                DROP,
            ],
        )
    };
    // nobody listens on that port: only a session's socket takes the packet, or the next rule does
    let mut rules = vec![
        hand("to its session", IpFamily::V4, None, NOBODY),
        hand("to its session", IpFamily::V6, None, NOBODY),
    ];
    match posture {
        Posture::Sealed => rules.push(rule(
            "udp",
            [
                // meta l4proto udp counter name "reject_udp" reject with icmpx type port-unreachable
                udp(),
                Expr::Count("reject_udp"),
                Expr::Reject(IcmpAnswer::PortUnreachable),
            ],
        )),
        Posture::Enforcing => {
            let may_cut = Some(Expr::MayCut4);
            rules.extend([
                over(v4(), SetName::Datagrams4),
                over(v6(), SetName::Datagrams6),
                hand("may be cut", IpFamily::V4, may_cut, plan.ports.udp_cut),
                hand("to the door", IpFamily::V4, None, plan.ports.udp),
                hand("to the door", IpFamily::V6, None, plan.ports.udp),
            ]);
        }
    }
    // counter name "drop_other" drop
    rules.push(rule("nobody listens", [Expr::Count("drop_other"), DROP]));
    chain("to_udp", rules)
}

/// Echo requests go to the echo door, a socket that sees all of them; the kernel itself answers none
/// (`icmp_echo_ignore_all`). Sealed, they are refused.
pub(super) fn to_echo(posture: Posture) -> Chain {
    let rules = match posture {
        // meta mark set 1 accept
        Posture::Enforcing => vec![rule(
            "to the echo door",
            [Expr::SetMark(FlowMark::Deliver), ACCEPT],
        )],
        // counter name "reject_sealed" reject with icmpx type admin-prohibited
        Posture::Sealed => vec![rule(
            "sealed",
            [
                Expr::Count("reject_sealed"),
                Expr::Reject(IcmpAnswer::Prohibited),
            ],
        )],
    };
    chain("to_echo", rules)
}

/// A sandbox that closed a UDP port says so: the kernel looks for the session's socket, which is bound to the link that
/// the word came over and connected to both ends that it quotes, and tells that socket and no other.
pub(super) fn to_session() -> Chain {
    // meta mark set 1 accept
    let told = rule("to its session", [Expr::SetMark(FlowMark::Deliver), ACCEPT]);
    chain("to_session", vec![told])
}

/// Only what a listener rule marked reaches a socket.
pub(super) fn input() -> Chain {
    let rules = vec![
        // meta mark 1 accept
        rule("for a listener", [Expr::Mark(FlowMark::Deliver), ACCEPT]),
        to_discovery(),
        // counter name "drop_other" drop
        rule("anything else", [Expr::Count("drop_other"), DROP]),
    ];
    base("input", Hook::Input, FILTER, Fate::Drop, rules)
}

/// Nothing is ever forwarded; the sysctls say so too.
pub(super) fn forward() -> Chain {
    base(
        "forward",
        Hook::Forward,
        FILTER,
        Fate::Drop,
        vec![
            // counter name "drop_other" drop
            rule("anything", [Expr::Count("drop_other"), DROP]),
        ],
    )
}

/// Only towards a sandbox, on its own link.
pub(super) fn output() -> Chain {
    let rules = vec![
        // meta nfproto ipv4 oifname . ip daddr @source4 accept
        rule(
            "to an ipv4 member",
            [v4(), Expr::DestinationIn(SetName::Source4), ACCEPT],
        ),
        // meta nfproto ipv6 oifname . ip6 daddr @source6 accept
        rule(
            "to an ipv6 member",
            [v6(), Expr::DestinationIn(SetName::Source6), ACCEPT],
        ),
        // drop: the kernel's own group reports end here, so they are not counted
        rule("anything else", [DROP]),
    ];
    base("output", Hook::Output, FILTER, Fate::Drop, rules)
}
