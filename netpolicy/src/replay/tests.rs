//! What changes and what does not, and what a record cannot say.

use proptest::prelude::*;

use super::*;
use crate::arbitrary::{self, NOW, draft, job, question};
use crate::explain::{Decision, explain};

fn contact(to: &str, port: u16, was: Verdict) -> Contact {
    let to = match to.parse::<IpAddr>() {
        Ok(address) => Host::Address(address),
        Err(_) => Host::Name(Name::parse(to).unwrap()),
    };
    Contact {
        to,
        port: (port != 0).then_some(port),
        protocol: Protocol::Tcp,
        address: None,
        class: None,
        heard: None,
        request: None,
        opaque: false,
        failed: false,
        was,
    }
}

fn policy(body: &str) -> Snapshot {
    job(arbitrary::policy("p.yaml", &format!("policy: p\n{body}\n")))
}

const DENIED: Verdict = Verdict::Deny(Reason::NameNotAllowed);

#[test]
fn recorded_contacts_are_decided_anew() {
    let s = policy(
        "network: domains\nallow:\n- { host: a.com, ports: [443] }\n- { host: b.com, ports: [22] }\n- { cidr: 8.8.8.8, ports: [53] }\ndeny:\n- cidr: 9.9.9.0/24",
    );
    for (contact, expected) in [
        (contact("a.com", 443, DENIED), Verdict::Permit),
        (contact("a.com", 0, DENIED), Verdict::Permit),
        (contact("x.com", 0, Verdict::Permit), DENIED),
        (
            contact("a.com", 22, Verdict::Permit),
            Verdict::Deny(Reason::PortNotAllowed),
        ),
        (contact("8.8.8.8", 53, Verdict::Permit), Verdict::Permit),
        (
            contact("8.8.4.4", 53, Verdict::Permit),
            Verdict::Deny(Reason::AddressNotAllowed),
        ),
        (
            Contact {
                address: Some("9.9.9.9".parse().unwrap()),
                ..contact("a.com", 443, Verdict::Permit)
            },
            Verdict::Deny(Reason::AddressDenied),
        ),
        (
            Contact {
                address: Some("1.1.1.1".parse().unwrap()),
                class: Some(Class::Host),
                ..contact("a.com", 443, Verdict::Permit)
            },
            Verdict::Deny(Reason::NameResolvesToForbidden),
        ),
        (
            Contact {
                address: Some("1.1.1.1".parse().unwrap()),
                class: Some(Class::Public),
                ..contact("a.com", 443, Verdict::Permit)
            },
            Verdict::Permit,
        ),
        (
            Contact {
                opaque: true,
                ..contact("a.com", 443, Verdict::Permit)
            },
            Verdict::Deny(Reason::TlsMalformed),
        ),
        (
            Contact {
                opaque: true,
                ..contact("b.com", 22, Verdict::Permit)
            },
            Verdict::Permit,
        ),
    ] {
        assert_eq!(decide(&s, &contact, NOW), expected, "{contact:?}");
    }
}

#[test]
fn what_the_record_does_not_hold_is_not_guessed() {
    let s = policy(
        "network: domains\nallow:\n- { host: a.com, ports: [443] }\n- { host: b.com, ports: [22] }\n- { cidr: 8.8.8.8, ports: [53] }\ndeny:\n- cidr: 9.9.9.0/24",
    );
    for (contact, expected) in [
        // the address that was in the way is not in the record
        (
            Contact {
                class: Some(Class::Public),
                ..contact("a.com", 443, Verdict::Deny(Reason::AddressDenied))
            },
            Verdict::Undecided,
        ),
        (
            Contact {
                class: Some(Class::Private),
                ..contact("x.com", 443, Verdict::Deny(Reason::NameResolvesToForbidden))
            },
            DENIED,
        ),
        (
            contact("a.com", 443, Verdict::Deny(Reason::TlsNameMissing)),
            Verdict::Deny(Reason::TlsNameMissing),
        ),
        (
            contact(
                "169.254.169.254",
                80,
                Verdict::Deny(Reason::AddressMetadata),
            ),
            Verdict::Deny(Reason::AddressMetadata),
        ),
    ] {
        assert_eq!(decide(&s, &contact, NOW), expected, "{contact:?}");
    }
}

