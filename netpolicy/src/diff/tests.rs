//! Changes as people read them, and the properties that make an empty diff a promise.

use proptest::prelude::*;

use super::*;
use crate::arbitrary::{self, Draft, NOW, draft, job, question};
use crate::explain::explain;
use crate::name::Host;

fn policy(file: &str, body: &str) -> Policy {
    arbitrary::policy(file, &format!("policy: p\n{body}\n"))
}

fn told(before: &str, after: &str) -> Vec<String> {
    let changes = diff(&policy("a.yaml", before), &policy("b.yaml", after), NOW);
    changes.into_iter().map(|change| change.text).collect()
}

const BASE: &str = "network: domains\nallow:\n- host: a.com\n- { host: '*.x.org', ports: [443] }\n- { cidr: 8.8.0.0/16, ports: [53] }";

#[test]
fn changes_are_told_in_words() {
    for (before, after, expected) in [
        (
            BASE,
            "network: domains\nallow:\n- { cidr: 8.8.0.0/16, ports: [53] }\n- { host: '*.x.org', ports: [443] }\n- { host: a.com, ports: [443] }\n- { host: a.com, ports: [80] }",
            vec![],
        ),
        (
            "network: domains\nallow:\n- host: a.com",
            "network: domains\nallow:\n- host: a.com\n- host: b.com",
            vec!["newly permitted: b.com, tcp ports 80, 443 (b.yaml:5)"],
        ),
        (
            "network: domains\nallow:\n- host: a.com\n- host: b.com",
            "network: domains\nallow:\n- host: a.com",
            vec!["newly denied: b.com, tcp ports 80, 443 (b.yaml:2)"],
        ),
        (
            "network: domains\nallow:\n- { host: a.com, ports: [443] }",
            "network: domains\nallow:\n- { host: a.com, ports: [443, 8000-8010] }",
            vec!["newly permitted: a.com, tcp ports 8000-8010 (b.yaml:4)"],
        ),
        (
            "network: domains\nallow:\n- host: a.com",
            "network: domains\nallow:\n- host: a.com\n- { host: a.com, speaks: any }",
            vec![
                "permitted whatever its bytes are instead of permitted with the bytes usual for its port: a.com, tcp ports 80, 443 (b.yaml:4)",
            ],
        ),
        (
            "network: domains\nallow:\n- { host: a.com, ports: [443], http: [{ methods: [GET] }] }",
            "network: domains\nallow:\n- { host: a.com, ports: [443] }",
            vec!["permitted instead of permitted for GET /**: a.com, tcp ports 443 (b.yaml:4)"],
        ),
        (
            "network: internet",
            "network: internet\ndeny:\n- cidr: 8.8.8.0/24",
            vec![
                "newly denied: 8.8.8.0/24, tcp every port (b.yaml:4)",
                "newly denied: 8.8.8.0/24, udp every port (b.yaml:4)",
                "newly denied: 8.8.8.0/24, icmp (b.yaml:4)",
            ],
        ),
        (
            "network: domains\nallow:\n- host: a.com",
            "network: domains\nallow:\n- host: a.com\n- { host: a.com, protocol: icmp }",
            vec!["newly permitted: a.com, icmp (b.yaml:5)"],
        ),
        (
            "network: domains\nallow:\n- { host: a.com, ports: [443] }",
            "network: domains\nallow:\n- { host: a.com, ports: [443] }\ndeny:\n- cidr: 8.8.8.0/24",
            vec!["newly denied: permitted names that lead to 8.8.8.0/24, tcp ports 443 (b.yaml:6)"],
        ),
        (
            "network: domains\nallow:\n- { host: a.com, ports: [443], until: 2027-01-31 }",
            "network: domains\nallow:\n- { host: a.com, ports: [443] }",
            vec!["from 2027-02-01 on, newly permitted: a.com, tcp ports 443 (b.yaml:4)"],
        ),
        (
            "network: none",
            "network: none\nlimits: { flows: 256 }",
            Vec::new(),
        ),
        (
            "network: none\nlimits: { flows: 5 }",
            "network: none\nlimits: { flows: 6, upload: 1KiB }\ningress: [{ ports: [80] }]",
            vec![
                "limits.flows: 6 instead of 5",
                "limits.upload: 1KiB instead of no limit",
                "newly opened: ingress, tcp ports 80",
            ],
        ),
        (
            "network: domains\nallow:\n- host: a.com\nunknown: ask",
            "network: domains\nallow:\n- host: a.com\n- { host: b.com, ports: [443] }\nunknown: ask",
            vec!["newly permitted without asking: b.com, tcp ports 443 (b.yaml:5)"],
        ),
    ] {
        let found = told(before, after);
        // udp of an entry for tcp is a transport that is not permitted instead of a name: denied either way, or asked
        let found: Vec<&String> = found
            .iter()
            .filter(|text| !text.contains("was asked about"))
            .collect();
        assert_eq!(found, expected, "{before}\n->\n{after}");
    }
}

