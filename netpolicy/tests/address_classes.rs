//! Promises about the classes of addresses, against the tables in `tests/cases` and from properties.
//!
//! The truth table is an independent statement of what every block is: the classes that the code gives must follow it
//! row by row, and for every address between the rows.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a wrong table or fixture should fail the test loudly"
)]

mod cases;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netpolicy::addr::{AddressBook, Class, Classified, Reach};
use proptest::prelude::*;

const TRUTH: &str = include_str!("../../tests/cases/ip_table.tsv");
const CLASSES: &str = include_str!("../../tests/cases/address_classes.tsv");

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// The class that architecture 2.5 gives to a label of the truth table.
fn class_of_label(label: &str) -> Class {
    match label {
        "global unicast"
        | "PCP anycast"
        | "TURN anycast"
        | "DNS-SD SRP anycast"
        | "AS112-v4"
        | "AS112-v6"
        | "AMT"
        | "direct delegation AS112"
        | "ORCHIDv2"
        | "drone remote id tags" => Class::Public,
        "private-use" | "shared (CGNAT)" | "unique local" => Class::Private,
        "loopback" | "unspecified" | "this network" => Class::Loopback,
        "multicast" | "multicast (address-space registry)" | "limited broadcast" => {
            Class::Multicast
        }
        "cloud metadata" | "link local (metadata)" => Class::Metadata,
        _ => Class::Special,
    }
}

/// The class of a row. A label names the outer form; mapped and well-known NAT64 addresses name the inner one too.
fn class_of_row(label: &str) -> Class {
    let Some((outer, inner)) = label.rsplit_once(" = ") else {
        return class_of_label(label);
    };
    let inner = class_of_label(inner);
    let is_mapped = outer.starts_with("IPv4-mapped");
    if is_mapped || inner == Class::Public || inner.reach() == Reach::Never {
        inner
    } else {
        Class::Special
    }
}

/// What is never reachable stays so inside every form, and metadata beats the label of its block.
fn is_stricter_than_its_label(found: &Classified, book: &AddressBook) -> bool {
    let inner = found
        .embedded
        .map(|inner| book.classify(inner.into()).class);
    found.class == Class::Metadata
        || (found.class.reach() == Reach::Never && inner == Some(found.class))
}

#[test]
fn every_row_of_the_truth_table_has_its_class_and_reach() {
    let book = AddressBook::default();
    let mut stricter = Vec::new();
    let mut count = 0;
    for row in cases::rows(TRUTH).skip(1) {
        let [address, _, label, _, internet, private] = row.try_into().unwrap();
        let found = book.classify(ip(&address));
        if found.class != class_of_row(&label) {
            assert!(
                is_stricter_than_its_label(&found, &book),
                "{address} ({label}): {found:?}"
            );
            stricter.push(address.clone());
        }
        assert_eq!(
            internet == "allow",
            found.reach == Reach::Policy,
            "{address}: {found:?}"
        );
        assert_eq!(
            private == "allow",
            found.reach >= Reach::Private,
            "{address}: {found:?}"
        );
        count += 1;
    }
    assert_eq!(count, 244);
    // exactly the rows whose label cannot say what is inside
    assert_eq!(
        stricter,
        [
            "::2",
            "::7fff:ffff",
            "::ffff:ffff",
            "::ffff:0:0:0",
            "::ffff:0:7fff:ffff",
            "::ffff:0:ffff:ffff",
            "64:ff9b:1::",
            "64:ff9b:1:7fff:ffff:ffff:ffff:ffff",
            "64:ff9b:1:ffff:ffff:ffff:ffff:ffff",
            "2001::",
            "2001:0:4136:e378:8000:63bf:80ff:fffe",
            "2001:0:7fff:ffff:ffff:ffff:ffff:ffff",
            "2001:0:ffff:ffff:ffff:ffff:ffff:ffff",
            "2002::",
            "2002:7fff:ffff:ffff:ffff:ffff:ffff:ffff",
            "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "fe80::a9fe:a9fe",
        ]
    );
}

#[test]
fn every_case_address_has_its_class() {
    for row in cases::rows(CLASSES) {
        let [case, address, class, reach] = row.try_into().unwrap();
        let found = AddressBook::default().classify(ip(&address));
        let written = serde_json::json!([found.class, found.reach]);
        assert_eq!(
            written,
            serde_json::json!([class, reach]),
            "{case}: {address}"
        );
    }
}

