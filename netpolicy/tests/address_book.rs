//! Promises about what the gateway's knowledge (pools, host addresses, local prefixes) does to classes.

#![expect(
    clippy::unwrap_used,
    reason = "a wrong table or fixture should fail the test loudly"
)]

use std::net::IpAddr;

use ipnet::IpNet;
use netpolicy::addr::{AddressBook, Class, Reach};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn metadata_beats_local_prefixes_host_addresses_and_pools() {
    let book = AddressBook {
        gateway: nets(&["169.254.0.0/16", "198.18.0.0/15"]),
        host: vec![ip("169.254.169.254"), ip("100.100.100.200")],
        local: nets(&["169.254.0.0/16", "fd00::/8", "168.63.129.0/24", "fe80::/64"]),
        metadata: nets(&["10.9.8.7/32", "203.0.114.0/28"]),
        ..AddressBook::default()
    };
    for address in [
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "fd00:ec2::254",
        "fe80::a9fe:a9fe",
        "10.9.8.7",
        "::ffff:10.9.8.7",
        "64:ff9b::a09:807",
        "203.0.114.1",
    ] {
        assert_eq!(
            book.classify(ip(address)).class,
            Class::Metadata,
            "{address}"
        );
    }
    assert_eq!(book.classify(ip("198.18.0.1")).class, Class::Gateway);
    assert_eq!(book.classify(ip("10.9.8.8")).class, Class::Private);
    assert_eq!(book.classify(ip("168.63.129.17")).class, Class::Private);
    assert_eq!(book.classify(ip("203.0.114.16")).class, Class::Public);
}

#[test]
fn pools_are_unreachable_in_every_form() {
    let book = AddressBook {
        gateway: nets(&["198.18.0.0/15", "fd5a:1::/48"]),
        local: nets(&["198.18.0.0/15", "fd5a:1::/48"]),
        ..AddressBook::default()
    };
    for address in [
        "198.18.0.1",
        "::ffff:198.18.0.1",
        "64:ff9b::c612:1",
        "2002:c612:1::1",
        "::198.18.0.1",
        "fd5a:1::1",
    ] {
        assert_eq!(
            book.classify(ip(address)).class,
            Class::Gateway,
            "{address}"
        );
    }
    assert_eq!(book.classify(ip("198.20.0.1")).class, Class::Public);
    assert_eq!(book.classify(ip("fd5a:2::1")).class, Class::Private);
}

/// IP-H01: whatever their range, addresses of the machine are not public; its loopback stays loopback.
#[test]
fn host_addresses_are_host_whatever_their_range() {
    let own = [
        "93.184.216.34",
        "2606:4700::7",
        "10.0.0.5",
        "::ffff:9.9.9.9",
        "127.0.0.1",
        "::1",
    ];
    let book = AddressBook {
        host: own.map(ip).to_vec(),
        ..AddressBook::default()
    };
    for address in [
        "93.184.216.34",
        "::ffff:93.184.216.34",
        "2606:4700::7",
        "10.0.0.5",
        "9.9.9.9",
    ] {
        assert_eq!(book.classify(ip(address)).class, Class::Host, "{address}");
    }
    // also as 6to4 and Teredo addresses, unless they embed what is never reachable
    let tunnelled = ["2002:a00:1::1", "2002:7f00:1::1", "64:ff9b::7f00:1"]
        .map(ip)
        .to_vec();
    let odd = AddressBook {
        host: tunnelled,
        ..AddressBook::default()
    };
    assert_eq!(odd.classify(ip("2002:a00:1::1")).class, Class::Host);
    assert_eq!(odd.classify(ip("2002:7f00:1::1")).class, Class::Loopback);
    assert_eq!(odd.classify(ip("64:ff9b::7f00:1")).class, Class::Loopback);
    assert_eq!(book.classify(ip("64:ff9b::5db8:d822")).reach, Reach::Never);
    assert_eq!(book.classify(ip("127.0.0.1")).class, Class::Loopback);
    assert_eq!(book.classify(ip("::1")).class, Class::Loopback);
    assert_eq!(book.classify(ip("93.184.216.35")).class, Class::Public);
}

#[test]
fn local_prefixes_make_public_private_and_open_nothing() {
    let mut book = AddressBook::default();
    book.set_local(nets(&[
        "2606:4700:1::/64",
        "203.0.114.0/24",
        "198.51.100.0/24",
        "224.0.0.0/8",
        "127.0.0.0/8",
        "fe80::/64",
    ]));
    for private in ["2606:4700:1::5", "203.0.114.9", "::ffff:203.0.114.9"] {
        assert_eq!(
            book.classify(ip(private)).class,
            Class::Private,
            "{private}"
        );
    }
    assert_eq!(book.classify(ip("64:ff9b::cb00:7209")).reach, Reach::Never);
    assert_eq!(book.classify(ip("203.0.115.9")).class, Class::Public);
    for (address, class) in [
        ("198.51.100.7", Class::Special),
        ("224.0.0.1", Class::Multicast),
        ("127.0.0.1", Class::Loopback),
        ("fe80::1", Class::Special),
        ("2606:4700:1::5efe:808:808", Class::Special),
    ] {
        assert_eq!(book.classify(ip(address)).class, class, "{address}");
    }
}

#[test]
fn routes_that_count_as_default_are_not_local() {
    let mut book = AddressBook::default();
    let defaults = [
        "0.0.0.0/0",
        "0.0.0.0/1",
        "128.0.0.0/1",
        "8.0.0.0/7",
        "::/0",
        "2000::/3",
        "2600::/19",
    ];
    book.set_local(nets(&defaults));
    assert!(book.local.is_empty());
    assert_eq!(book.classify(ip("8.8.8.8")).class, Class::Public);
    book.set_local(nets(&["8.0.0.0/8", "2600::/20"]));
    assert_eq!(book.local.len(), 2);
    assert_eq!(book.classify(ip("8.8.8.8")).class, Class::Private);
    book.add_local(nets(&["128.0.0.0/1"]));
    assert_eq!(book.classify(ip("193.0.0.1")).class, Class::Private);
}
