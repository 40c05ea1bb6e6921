//! The two rulesets, chain by chain in the order in which a packet meets them.
//!
//! The comment beside each rule is its nft text; the tests compare both with what `nft` itself makes of it.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::expr::{ACK, FIN, RST, SYN};
use super::expr::{Expr, Fate, FlowMark, IcmpAnswer, IpFamily, Transport};
use super::{
    Base, Chain, Hook, Plan, Queue, Rule, Ruleset, SERVICE_BROKER, SERVICE_DNS, SERVICE_PROXY, Set,
    SetName,
};

/// Every counter: the kinds of packets that are dropped or refused.
pub const COUNTERS: [&str; 13] = [
    "drop_fragment",
    "drop_options",
    "drop_spoofed",
    "drop_multicast",
    "drop_link_local",
    "drop_icmp",
    "drop_protocol",
    "drop_flags",
    "drop_rate",
    "drop_no_verdict",
    "reject_udp",
    "reject_sealed",
    "drop_other",
];

/// Before the kernel's defragmentation (-400), which TPROXY switches on with one memory for the whole namespace.
const BEFORE_DEFRAG: i32 = -450;
/// Before connection tracking (-200).
const RAW: i32 = -300;
/// After the verdict on a held SYN: an accepted packet goes on to the next base chain, not to the next rule.
const MANGLE: i32 = -150;
const FILTER: i32 = 0;

/// IPv6 extension headers that would let a packet hide its real protocol (hop-by-hop, routing, AH, destination).
const EXTENSION_HEADERS: [u8; 4] = [0, 43, 51, 60];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Posture {
    Enforcing,
    Sealed,
}

impl Ruleset {
    /// Every acceptable packet reaches its listener; first SYNs are held for a verdict.
    pub fn enforcing(plan: &Plan) -> Self {
        build(plan, Posture::Enforcing)
    }

    /// Broker, DNS and proxy stay reachable (they answer with denials), relays that exist go on, new flows are reset.
    pub fn sealed(plan: &Plan) -> Self {
        build(plan, Posture::Sealed)
    }
}

fn build(plan: &Plan, posture: Posture) -> Ruleset {
    let mut chains = vec![
        discovery(plan),
        listener("to_dns", plan.ports.dns),
        listener("to_broker", plan.ports.broker),
        listener("to_proxy", plan.ports.proxy),
        listener("to_door", plan.ports.tcp),
        verdict(),
        new_tcp(plan, posture),
        new_udp(plan),
    ];
    chains.extend([
        shape(),
        source(),
        deliver(plan, posture),
        input(),
        forward(),
        output(),
    ]);
    Ruleset {
        counters: COUNTERS.to_vec(),
        sets: SetName::ALL
            .into_iter()
            .map(|name| Set {
                name,
                elements: [].into(),
            })
            .collect(),
        chains,
    }
}

/// Drops shapes that later rules cannot judge: fragments, IPv4 options, IPv6 extension headers.
fn shape() -> Chain {
    let mut rules = vec![
        // meta nfproto ipv4 ip frag-off & 0x3fff != 0 counter name "drop_fragment" drop
        rule(
            "ipv4 fragments",
            [v4(), Expr::Fragment4, Expr::Count("drop_fragment"), DROP],
        ),
        // exthdr frag exists counter name "drop_fragment" drop
        rule(
            "ipv6 fragments",
            [v6(), Expr::Fragment6, Expr::Count("drop_fragment"), DROP],
        ),
        // meta nfproto ipv4 ip hdrlength != 5 counter name "drop_options" drop
        rule(
            "ipv4 options",
            [v4(), Expr::Options4, Expr::Count("drop_options"), DROP],
        ),
    ];
    // meta nfproto ipv6 ip6 nexthdr 0 counter name "drop_options" drop (and 43, 51, 60)
    rules.extend(EXTENSION_HEADERS.map(|header| {
        rule(
            "ipv6 extension headers",
            [
                v6(),
                Expr::NextHeader6(header),
                Expr::Count("drop_options"),
                DROP,
            ],
        )
    }));
    base(
        "shape",
        Hook::Prerouting,
        BEFORE_DEFRAG,
        Fate::Accept,
        rules,
    )
}

