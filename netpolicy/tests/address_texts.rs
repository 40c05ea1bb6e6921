//! Promises about the text forms of addresses and prefixes, from the tables in `tests/cases` and from properties.

mod cases;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netpolicy::addr::{AddressError, parse_ip, parse_net};
use proptest::prelude::*;

const TEXTS: &str = include_str!("../../tests/cases/address_texts.tsv");
const PREFIXES: &str = include_str!("../../tests/cases/prefix_texts.tsv");

#[test]
fn texts_that_are_no_address_are_refused_with_their_reason() {
    let mut wrong = cases::Wrong::default();
    for row in cases::rows(TEXTS) {
        let [case, text, reason] = row.try_into().unwrap();
        let found = parse_ip(&text).map_or_else(|e| cases::variant(&e), |_| "ok".to_owned());
        wrong.expect(&found, &reason, &format!("{case}: {text:?}"));
    }
    wrong.assert_none();
    assert_eq!(parse_ip(""), Err(AddressError::Empty));
    assert_eq!(parse_ip(&"1".repeat(200)), Err(AddressError::TooLong));
}

#[test]
fn texts_that_are_no_prefix_are_refused_with_their_reason() {
    let mut wrong = cases::Wrong::default();
    for row in cases::rows(PREFIXES) {
        let [case, text, reason] = row.try_into().unwrap();
        let found = parse_net(&text).map_or_else(|e| cases::variant(&e), |net| net.to_string());
        wrong.expect(&found, &reason, &format!("{case}: {text:?}"));
    }
    wrong.assert_none();
}

#[test]
fn address_errors_say_what_is_wrong_and_what_to_write() {
    let error = parse_net("10.1.2.3/8").unwrap_err();
    assert_eq!(
        error.to_string(),
        "bits are set behind the prefix length; the prefix would be 10.0.0.0/8"
    );
    assert_eq!(
        error.hint(),
        Some("write the network itself, or a single address without a length")
    );
    let hostile = parse_ip("1.1.1.1\u{1b}[2J").unwrap_err().to_string();
    assert!(!hostile.contains('\u{1b}'), "{hostile}");
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u32>().prop_map(|bits| IpAddr::V6(Ipv4Addr::from_bits(bits).to_ipv6_mapped())),
        (any::<u128>(), 0_u32..128)
            .prop_map(|(bits, shift)| IpAddr::V6(Ipv6Addr::from_bits(bits >> shift))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_of_an_address_reads_as_that_address(address in any_address()) {
        prop_assert_eq!(parse_ip(&address.to_string()), Ok(address));
    }

    #[test]
    fn nothing_reads_as_an_address_that_the_standard_library_refuses(text in "[0-9a-fx:.%/\\[\\]]{0,24}") {
        prop_assert_eq!(parse_ip(&text).ok(), text.parse::<IpAddr>().ok());
    }

    #[test]
    fn prefixes_hold_no_host_bits_and_their_address(address in any_address(), length in 0_u8..=128) {
        if let Ok(net) = parse_net(&format!("{address}/{length}")) {
            prop_assert_eq!(net.trunc(), net);
            prop_assert!(net.contains(&address.to_canonical()) || net.contains(&address));
        }
    }
}
