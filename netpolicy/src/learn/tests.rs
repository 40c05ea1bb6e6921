//! A proposal as people read it, and the properties that make it safe to start from.

use proptest::prelude::*;

use super::unanswered::UNANSWERED;
use super::*;
use crate::arbitrary::{NOW, job};
use crate::reason::Reason;

fn contact(to: &str, port: u16) -> Contact {
    let to = match to.parse::<std::net::IpAddr>() {
        Ok(address) => Host::Address(address),
        Err(_) => Host::Name(Name::parse(to).unwrap()),
    };
    let address = match &to {
        Host::Name(_) => Some("93.184.216.34".parse().unwrap()),
        Host::Address(address) => Some(*address),
    };
    Contact {
        to,
        port: Some(port),
        protocol: Protocol::Tcp,
        address,
        class: Some(Class::Public),
        heard: None,
        request: None,
        opaque: false,
        failed: false,
        was: Verdict::Permit,
    }
}

fn learn(contacts: &[Contact], options: Options) -> Learnt {
    let mut learner = Learner::default();
    for (at, contact) in (1_795_000_000..).zip(contacts) {
        learner.add(
            contact,
            Evidence {
                count: 1,
                first: at,
                last: at,
            },
            options,
        );
    }
    learner.finish(options, Catalogue::shipped(), NOW)
}

#[test]
fn the_narrowest_list_is_proposed_with_its_evidence() {
    let found = learn(
        &[
            contact("b.example.net", 443),
            contact("a.example.net", 443),
            contact("a.example.net", 8443),
            contact("a.example.net", 443),
            contact("203.0.112.9", 5432),
            Contact {
                opaque: true,
                ..contact("ssh.example.net", 443)
            },
            Contact {
                protocol: Protocol::Udp,
                ..contact("time.example.net", 123)
            },
            Contact {
                was: Verdict::Deny(Reason::NameNotAllowed),
                ..contact("denied.example.net", 443)
            },
            contact("api.github.com", 443),
            Contact {
                address: Some("10.0.0.5".parse().unwrap()),
                class: Some(Class::Private),
                ..contact("db.example.net", 5432)
            },
            contact("nas.local", 80),
            contact("metadata.google.internal", 80),
            Contact {
                class: Some(Class::Metadata),
                ..contact("169.254.169.254", 80)
            },
            Contact {
                class: Some(Class::Host),
                ..contact("203.0.112.1", 80)
            },
        ],
        Options::default(),
    );
    insta::assert_snapshot!(found.text);
    assert_eq!((found.entries, found.left_out.len()), (5, 6));
    let mine = Options {
        private: true,
        flagged: true,
        ..Options::default()
    };
    let wider = learn(
        &[
            contact("api.github.com", 443),
            Contact {
                address: Some("10.0.0.5".parse().unwrap()),
                class: Some(Class::Private),
                ..contact("db.example.net", 5432)
            },
        ],
        mine,
    );
    assert!(
        wider.text.contains("private: true") && wider.entries == 2,
        "{}",
        wider.text
    );
}

#[test]
fn what_never_answered_is_proposed_only_when_asked_for_and_never_without_its_class() {
    let failed = |to: &str, class: Option<Class>| Contact {
        failed: true,
        class,
        ..contact(to, 443)
    };
    let record = [
        failed("down.example.net", Some(Class::Public)),
        failed("here.example.net", Some(Class::Host)),
        failed("93.184.200.2", Some(Class::Host)),
        failed("old.example.net", None),
        failed("93.184.200.3", None),
        // it answers at other times
        failed("a.example.net", Some(Class::Public)),
        contact("a.example.net", 443),
    ];
    let plain = learn(&record, Options::default());
    assert_eq!((plain.entries, plain.left_out.len()), (1, 5), "{plain:?}");
    assert!(plain.text.contains("# 2 flows"), "{}", plain.text);
    assert!(plain.left_out.iter().all(|one| one.why == UNANSWERED));
    let asked = Options {
        failed: true,
        ..Options::default()
    };
    let wider = learn(&record, asked);
    assert_eq!((wider.entries, wider.left_out.len()), (2, 4), "{wider:?}");
    assert!(
        wider.text.contains("host: \"down.example.net\""),
        "{}",
        wider.text
    );
    assert!(!wider.text.contains("  - { cidr"), "{}", wider.text);
    let all = Options {
        private: true,
        ..asked
    };
    let widest = learn(&record, all);
    assert_eq!(
        (widest.entries, widest.left_out.len()),
        (4, 2),
        "{widest:?}"
    );
}

#[test]
fn wildcards_are_proposed_only_when_asked_for_and_never_over_a_public_suffix() {
    let many = |suffix: &str| -> Vec<Contact> {
        (0..5)
            .map(|n| contact(&format!("h{n}{suffix}"), 443))
            .collect()
    };
    let options = Options {
        wildcards: Some(3),
        ..Options::default()
    };
    assert!(
        !learn(&many(".cdn.example.net"), Options::default())
            .text
            .contains('*')
    );
    let found = learn(&many(".cdn.example.net"), options);
    assert!(
        found.text.contains("\"*.cdn.example.net\"") && found.text.contains("5 names"),
        "{}",
        found.text
    );
    for suffix in [
        ".com",
        ".co.uk",
        ".github.io",
        ".s3.amazonaws.com",
        ".blob.core.windows.net",
    ] {
        let found = learn(&many(suffix), options);
        let entries = found
            .text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'));
        assert!(
            !entries.into_iter().any(|line| line.contains('*')),
            "{}",
            found.text
        );
    }
}