/// Binds every packet to the sandbox that may send it, and keeps only the protocols that doors exist for.
fn source() -> Chain {
    let rules = vec![
        // meta nfproto ipv4 iifname . ip saddr != @source4 counter name "drop_spoofed" drop
        rule(
            "foreign ipv4 source",
            [
                v4(),
                Expr::SourceNotIn(SetName::Source4),
                Expr::Count("drop_spoofed"),
                DROP,
            ],
        ),
        // meta nfproto ipv6 iifname . ip6 saddr != @source6 counter name "drop_spoofed" drop
        rule(
            "foreign ipv6 source",
            [
                v6(),
                Expr::SourceNotIn(SetName::Source6),
                Expr::Count("drop_spoofed"),
                DROP,
            ],
        ),
        // notrack
        rule("no connection tracking", [Expr::Untrack]),
        // meta nfproto ipv6 meta l4proto ipv6-icmp goto discovery
        rule(
            "icmpv6",
            [
                v6(),
                Expr::Protocol(Transport::Icmpv6),
                Expr::Goto("discovery"),
            ],
        ),
        // meta nfproto ipv4 meta l4proto icmp counter name "drop_icmp" drop
        rule(
            "icmp",
            [
                v4(),
                Expr::Protocol(Transport::Icmp),
                Expr::Count("drop_icmp"),
                DROP,
            ],
        ),
        // ip daddr 224.0.0.0/4 counter name "drop_multicast" drop
        rule(
            "ipv4 multicast",
            [
                v4(),
                Expr::ToNet(net4([224, 0, 0, 0], 4)),
                Expr::Count("drop_multicast"),
                DROP,
            ],
        ),
        // ip daddr 255.255.255.255 counter name "drop_multicast" drop
        rule(
            "ipv4 broadcast",
            [
                v4(),
                Expr::To([255; 4].into()),
                Expr::Count("drop_multicast"),
                DROP,
            ],
        ),
        // ip6 daddr ff00::/8 counter name "drop_multicast" drop
        rule(
            "ipv6 multicast",
            [
                v6(),
                Expr::ToNet(net6(0xff00, 8)),
                Expr::Count("drop_multicast"),
                DROP,
            ],
        ),
        // ip6 daddr fe80::/10 counter name "drop_link_local" drop. IPv4 link-local goes on to the decision: programs that
        // probe 169.254.169.254 must be refused at once, and the attempt must stand in the record.
        rule(
            "ipv6 link-local",
            [
                v6(),
                Expr::ToNet(net6(0xfe80, 10)),
                Expr::Count("drop_link_local"),
                DROP,
            ],
        ),
        // meta l4proto tcp goto new_tcp
        rule("tcp", [tcp(), Expr::Goto("new_tcp")]),
        // meta l4proto udp goto new_udp
        rule("udp", [udp(), Expr::Goto("new_udp")]),
        // counter name "drop_protocol" drop
        rule("other protocols", [Expr::Count("drop_protocol"), DROP]),
    ];
    base("source", Hook::Prerouting, RAW, Fate::Drop, rules)
}

/// Neighbour solicitations and advertisements for the service address and its solicited-node group; nothing else.
fn discovery(plan: &Plan) -> Chain {
    let mut rules = Vec::new();
    for to in [plan.service6, solicited_node(plan.service6)] {
        for kind in [NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT] {
            // ip6 daddr SERVICE ip6 hoplimit 255 icmpv6 type nd-neighbor-solicit accept
            rules.push(rule(
                "neighbour discovery",
                [
                    v6(),
                    Expr::Protocol(Transport::Icmpv6),
                    Expr::To(to.into()),
                    Expr::HopLimit(255),
                    Expr::Icmpv6Type(kind),
                    ACCEPT,
                ],
            ));
        }
    }
    // counter name "drop_icmp" drop
    rules.push(rule("other icmpv6", [Expr::Count("drop_icmp"), DROP]));
    chain("discovery", rules)
}

/// TCP that came from its rightful source: limits, then the services, then the queue.
fn new_tcp(plan: &Plan, posture: Posture) -> Chain {
    let over = |family: Expr, meter| {
        let rate = plan.limits.connects;
        rule(
            "connects of one source",
            [
                family,
                tcp(),
                first_syn(),
                Expr::Over { meter, rate },
                Expr::Count("drop_rate"),
                DROP,
            ],
        )
    };
    let mut rules = vec![
        // tcp flags & (fin | syn) == fin | syn counter name "drop_flags" drop
        rule(
            "syn and fin",
            [
                tcp(),
                flags(SYN | FIN, SYN | FIN),
                Expr::Count("drop_flags"),
                DROP,
            ],
        ),
        // tcp flags & (syn | rst) == syn | rst counter name "drop_flags" drop
        rule(
            "syn and rst",
            [
                tcp(),
                flags(SYN | RST, SYN | RST),
                Expr::Count("drop_flags"),
                DROP,
            ],
        ),
        // tcp flags & (fin | syn | rst | ack) == syn update @connects4 { ip saddr limit rate over 2000/second } … drop
        over(v4(), SetName::Connects4),
        over(v6(), SetName::Connects6),
        // tcp dport 53 accept
        rule("dns passes", [tcp(), Expr::Port(SERVICE_DNS), ACCEPT]),
    ];
    for (port, comment) in [
        (SERVICE_BROKER, "broker passes"),
        (SERVICE_PROXY, "proxy passes"),
    ] {
        // ip daddr SERVICE tcp dport 80 accept
        rules.extend(
            services(plan)
                .map(|(family, to)| rule(comment, [family, to, tcp(), Expr::Port(port), ACCEPT])),
        );
    }
    let held = match (posture, plan.queue) {
        (Posture::Sealed, _) | (_, Queue::None) => None,
        (Posture::Enforcing, Queue::Native(number)) => Some(Expr::Queue(number)),
        (Posture::Enforcing, Queue::Compat(number)) => Some(Expr::QueueCompat(number)),
    };
    // tcp flags & (fin | syn | rst | ack) == syn queue to 0. Never `bypass`: without a reader the packet is dropped.
    rules.extend(held.map(|held| rule("first syn is held", [tcp(), first_syn(), held])));
    // accept
    rules.push(rule("tcp goes on", [ACCEPT]));
    chain("new_tcp", rules)
}

