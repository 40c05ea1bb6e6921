//! The two rulesets, chain by chain in the order in which a packet meets them.
//!
//! The comment beside each rule is its nft text; the tests compare both with what `nft` itself makes of it.

use super::deliver::{
    deliver, forward, input, listener, output, to_echo, to_session, to_udp, verdict,
};
use super::expr::{Expr, FIN, Fate, RST, SYN, Transport};
use super::words::{
    ACCEPT, DROP, NEIGHBOUR_ADVERTISEMENT, NEIGHBOUR_SOLICITATION, base, chain, first_syn, flags,
    net4, net6, rule, services, solicited_node, tcp, to_discovery, udp, v4, v6, wanted_icmp,
};
use super::{
    Chain, Hook, Plan, Queue, Rule, Ruleset, SERVICE_BROKER, SERVICE_DNS, SERVICE_PROXY, Set,
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

/// IPv6 extension headers that would let a packet hide its real protocol (hop-by-hop, routing, AH, destination).
const EXTENSION_HEADERS: [u8; 4] = [0, 43, 51, 60];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Posture {
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
        to_udp(plan, posture),
        verdict(),
        new_tcp(plan, posture),
        new_udp(plan),
        new_icmp(plan),
        to_echo(posture),
        to_session(),
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
    let mut rules = vec![
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
    ];
    // meta nfproto ipv4 meta l4proto icmp icmp type 8 goto new_icmp, and the word on a closed UDP port
    rules.extend(wanted_icmp("new_icmp", "new_icmp"));
    rules.extend([
        to_discovery(),
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
    ]);
    rules.extend(nowhere());
    rules.extend([
        // meta l4proto tcp goto new_tcp
        rule("tcp", [tcp(), Expr::Goto("new_tcp")]),
        // meta l4proto udp goto new_udp
        rule("udp", [udp(), Expr::Goto("new_udp")]),
        // counter name "drop_protocol" drop
        rule("other protocols", [Expr::Count("drop_protocol"), DROP]),
    ]);
    base("source", Hook::Prerouting, RAW, Fate::Drop, rules)
}

/// Destinations that no decision is asked about.
fn nowhere() -> Vec<Rule> {
    vec![
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
    ]
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

/// ICMP that a door or a session exists for, from its rightful source: echo requests, and the word on closed UDP ports.
fn new_icmp(plan: &Plan) -> Chain {
    let over = |family: Expr, meter| {
        let rate = plan.limits.echoes;
        rule(
            "icmp of one source",
            [
                family,
                Expr::Over { meter, rate },
                Expr::Count("drop_rate"),
                DROP,
            ],
        )
    };
    let mut rules = nowhere();
    // meta nfproto ipv4 update @echoes4 { ip saddr limit rate over 100/second } counter name "drop_rate" drop; accept
    rules.extend([
        over(v4(), SetName::Echoes4),
        over(v6(), SetName::Echoes6),
        rule("icmp goes on", [ACCEPT]),
    ]);
    chain("new_icmp", rules)
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