/// IP-R4-01 to IP-R4-26 and IP-R6-01 to IP-R6-29: not only the rows, any address of the block.
#[test]
fn every_address_of_a_block_has_the_class_of_its_rows() {
    let book = AddressBook::default();
    let rows: Vec<Vec<String>> = cases::rows(TRUTH).skip(1).collect();
    let blocks: Vec<IpNet> = rows.iter().filter_map(|row| row[1].parse().ok()).collect();
    let mut checked = 0;
    for row in &rows {
        let Ok(block) = row[1].parse::<IpNet>() else {
            continue;
        };
        if row[2].contains("metadata") || row[2].contains("judge") {
            continue;
        }
        let mut random = cases::Random::new(7);
        for _ in 0..200 {
            let address = random.address_in(block);
            let around = blocks.iter().filter(|outer| outer.contains(&address));
            if around.max_by_key(|outer| outer.prefix_len()) != Some(&block) {
                continue;
            }
            let found = book.classify(address);
            let expected = class_of_label(&row[2]);
            assert!(
                found.class == expected || is_stricter_than_its_label(&found, &book),
                "{address} in {block} ({expected:?}): {found:?}"
            );
            checked += 1;
        }
    }
    assert!(checked > 20_000, "{checked}");
}

/// What no block of the truth table holds is global unicast, or unallocated outside 2000::/3.
#[test]
fn every_address_between_the_blocks_is_public_or_unallocated() {
    let book = AddressBook::default();
    let blocks: Vec<IpNet> = cases::rows(TRUTH)
        .filter_map(|row| row[1].parse::<IpNet>().ok())
        .collect();
    let mut random = cases::Random::new(11);
    let (all, allocated): (IpNet, IpNet) = ("::/0".parse().unwrap(), "2000::/3".parse().unwrap());
    for within in ["0.0.0.0/0".parse().unwrap(), allocated, all] {
        for _ in 0..50_000 {
            let address = random.address_in(within);
            if blocks.iter().any(|block| block.contains(&address)) {
                continue;
            }
            let is_public = address.is_ipv4() || allocated.contains(&address);
            let expected = if is_public {
                Class::Public
            } else {
                Class::Special
            };
            assert_eq!(book.classify(address).class, expected, "{address}");
        }
    }
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    let prefixes: [u128; 9] = [
        0,
        0xffff << 32,
        0xffff << 48,
        0x0064_ff9b << 96,
        0x0064_ff9b_0001 << 80,
        0x2001 << 112,
        (0x2606_4700 << 96) | (0x5efe << 32),
        0x2a00_0064 << 96,
        0x2a00_0001 << 96,
    ];
    let v6 = |bits: u128| IpAddr::V6(Ipv6Addr::from_bits(bits));
    prop_oneof![
        interesting_v4().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(v6),
        (
            proptest::sample::select(prefixes.to_vec()),
            interesting_v4()
        )
            .prop_map(move |(prefix, inner)| v6(prefix | u128::from(inner))),
        (interesting_v4(), any::<u64>()).prop_map(move |(inner, rest)| v6((0x2002 << 112)
            | (u128::from(inner) << 80)
            | u128::from(rest))),
    ]
}

fn interesting_v4() -> impl Strategy<Value = u32> {
    let rows = cases::rows(TRUTH).filter_map(|row| row[0].parse::<Ipv4Addr>().ok());
    prop_oneof![
        proptest::sample::select(rows.map(Ipv4Addr::to_bits).collect::<Vec<_>>()),
        any::<u32>()
    ]
}

fn full_book() -> AddressBook {
    AddressBook {
        gateway: nets(&["198.18.0.0/15", "fd5a:1::/48"]),
        host: vec![ip("93.184.216.34"), ip("10.0.0.5")],
        local: nets(&["10.0.0.0/24", "8.8.8.0/24", "2a00:1::/64"]),
        nat64: vec!["2a00:64::/96".parse().unwrap()],
        metadata: nets(&["10.9.8.7/32"]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_embedded_address_is_never_more_reachable_than_by_itself(address in any_address()) {
        for book in [AddressBook::default(), full_book()] {
            let found = book.classify(address);
            prop_assert!(found.reach <= found.class.reach());
            for form in book.forms(address) {
                let alone = book.classify(form);
                prop_assert!(found.reach <= alone.reach, "{address} {found:?}, {form} {alone:?}");
            }
        }
    }

    #[test]
    fn mapped_addresses_are_their_ipv4_address(bits in interesting_v4()) {
        let inner = Ipv4Addr::from_bits(bits);
        for book in [AddressBook::default(), full_book()] {
            let plain = book.classify(inner.into());
            let mapped = book.classify(inner.to_ipv6_mapped().into());
            prop_assert_eq!((plain.class, plain.reach), (mapped.class, mapped.reach));
            prop_assert_eq!((plain.label, Some(inner)), (mapped.label, mapped.embedded));
        }
    }

    #[test]
    fn inputs_only_take_reach_away(address in any_address()) {
        let with = AddressBook { nat64: Vec::new(), ..full_book() };
        let (before, after) = (AddressBook::default().classify(address), with.classify(address));
        prop_assert!(after.reach <= before.reach, "{address}: {before:?} {after:?}");
    }
}