/// UDP that came from its rightful source.
fn new_udp(plan: &Plan) -> Chain {
    let over = |family: Expr, meter| {
        let rate = plan.limits.questions;
        rule(
            "questions of one source",
            [
                family,
                udp(),
                Expr::Port(SERVICE_DNS),
                Expr::Over { meter, rate },
                Expr::Count("drop_rate"),
                DROP,
            ],
        )
    };
    // udp dport 53 update @questions4 { ip saddr limit rate over 5000/second } counter name "drop_rate" drop; accept
    let rules = vec![
        over(v4(), SetName::Questions4),
        over(v6(), SetName::Questions6),
        rule("udp goes on", [ACCEPT]),
    ];
    chain("new_udp", rules)
}

/// Gives each packet that got this far to its listener, or answers for the place that it asked for.
fn deliver(plan: &Plan, posture: Posture) -> Chain {
    let mut rules = vec![
        // meta nfproto ipv6 meta l4proto ipv6-icmp goto discovery
        rule(
            "icmpv6",
            [
                v6(),
                Expr::Protocol(Transport::Icmpv6),
                Expr::Goto("discovery"),
            ],
        ),
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
    ];
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
        // meta l4proto udp counter name "reject_udp" reject with icmpx type port-unreachable
        rule(
            "udp",
            [
                udp(),
                Expr::Count("reject_udp"),
                Expr::Reject(IcmpAnswer::PortUnreachable),
            ],
        ),
        // counter name "drop_other" drop
        rule("anything else", [Expr::Count("drop_other"), DROP]),
    ]);
    base("deliver", Hook::Prerouting, MANGLE, Fate::Drop, rules)
}

/// Turns the mark of a verdict into the answer that a router or the far end would give.
fn verdict() -> Chain {
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
fn listener(name: &'static str, port: u16) -> Chain {
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

/// Only what a listener rule marked reaches a socket.
fn input() -> Chain {
    let rules = vec![
        // meta mark 1 accept
        rule("for a listener", [Expr::Mark(FlowMark::Deliver), ACCEPT]),
        // meta nfproto ipv6 meta l4proto ipv6-icmp goto discovery
        rule(
            "icmpv6",
            [
                v6(),
                Expr::Protocol(Transport::Icmpv6),
                Expr::Goto("discovery"),
            ],
        ),
        // counter name "drop_other" drop
        rule("anything else", [Expr::Count("drop_other"), DROP]),
    ];
    base("input", Hook::Input, FILTER, Fate::Drop, rules)
}

/// Nothing is ever forwarded; the sysctls say so too.
fn forward() -> Chain {
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
fn output() -> Chain {
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

const ACCEPT: Expr = Expr::End(Fate::Accept);
const DROP: Expr = Expr::End(Fate::Drop);
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

fn v4() -> Expr {
    Expr::Family(IpFamily::V4)
}

fn v6() -> Expr {
    Expr::Family(IpFamily::V6)
}

fn tcp() -> Expr {
    Expr::Protocol(Transport::Tcp)
}

fn udp() -> Expr {
    Expr::Protocol(Transport::Udp)
}

fn flags(mask: u8, value: u8) -> Expr {
    Expr::Flags { mask, value }
}

fn first_syn() -> Expr {
    flags(FIN | SYN | RST | ACK, SYN)
}

fn services(plan: &Plan) -> [(Expr, Expr); 2] {
    [
        (v4(), Expr::To(IpAddr::V4(plan.service4))),
        (v6(), Expr::To(IpAddr::V6(plan.service6))),
    ]
}

fn rule<const N: usize>(comment: &'static str, exprs: [Expr; N]) -> Rule {
    Rule {
        comment,
        exprs: exprs.into(),
    }
}

fn chain(name: &'static str, rules: Vec<Rule>) -> Chain {
    Chain {
        name,
        base: None,
        rules,
    }
}

fn base(name: &'static str, hook: Hook, priority: i32, policy: Fate, rules: Vec<Rule>) -> Chain {
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

fn net4(address: [u8; 4], length: u8) -> IpNet {
    // A constant prefix; its length is within 32 by construction.
    Ipv4Net::new_assert(address.into(), length).into()
}

fn net6(first: u16, length: u8) -> IpNet {
    Ipv6Net::new_assert(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0), length).into()
}

/// ff02::1:ffXX:XXXX of an address (RFC 4291 section 2.7.1).
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., _, seventh, eighth] = address.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (seventh & 0xff), eighth)
}