#[test]
fn look_alike_names_are_shown_as_they_are_asked_for() {
    let found = learn(&[contact("exаmple.com", 443)], Options::default());
    assert!(
        found.text.contains("xn--exmple-4nf.com") && found.text.is_ascii(),
        "{}",
        found.text
    );
}

#[test]
fn nothing_recorded_gives_a_policy_that_permits_nothing() {
    let found = learn(&[], Options::default());
    assert!(found.text.contains("network: none") && found.entries == 0);
    assert!(crate::document::parse("p", &found.text, None).is_ok());
}

const NAMES: &[&str] = &[
    "a.com",
    "b.a.com",
    "c.a.com",
    "d.a.com",
    "acme.co.uk",
    "x.github.io",
    "y.github.io",
    "z.github.io",
    "api.github.com",
    "nas.local",
    "printer",
    "metadata.google.internal",
    "z.onion",
    "dns.google",
    "bucket.s3.amazonaws.com",
];
const ADDRESSES: &[&str] = &[
    "8.8.8.8",
    "1.1.1.1",
    "10.0.0.1",
    "192.168.7.1",
    "240.0.0.1",
    "169.254.169.254",
    "127.0.0.1",
    "2606:4700::1",
    "fd00::1",
    "64:ff9b::808:808",
    "::ffff:8.8.8.8",
];

fn any_contact() -> impl Strategy<Value = Contact> {
    let address = || {
        prop::sample::select(ADDRESSES).prop_map(|text| text.parse::<std::net::IpAddr>().unwrap())
    };
    let name = || prop::sample::select(NAMES).prop_map(|text| Name::parse(text).unwrap());
    let to = prop_oneof![3 => name().prop_map(Host::Name), 1 => address().prop_map(Host::Address)];
    let class = prop::option::of(prop::sample::select(vec![
        Class::Public,
        Class::Private,
        Class::Host,
        Class::Gateway,
    ]));
    let port = prop::option::weighted(
        0.9,
        prop_oneof![2 => prop::sample::select(vec![22_u16, 80, 443]), 1 => any::<u16>()],
    );
    let protocol = prop::sample::select(&Protocol::ALL[..]);
    let was =
        prop_oneof![4 => Just(Verdict::Permit), 1 => Just(Verdict::Deny(Reason::NameNotAllowed))];
    (
        to,
        port,
        protocol,
        prop::option::of(address()),
        class,
        prop::option::weighted(0.3, name()),
        any::<bool>(),
        any::<bool>(),
        was,
    )
        .prop_map(
            |(to, port, protocol, address, class, heard, opaque, failed, was)| {
                let address = match &to {
                    Host::Address(own) => Some(*own),
                    Host::Name(_) => address,
                };
                let heard =
                    heard.filter(|_| protocol == Protocol::Tcp && matches!(to, Host::Address(_)));
                let opaque = opaque && heard.is_none() && protocol == Protocol::Tcp;
                Contact {
                    to,
                    port,
                    protocol,
                    address,
                    class,
                    heard,
                    request: None,
                    opaque,
                    failed: failed && was == Verdict::Permit,
                    was,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_is_learnt_passes_the_check_and_permits_exactly_what_it_was_learnt_from(
        contacts in prop::collection::vec(any_contact(), 0..25), private in any::<bool>(), failed in any::<bool>(),
        wildcards in prop::option::of(2_usize..4),
    ) {
        let options = Options { private, flagged: false, failed, wildcards };
        let found = learn(&contacts, options);
        let policy = crate::document::parse("learned", &found.text, None).map_err(|m| TestCaseError::fail(format!("{m:?}\n{}", found.text)))?;
        let setting = Setting { now: NOW, catalogue: Catalogue::shipped(), floors: &[] };
        prop_assert_eq!(lint::check(&policy, &setting), [], "{}", found.text);
        prop_assert!(private || !policy.private);
        for rule in &policy.allow {
            if let crate::policy::Selector::Host(Pattern::Below(apex)) = &rule.to {
                prop_assert!(wildcards.is_some() && !is_public_suffix(apex), "{}", found.text);
            }
        }
        let left: u64 = found.left_out.iter().map(|one| one.evidence.count).sum();
        let s = job(policy);
        let wanted: Vec<&Contact> = contacts.iter().filter(|c| c.was == Verdict::Permit && c.port.is_some()).collect();
        let refused = wanted.iter().filter(|contact| decide(&s, contact, NOW) != Verdict::Permit).count();
        // every contact that the proposal does not permit is named among what is left out
        prop_assert!(refused as u64 <= left, "{} refused, {} left out\n{}", refused, left, found.text);
        for contact in contacts {
            let class = contact.address.map(|address| AddressBook::default().classify(address).class);
            if contact.port.is_some() && matches!(class, Some(Class::Metadata | Class::Loopback)) {
                prop_assert!(decide(&s, &contact, NOW) != Verdict::Permit);
            }
        }
    }
}
