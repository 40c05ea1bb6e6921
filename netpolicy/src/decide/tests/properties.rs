//! What holds for every policy and every question: layers narrow, denials narrow, never means never, and whatever is
//! permitted can be traced to an entry by a check that shares no code with the decision.

use proptest::prelude::*;

use super::*;
use crate::arbitrary::Draft;
use crate::policy::{NetworkMode, Protocol, Rule, Selector};

const NAMES: &[&str] = &[
    "a.com",
    "b.a.com",
    "c.b.a.com",
    "x.org",
    "nas.local",
    "console.example.net",
    "metadata.google.internal",
    "z.onion",
];
const ADDRESSES: &[&str] = &[
    "8.8.8.8",
    "8.8.4.4",
    "10.0.0.1",
    "192.168.7.1",
    "240.0.0.1",
    "169.254.169.254",
    "127.0.0.1",
    "224.0.0.1",
    "198.18.0.1",
    "93.184.216.1",
    "2606:4700::1",
    "fd00::1",
    "64:ff9b::808:808",
    "::ffff:8.8.8.8",
    "fd5a:1::7",
];
const NETS: &[&str] = &[
    "8.8.8.8/32",
    "8.8.0.0/16",
    "0.0.0.0/0",
    "::/0",
    "10.0.0.0/8",
    "240.0.0.0/8",
    "169.254.0.0/16",
    "192.168.7.0/24",
    "2606:4700::/32",
    "127.0.0.0/8",
];
const PORTS: &[u16] = &[22, 80, 443, 7070];

fn one_of(all: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(all)
}

fn ports() -> impl Strategy<Value = &'static str> {
    one_of(&[
        "",
        "ports: any",
        "ports: [22]",
        "ports: [443]",
        "ports: [1-100, 7070]",
    ])
}

fn entry(key: &'static str) -> impl Strategy<Value = String> {
    let host = (one_of(NAMES), any::<bool>())
        .prop_map(|(name, wild)| format!("host: '{}{name}'", if wild { "*." } else { "" }));
    let cidr = one_of(NETS).prop_map(|net| format!("cidr: '{net}'"));
    let how = one_of(&[
        "",
        "speaks: any",
        "speaks: tls",
        "speaks: http",
        "protocol: udp",
        "protocol: icmp",
        "until: 2020-01-01",
    ]);
    (prop_oneof![host, cidr], ports(), how).prop_map(move |(to, ports, how)| {
        let ports = if how == "protocol: icmp" {
            ""
        } else if ports.is_empty() && to.starts_with("cidr") && key == "allow" {
            "ports: any"
        } else {
            ports
        };
        let how = if key == "deny" && !how.starts_with("protocol") {
            ""
        } else {
            how
        };
        let parts: Vec<&str> = [to.as_str(), ports, how]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        format!("  - {{ {} }}\n", parts.join(", "))
    })
}

fn draft() -> impl Strategy<Value = Draft> {
    let head = (
        one_of(&["none", "domains", "domains", "internet", "internet"]),
        any::<bool>(),
    )
        .prop_map(|(network, private)| format!("network: {network}\nprivate: {private}\n"));
    let entries = |key| prop::collection::vec(entry(key), 0..5);
    (head, entries("allow"), entries("deny")).prop_map(|(head, allow, deny)| Draft {
        head,
        allow,
        deny,
    })
}

fn snapshot(drafts: &[(LayerKind, &Draft)]) -> Snapshot {
    let bodies: Vec<(LayerKind, String)> = drafts
        .iter()
        .map(|(kind, draft)| (*kind, draft.body()))
        .collect();
    layers(
        &bodies
            .iter()
            .map(|(kind, body)| (*kind, body.as_str()))
            .collect::<Vec<_>>(),
    )
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        8 => one_of(ADDRESSES).prop_map(ip),
        1 => any::<u32>().prop_map(|bits| IpAddr::from(std::net::Ipv4Addr::from_bits(bits))),
        1 => any::<u128>().prop_map(|bits| IpAddr::from(std::net::Ipv6Addr::from_bits(bits))),
    ]
}

