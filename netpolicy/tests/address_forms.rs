//! Promises about translated addresses (learnt NAT64 prefixes, forms a denial covers) and about metadata names.
#![expect(
    clippy::unwrap_used,
    reason = "a wrong table or fixture should fail the test loudly"
)]

use std::net::IpAddr;

use ipnet::IpNet;
use netpolicy::addr::{AddressBook, Class, Reach};
use netpolicy::name::Name;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn book_with_nat64(prefixes: &[&str]) -> AddressBook {
    let nat64 = prefixes.iter().map(|text| text.parse().unwrap()).collect();
    AddressBook {
        nat64,
        ..AddressBook::default()
    }
}

/// A site's own translator, at every length that RFC 6052 knows.
#[test]
fn learnt_nat64_addresses_take_the_class_of_what_they_embed() {
    for (prefix, public, private, metadata) in [
        (
            "2a00:64::/32",
            "2a00:64:808:808::",
            "2a00:64:a00:1::",
            "2a00:64:a9fe:a9fe::",
        ),
        (
            "2a00:64:100::/40",
            "2a00:64:108:808:8::",
            "2a00:64:10a:0:1::",
            "2a00:64:1a9:fea9:fe::",
        ),
        (
            "2a00:64:1::/48",
            "2a00:64:1:808:8:800::",
            "2a00:64:1:a00:0:100::",
            "2a00:64:1:a9fe:a9:fe00::",
        ),
        (
            "2a00:64:1:100::/56",
            "2a00:64:1:108:8:808::",
            "2a00:64:1:10a:0:1::",
            "2a00:64:1:1a9:fe:a9fe::",
        ),
        (
            "2a00:64:1:1::/64",
            "2a00:64:1:1:8:808:800:0",
            "2a00:64:1:1:a:0:100:0",
            "2a00:64:1:1:a9:fea9:fe00:0",
        ),
        (
            "2a00:64:1:1::/96",
            "2a00:64:1:1::808:808",
            "2a00:64:1:1::a00:1",
            "2a00:64:1:1::a9fe:a9fe",
        ),
        (
            "64:ff9b:1:64::/96",
            "64:ff9b:1:64::808:808",
            "64:ff9b:1:64::a00:1",
            "64:ff9b:1:64::a9fe:a9fe",
        ),
        (
            "fd64:1::/96",
            "fd64:1::808:808",
            "fd64:1::a00:1",
            "fd64:1::a9fe:a9fe",
        ),
    ] {
        let mut book = book_with_nat64(&[prefix]);
        // the route to the translator is on the machine too
        book.set_local(
            nets(&[prefix])
                .into_iter()
                .filter(|net| net.prefix_len() == 96),
        );
        assert_eq!(book.classify(ip(public)).class, Class::Public, "{public}");
        assert_eq!(
            book.classify(ip(private)).class,
            Class::Private,
            "{private}"
        );
        assert_eq!(
            book.classify(ip(metadata)).class,
            Class::Metadata,
            "{metadata}"
        );
    }
}

#[test]
fn a_learnt_nat64_prefix_never_opens_the_link_it_lies_on() {
    let mut book = book_with_nat64(&["2a00:1::/64"]);
    assert_eq!(
        book.classify(ip("2a00:1::8:808:800:0")).class,
        Class::Public
    );
    book.set_local(nets(&["2a00:1::/64"]));
    assert_eq!(
        book.classify(ip("2a00:1::8:808:800:0")).class,
        Class::Private
    );
}

#[test]
fn a_learnt_nat64_prefix_opens_nothing_that_is_never_reachable() {
    let book = book_with_nat64(&["64:ff9b::/96", "fd00:ec2::/32", "ff02::/32", "2a00:2::/44"]);
    assert_eq!(book.classify(ip("64:ff9b::a00:1")).reach, Reach::Never);
    assert_eq!(book.classify(ip("64:ff9b::808:808")).class, Class::Public);
    assert_eq!(
        book.classify(ip("fd00:ec2:808:808::")).class,
        Class::Metadata
    );
    assert_eq!(
        book.classify(ip("ff02:0:808:808::")).class,
        Class::Multicast
    );
    // RFC 6052 has no such length: the prefix is ignored
    assert_eq!(book.classify(ip("2a00:2::a00:1")).class, Class::Public);
    assert_eq!(book.classify(ip("2a00:2::a00:1")).embedded, None);
}

/// IP-E06 (b): a denied IPv4 prefix is denied in every form that leads to it.
#[test]
fn forms_name_every_address_that_a_denial_must_cover() {
    let book = book_with_nat64(&["2a00:64::/96"]);
    for form in [
        "8.8.8.8",
        "::ffff:8.8.8.8",
        "::8.8.8.8",
        "64:ff9b::808:808",
        "64:ff9b:1::808:808",
        "2a00:64::808:808",
        "2002:808:808::1",
        "2001:0:808:808::",
        "2a00::5efe:808:808",
    ] {
        assert!(book.forms(ip(form)).contains(&ip("8.8.8.8")), "{form}");
    }
    assert_eq!(book.forms(ip("::ffff:8.8.8.8")), [ip("8.8.8.8")]);
    assert_eq!(book.forms(ip("2a00::1")), [ip("2a00::1")]);
}

#[test]
fn only_prefixes_of_special_space_name_special_addresses() {
    for special in [
        "198.18.0.0/15",
        "198.51.100.7/32",
        "240.0.0.0/4",
        "2002::/16",
        "64:ff9b:1::/48",
        "2001:db8::/32",
        "fe80::/10",
        "fec0::/10",
        "4000::/3",
    ] {
        assert!(
            AddressBook::names_special(&special.parse().unwrap()),
            "{special}"
        );
    }
    for wider in [
        "0.0.0.0/0",
        "::/0",
        "198.0.0.0/8",
        "10.0.0.0/8",
        "2000::/3",
        "fc00::/6",
        "224.0.0.0/4",
    ] {
        assert!(
            !AddressBook::names_special(&wider.parse().unwrap()),
            "{wider}"
        );
    }
}

/// IP-M06, and names that only look alike.
#[test]
fn metadata_names_of_every_cloud_are_known() {
    for name in [
        "metadata.google.internal",
        "METADATA.google.internal.",
        "x.metadata.google.internal",
        "metadata.goog",
        "metadata",
        "instance-data",
        "instance-data.ec2.internal",
        "instance-data.eu-central-1.compute.internal",
        "metadata.azure.internal",
        "metadata.tencentyun.com",
    ] {
        assert!(
            AddressBook::is_metadata_name(&Name::parse(name).unwrap()),
            "{name}"
        );
    }
    for name in [
        "google.internal",
        "metadata.google.com",
        "xmetadata.google.internal",
        "metadata.example.com",
        "goog",
        "ec2.internal",
        "ip-10-0-0-1.ec2.internal",
        "instance-data.example.com",
    ] {
        assert!(
            !AddressBook::is_metadata_name(&Name::parse(name).unwrap()),
            "{name}"
        );
    }
}