#[test]
fn opening_everything_is_told_as_a_whole() {
    let found = told(
        "network: domains\nallow:\n- host: a.com",
        "network: internet",
    );
    for part in [
        "newly permitted: every other name, tcp",
        "newly permitted: every other public IPv4 address, tcp every port",
        "every other public IPv6 address, udp",
    ] {
        assert!(
            found.iter().any(|text| text.contains(part)),
            "{part}: {found:#?}"
        );
    }
    assert!(found.len() < 30, "{found:#?}");
    let private = told("network: internet", "network: internet\nprivate: true");
    assert!(
        private
            .iter()
            .any(|text| text.contains("newly permitted: every other private IPv4 address")),
        "{private:#?}"
    );
}

#[test]
fn long_lists_are_compared_in_reasonable_time() {
    let list = |skip: usize| {
        let entries = (0..2000).filter(|n| *n != skip).map(|n| {
            format!(
                "- host: h{n}.example.net\n- {{ cidr: 9.{}.{}.0/24, ports: [53] }}\n",
                n / 200,
                n % 200
            )
        });
        format!("network: domains\nallow:\n{}", entries.collect::<String>())
    };
    let found = told(&list(1), &list(2));
    assert_eq!(found.len(), 4, "{found:#?}");
}

/// The same entries in another order.
fn shuffled(draft: &Draft, by: usize) -> Draft {
    let turn = |entries: &[String]| {
        let mut entries = entries.to_vec();
        let length = entries.len().max(1);
        entries.rotate_left(by % length);
        entries.reverse();
        entries
    };
    Draft {
        head: draft.head.clone(),
        allow: turn(&draft.allow),
        deny: turn(&draft.deny),
    }
}

fn mirrored(effect: Effect) -> Effect {
    match effect {
        Effect::Wider => Effect::Narrower,
        Effect::Narrower => Effect::Wider,
        Effect::Other => Effect::Other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn order_and_repetition_are_no_change(draft in draft(), by in 0_usize..7) {
        let mut twice = shuffled(&draft, by);
        twice.allow.extend(draft.allow.clone());
        prop_assert_eq!(diff(&draft.policy(), &twice.policy(), NOW), []);
    }

    #[test]
    fn what_one_way_is_wider_is_narrower_the_other(a in draft(), b in draft()) {
        let key = |change: &Change, effect: Effect, was: &str, is: &str| {
            (change.what.clone(), change.ports.clone(), change.protocol.map(Protocol::word), change.since, effect, was.to_owned(), is.to_owned())
        };
        let (forth, back) = (diff(&a.policy(), &b.policy(), NOW), diff(&b.policy(), &a.policy(), NOW));
        let mut forth: Vec<_> = forth.iter().map(|c| key(c, c.effect, &c.was, &c.is)).collect();
        let mut back: Vec<_> = back.iter().map(|c| key(c, mirrored(c.effect), &c.is, &c.was)).collect();
        forth.sort();
        back.sort();
        prop_assert_eq!(forth, back);
    }

    #[test]
    fn without_a_change_every_decision_is_the_same(
        a in draft(), b in draft(), drop in any::<prop::sample::Index>(), near in any::<bool>(),
        questions in prop::collection::vec(question(), 40),
    ) {
        // mostly policies that nearly agree: strangers differ anyway
        let mut b = if near { a.clone() } else { b };
        if near && !b.allow.is_empty() {
            let at = drop.index(b.allow.len());
            b.allow.remove(at);
        }
        let changes = diff(&a.policy(), &b.policy(), NOW);
        let (before, after) = (job(a.policy()), job(b.policy()));
        for question in &questions {
            // IPv6 forms of IPv4 addresses follow those
            let embedded = |ip: &std::net::IpAddr| ip.to_string().starts_with("64:ff9b");
            let translated = question.resolves_to.iter().any(embedded) || matches!(&question.to, Host::Address(ip) if embedded(ip));
            if translated {
                continue;
            }
            let (was, is) = (explain(&before, question, NOW), explain(&after, question, NOW));
            if was.decision != is.decision {
                prop_assert!(!changes.is_empty(), "{:?}\n{}\n{}", question, a.text(), b.text());
            }
        }
    }
}