fn answers() -> impl Strategy<Value = Option<Answers>> {
    let aliases = prop_oneof![
        3 => Just(Vec::new()),
        1 => prop::collection::vec(one_of(NAMES).prop_map(name), 1..3),
    ];
    let said = (prop::collection::vec(address(), 0..3), aliases)
        .prop_map(|(addresses, aliases)| Answers { addresses, aliases });
    prop::option::of(said)
}

fn intent() -> impl Strategy<Value = Intent> {
    let names = || one_of(NAMES).prop_map(name);
    let heard = prop_oneof![
        Just(Heard::NotYet),
        Just(Heard::Nothing),
        (names(), answers()).prop_map(|(name, answers)| Heard::Name { name, answers }),
    ];
    let to = prop_oneof![
        (names(), answers()).prop_map(|(name, answers)| Destination::Name { name, answers }),
        (address(), prop::collection::vec(names(), 0..3), heard).prop_map(
            |(address, bound, heard)| Destination::Address {
                address,
                bound,
                heard
            }
        ),
    ];
    let port = prop_oneof![4 => prop::sample::select(PORTS), 1 => any::<u16>()];
    let protocol = prop::sample::select(&Protocol::ALL[..]);
    let direction = prop_oneof![9 => Just(Direction::Egress), 1 => Just(Direction::Ingress)];
    (direction, protocol, port, to).prop_map(|(direction, protocol, port, to)| Intent {
        direction,
        protocol,
        port,
        to,
    })
}

/// How far an outcome opens the way.
fn rank(outcome: &Connect) -> u8 {
    match outcome {
        Connect::Deny(_) => 0,
        Connect::Hear(_) | Connect::LookUp(_) => 1,
        Connect::Dial(_) => 2,
    }
}

fn narrower(before: &Connect, after: &Connect) -> Result<(), TestCaseError> {
    prop_assert!(
        rank(after) <= rank(before),
        "{:?} became {:?}",
        before,
        after
    );
    if let (Connect::Dial(before), Connect::Dial(after)) = (before, after) {
        prop_assert_eq!(before.addresses(), after.addresses());
        let both = super::super::speech::both(before.ground().speaks(), after.ground().speaks());
        prop_assert_eq!(both, Some(after.ground().speaks()));
    }
    Ok(())
}

fn lookup_rank(s: &Snapshot, name: &Name) -> u8 {
    match decide_lookup(s, name, NOW) {
        Lookup::Deny(_) => 0,
        Lookup::Ancestor => 1,
        Lookup::Permit(_) => 2,
    }
}

/// Whether some rule of a list speaks of this, found by walking all of them.
fn any_rule(
    rules: &[Rule],
    port: u16,
    protocol: Protocol,
    fits: impl Fn(&Selector) -> bool,
) -> bool {
    rules.iter().any(|rule| {
        // an echo has no port: only what speaks of all of them speaks of it
        let on_port = match protocol {
            Protocol::Icmp => rule.ports.0 == [1..=u16::MAX],
            Protocol::Tcp | Protocol::Udp => {
                let mut ranges = rule.ports.0.iter();
                ranges.any(|range| *range.start() <= port && port <= *range.end())
            }
        };
        let on_protocol = rule.protocol.is_none() || rule.protocol == Some(protocol);
        on_port && on_protocol && rule.until.is_none_or(|until| NOW < until) && fits(&rule.to)
    })
}

fn names_it(selector: &Selector, name: &Name) -> bool {
    matches!(selector, Selector::Host(pattern) if pattern.matches(name))
}

fn holds_it(selector: &Selector, address: IpAddr) -> bool {
    matches!(selector, Selector::Cidr(net) if net.contains(&address))
}