#[test]
fn a_class_that_nothing_opens_decides_without_the_address() {
    let forbidden = Verdict::Deny(Reason::NameResolvesToForbidden);
    let closed = policy("network: domains\nallow:\n- host: a.com");
    let private = policy("network: domains\nprivate: true\nallow:\n- host: a.com");
    let special = policy(
        "network: domains\nprivate: true\nallow:\n- host: a.com\n- { cidr: 192.0.2.0/24, ports: [443] }",
    );
    for (class, under_closed, under_private, under_special) in [
        (
            Class::Private,
            forbidden,
            Verdict::Undecided,
            Verdict::Undecided,
        ),
        (
            Class::Host,
            forbidden,
            Verdict::Undecided,
            Verdict::Undecided,
        ),
        (Class::Special, forbidden, forbidden, Verdict::Undecided),
        (Class::Metadata, forbidden, forbidden, forbidden),
        (Class::Gateway, forbidden, forbidden, forbidden),
    ] {
        // a look-up, and a connect
        for port in [0, 443] {
            let was = Contact {
                class: Some(class),
                ..contact("a.com", port, forbidden)
            };
            for (s, expected) in [
                (&closed, under_closed),
                (&private, under_private),
                (&special, under_special),
            ] {
                assert_eq!(decide(s, &was, NOW), expected, "{was:?}");
            }
        }
    }
}

#[test]
fn changes_are_counted_with_examples_and_the_most_frequent_come_first() {
    let mut replay = Replay::new(policy("network: domains\nallow:\n- host: a.com"), NOW);
    let example = |place: u32| Example {
        place: format!("r.jsonl:{place}"),
        t: 0,
        network: "n".to_owned(),
    };
    for place in 1..=5 {
        replay.add(&contact("a.com", 443, DENIED), 1, example(place));
    }
    replay.add(&contact("b.com", 443, Verdict::Permit), 1, example(6));
    replay.add(&contact("c.com", 443, Verdict::Permit), 40, example(7));
    replay.add(
        &contact("d.com", 443, Verdict::Deny(Reason::NameDenied)),
        3,
        example(8),
    );
    replay.add(&contact("a.com", 80, Verdict::Permit), 2, example(9));
    let report = replay.finish();
    assert!(!report.is_same());
    assert_eq!(report.same, 5);
    let [new] = report.newly_permitted.as_slice() else {
        panic!("{report:?}")
    };
    assert_eq!(
        (new.to.as_str(), new.count, new.examples.len()),
        ("a.com", 5, 3)
    );
    let gone: Vec<(&str, u64)> = report
        .newly_denied
        .iter()
        .map(|group| (group.to.as_str(), group.count))
        .collect();
    assert_eq!(gone, [("c.com", 40), ("b.com", 1)]);
    assert_eq!(report.newly_denied[0].is, "deny name_not_allowed");
}

#[test]
fn a_record_of_strangers_costs_bounded_memory() {
    let mut replay = Replay::new(policy("network: none"), NOW);
    let example = || Example {
        place: String::new(),
        t: 0,
        network: String::new(),
    };
    for n in 0..50_010 {
        replay.add(
            &contact(&format!("h{n}.com"), 443, Verdict::Permit),
            1,
            example(),
        );
    }
    let report = replay.finish();
    assert_eq!((report.newly_denied.len(), report.unlisted), (50_000, 10));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_under_the_same_policy_changes_nothing(draft in draft(), questions in prop::collection::vec(question(), 20)) {
        let s = job(draft.policy());
        let mut replay = Replay::new(s.clone(), NOW);
        for question in questions {
            let found = explain(&s, &question, NOW);
            let address = question.resolves_to.first().copied();
            let was = match (found.decision, found.reason) {
                (Decision::Permit, _) => Verdict::Permit,
                (Decision::Ask, _) => Verdict::Ask,
                (Decision::Deny, reason) => Verdict::Deny(reason.unwrap()),
            };
            // records of denied names hold no address
            let contact = Contact {
                to: question.to, port: Some(question.port), protocol: question.protocol, address, class: None,
                heard: question.sni, request: question.method.zip(question.path), opaque: false, failed: false, was,
            };
            replay.add(&contact, 1, Example { place: String::new(), t: 0, network: String::new() });
        }
        prop_assert!(replay.finish().is_same(), "{}", draft.text());
    }
}
