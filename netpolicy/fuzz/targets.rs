//! Bodies of the fuzz targets, shared by libFuzzer (`fuzz_targets/`) and by the short run in `tests/fuzz_smoke.rs`.
//!
//! Each takes any bytes, must never panic by itself, and asserts what has to hold for whatever is accepted: one
//! canonical form by every entrance, classes that follow bits only, mistakes that lie inside the text.
#![allow(
    dead_code,
    reason = "each binary uses its own target; the test uses all"
)]

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use netpolicy::addr::{AddressBook, Class, Reach, parse_ip, parse_net};
use netpolicy::name::{Authority, Name, Pattern, PatternIndex};

/// Names by every entrance, patterns, authorities and the index.
pub fn name(data: &[u8]) {
    let by_wire = Name::parse_ascii(data);
    let by_labels = Name::from_labels(data.split(|octet| *octet == b'\n'));
    let mut names: Vec<Name> = [by_wire, by_labels].into_iter().flatten().collect();
    if let Ok(authority) = Authority::parse(data) {
        assert_eq!(
            Authority::parse(authority.to_string().as_bytes()),
            Ok(authority)
        );
    }
    if let Ok(text) = str::from_utf8(data) {
        names.extend(Name::parse(text));
        match Pattern::parse(text) {
            Ok(pattern) => assert_eq!(Pattern::parse(&pattern.to_string()), Ok(pattern)),
            Err(error) => assert_printable(&error.to_string()),
        }
    }
    for name in names {
        assert_one_form(&name);
        assert_index_agrees(&name);
    }
}

fn assert_one_form(name: &Name) {
    let text = name.as_str();
    assert!((1..=253).contains(&text.len()), "{text}");
    assert!(
        name.labels().all(|label| (1..=63).contains(&label.len())),
        "{text}"
    );
    assert!(
        !text.bytes().any(|octet| octet.is_ascii_uppercase()),
        "{text}"
    );
    assert!(parse_ip(text).is_err(), "{text}");
    assert_eq!(Name::parse(text).as_ref(), Ok(name));
    assert_eq!(Name::parse_ascii(text.as_bytes()).as_ref(), Ok(name));
    assert_eq!(
        Name::from_labels(name.labels().map(str::as_bytes)).as_ref(),
        Ok(name)
    );
    if let Some(base) = name.service_base() {
        assert!(name.is_below(&base), "{text}");
    }
}

fn assert_index_agrees(name: &Name) {
    let mut patterns = vec![Pattern::Exact(name.clone()), Pattern::Below(name.clone())];
    patterns.extend(name.parent().map(Pattern::Below));
    let index: PatternIndex<Pattern> = patterns.iter().cloned().map(|p| (p.clone(), p)).collect();
    let found = index.matches(name).count();
    assert_eq!(
        found,
        patterns
            .iter()
            .filter(|pattern| pattern.matches(name))
            .count()
    );
    assert!(index.has_descendant(name));
}

/// Address texts, and classes of addresses made from the bytes, with inputs made from them as well.
pub fn address(data: &[u8]) {
    if let Ok(text) = str::from_utf8(data) {
        assert_eq!(parse_ip(text).ok(), text.parse::<IpAddr>().ok(), "{text:?}");
        match parse_net(text) {
            Ok(net) => assert_eq!((net.trunc(), parse_net(&net.to_string())), (net, Ok(net))),
            Err(error) => assert_printable(&error.to_string()),
        }
        if let Ok(address) = parse_ip(text) {
            assert_class_holds(&AddressBook::default(), address);
        }
    }
    let Some((bits, rest)) = data.split_first_chunk::<16>() else {
        return;
    };
    let address = IpAddr::V6(Ipv6Addr::from_bits(u128::from_be_bytes(*bits)));
    assert_class_holds(&AddressBook::default(), address);
    assert_class_holds(&book(rest), address);
}

/// An address is never more reachable than what it embeds, and local prefixes open nothing.
fn assert_class_holds(book: &AddressBook, address: IpAddr) {
    let found = book.classify(address);
    assert!(found.reach <= found.class.reach(), "{address} {found:?}");
    for form in book.forms(address) {
        let alone = book.classify(form);
        // a host address stays one (its ports depend on that), except around what is never reachable
        let holds = found.reach <= alone.reach
            || (found.class == Class::Host && alone.reach > Reach::Never);
        assert!(holds, "{address} {found:?} but {form} {alone:?}");
    }
    let without = AddressBook {
        local: Vec::new(),
        ..book.clone()
    };
    assert!(
        found.reach <= without.classify(address).reach,
        "{address} {found:?}"
    );
    if without.classify(address).reach == Reach::Never {
        assert_eq!(found.reach, Reach::Never, "{address} {found:?}");
    }
}

/// Seventeen octets each: kind and length, then the address.
fn book(data: &[u8]) -> AddressBook {
    let mut book = AddressBook::default();
    for chunk in data.chunks_exact(17).take(16) {
        let Some((kind, Ok(bits))) = chunk
            .split_first()
            .map(|(kind, bits)| (*kind, bits.try_into()))
        else {
            continue;
        };
        let address = Ipv6Addr::from_bits(u128::from_be_bytes(bits));
        let Ok(net) = Ipv6Net::new(address, (kind >> 2).saturating_mul(2).min(128)) else {
            continue;
        };
        match kind & 3 {
            0 => book.gateway.push(IpNet::V6(net)),
            1 => book.add_local([IpNet::V6(net)]),
            2 => book.nat64.push(net),
            _ => book.host.push(IpAddr::V6(address)),
        }
    }
    book
}

/// Policy documents: no panic, and every mistake has a place inside the text.
pub fn document(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let lines = text.split('\n').count();
    match netpolicy::document::parse("fuzz.yaml", text, None) {
        Ok(policy) => {
            for rule in policy.allow.iter().chain(&policy.deny) {
                assert!(rule.at.line >= 1 && rule.at.column >= 1, "{:?}", rule.at);
            }
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty(), "refused without a mistake");
            for mistake in mistakes {
                assert_printable(&mistake.message);
                let line = usize::try_from(mistake.at.line).unwrap_or(usize::MAX);
                assert!(
                    (1..=lines + 1).contains(&line),
                    "{mistake} of {lines} lines"
                );
                assert!(mistake.at.column >= 1, "{mistake}");
            }
        }
    }
}

/// No error text carries a terminal sequence out of hostile input.
fn assert_printable(message: &str) {
    assert!(
        !message.is_empty() && !message.chars().any(char::is_control),
        "{message:?}"
    );
}