/// The conditions of a permit, checked without the decision's code.
fn traceable(s: &Snapshot, ground: &Ground) -> Result<(), TestCaseError> {
    let (port, protocol) = (ground.port(), ground.protocol());
    for layer in s.layers() {
        let policy = layer.policy();
        prop_assert_ne!(policy.network, NetworkMode::None);
        for address in ground.addresses() {
            prop_assert!(!any_rule(&policy.deny, port, protocol, |to| holds_it(
                to, *address
            )));
            let class = s.book().classify(*address).class;
            prop_assert!(
                class == Class::Public || policy.private,
                "{} is {:?}",
                address,
                class
            );
        }
        if let Some(name) = ground.name() {
            prop_assert!(!any_rule(&policy.deny, port, protocol, |to| names_it(
                to, name
            )));
        }
        for alias in ground.aliases() {
            prop_assert!(!any_rule(&policy.deny, port, protocol, |to| names_it(
                to, alias
            )));
        }
        let by_name = ground
            .name()
            .is_some_and(|n| any_rule(&policy.allow, port, protocol, |to| names_it(to, n)));
        let by_net = ground
            .addresses()
            .iter()
            .all(|a| any_rule(&policy.allow, port, protocol, |to| holds_it(to, *a)));
        prop_assert!(policy.network == NetworkMode::Internet || by_name || by_net);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 700, ..ProptestConfig::default() })]

    #[test]
    fn a_denial_more_never_permits_more(policy in draft(), floor in draft(), more in entry("deny"), ask in intent()) {
        let mut denied = policy.clone();
        denied.deny.push(more);
        let before = snapshot(&[(LayerKind::Instance, &floor), (LayerKind::Job, &policy)]);
        let after = snapshot(&[(LayerKind::Instance, &floor), (LayerKind::Job, &denied)]);
        narrower(&decide_connect(&before, &ask, NOW), &decide_connect(&after, &ask, NOW))?;
        for text in NAMES {
            prop_assert!(lookup_rank(&after, &name(text)) <= lookup_rank(&before, &name(text)));
        }
    }

    #[test]
    fn a_layer_more_never_permits_more(job in draft(), floor in draft(), other in draft(), ask in intent()) {
        let before = snapshot(&[(LayerKind::Workspace, &other), (LayerKind::Job, &job)]);
        let after = snapshot(&[(LayerKind::Instance, &floor), (LayerKind::Workspace, &other), (LayerKind::Job, &job)]);
        narrower(&decide_connect(&before, &ask, NOW), &decide_connect(&after, &ask, NOW))?;
        for text in NAMES {
            prop_assert!(lookup_rank(&after, &name(text)) <= lookup_rank(&before, &name(text)));
        }
    }

    #[test]
    fn never_means_never_and_permits_are_traceable(job in draft(), floor in draft(), ask in intent()) {
        let s = snapshot(&[(LayerKind::Instance, &floor), (LayerKind::Job, &job)]);
        if let Connect::Dial(permit) = decide_connect(&s, &ask, NOW) {
            prop_assert!(!permit.addresses().is_empty());
            if permit.ground().direction() == Direction::Egress {
                for address in permit.addresses() {
                    let class = s.book().classify(*address).class;
                    let never = [Class::Metadata, Class::Loopback, Class::Multicast, Class::Gateway];
                    prop_assert!(!never.contains(&class), "{} is {:?}", address, class);
                    prop_assert!(class != Class::Host || !s.own().ports.contains(&ask.port));
                }
                traceable(&s, permit.ground())?;
            }
        }
    }

    #[test]
    fn what_a_door_would_look_up_dns_looks_up_too(job in draft(), floor in draft(), ask in intent()) {
        let s = snapshot(&[(LayerKind::Instance, &floor), (LayerKind::Job, &job)]);
        let egress = Intent { direction: Direction::Egress, ..ask };
        if let Connect::LookUp(name) = decide_connect(&s, &egress, NOW) {
            prop_assert_eq!(lookup_rank(&s, &name), 2, "{}", name);
        }
    }

    #[test]
    fn bytes_never_carry_a_denied_or_foreign_name(job in draft(), ask in intent(), said in one_of(NAMES)) {
        let s = snapshot(&[(LayerKind::Job, &job)]);
        if let Connect::Dial(permit) = decide_connect(&s, &ask, NOW)
            && permit.ground().direction() == Direction::Egress
        {
            let ground = permit.into_ground();
            let said = name(said);
            for evidence in [
                Evidence::Tls { name: Some(said.clone()) },
                Evidence::Http { host: Some(Host::Name(said.clone())), port: None, method: "GET".into(), path: "/".into() },
            ] {
                if decide_bytes(&s, &ground, &evidence, NOW).is_ok() {
                    prop_assert!(ground.name().is_none_or(|own| *own == said));
                    let deny = &s.layers()[0].policy().deny;
                    prop_assert!(!any_rule(deny, ground.port(), ground.protocol(), |to| names_it(to, &said)));
                }
            }
        }
    }
}
