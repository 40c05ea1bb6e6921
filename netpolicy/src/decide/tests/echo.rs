//! Echo requests: which entries speak of them, and that nothing else changes what is never reachable.

use super::*;

#[test]
fn an_entry_for_other_transports_permits_no_echo() {
    let s = job(
        "network: domains\nallow:\n  - host: a.com\n  - { host: a.com, ports: any }\n  - { host: a.com, ports: any, protocol: udp }\n  - { cidr: 8.8.8.0/24, ports: any }\n  - { host: b.com, protocol: icmp }\n  - { cidr: 8.8.4.0/24, protocol: icmp }",
    );
    assert_eq!(to("a.com", 0).echo().on(&s), "protocol_not_allowed @job:4");
    assert_eq!(
        to("8.8.8.8", 0).echo().on(&s),
        "protocol_not_allowed @job:7"
    );
    assert_eq!(to("c.com", 0).echo().on(&s), "name_not_allowed @job:2");
    assert_eq!(to("9.9.9.9", 0).echo().on(&s), "address_not_allowed @job:2");
    assert_eq!(
        to("b.com", 0).echo().answers(&["9.9.9.9"]).on(&s),
        "dial 9.9.9.9 any as b.com"
    );
    assert_eq!(to("8.8.4.4", 0).echo().on(&s), "dial 8.8.4.4 any");
    // nor does an entry for echoes permit anything else
    assert_eq!(to("b.com", 443).on(&s), "protocol_not_allowed @job:8");
    assert_eq!(
        to("8.8.4.4", 53).udp().heard_nothing().on(&s),
        "protocol_not_allowed @job:9"
    );
}

#[test]
fn never_classes_and_closed_classes_hear_no_echo() {
    let open = job(
        "network: internet\nprivate: true\nallow:\n  - { cidr: 0.0.0.0/0, protocol: icmp }\n  - { cidr: '::/0', protocol: icmp }\n  - { cidr: 169.254.0.0/16, protocol: icmp }",
    );
    for (address, reason) in [
        ("169.254.169.254", "address_metadata"),
        ("fd00:ec2::254", "address_metadata"),
        ("127.0.0.1", "address_loopback"),
        ("::1", "address_loopback"),
        ("224.0.0.1", "address_multicast"),
        ("255.255.255.255", "address_multicast"),
        ("ff02::1", "address_multicast"),
        ("198.18.0.1", "address_gateway"),
    ] {
        assert_eq!(to(address, 0).echo().on(&open), reason, "{address}");
    }
    let shut = job("network: internet");
    for (address, reason) in [
        ("10.0.0.1", "address_private @job:2"),
        ("93.184.216.1", "address_host @job:2"),
    ] {
        assert_eq!(to(address, 0).echo().on(&shut), reason, "{address}");
        assert_eq!(
            to(address, 0).echo().on(&open),
            format!("dial {address} any")
        );
    }
}

#[test]
fn in_internet_an_echo_passes_unless_an_entry_denies_all_of_a_place() {
    let s = job(
        "network: internet\ndeny:\n  - { cidr: 8.8.8.0/24, protocol: icmp }\n  - cidr: 8.8.4.0/24\n  - { cidr: 9.9.9.0/24, ports: [22] }\n  - { host: quiet.com, protocol: icmp }\n  - host: evil.com",
    );
    assert_eq!(to("1.1.1.1", 0).echo().on(&s), "dial 1.1.1.1 any");
    assert_eq!(to("9.9.9.9", 0).echo().on(&s), "dial 9.9.9.9 any");
    assert_eq!(to("8.8.8.8", 0).echo().on(&s), "address_denied @job:4");
    assert_eq!(to("8.8.4.4", 0).echo().on(&s), "address_denied @job:5");
    assert_eq!(to("quiet.com", 0).echo().on(&s), "name_denied @job:7");
    assert_eq!(to("evil.com", 0).echo().on(&s), "name_denied @job:8");
    assert_eq!(to("quiet.com", 443).on(&s), "look up quiet.com");
    assert_eq!(
        to("8.8.8.8", 443).heard_nothing().on(&s),
        "dial 8.8.8.8 any"
    );
}

#[test]
fn a_floor_takes_echoes_away() {
    let s = layers(&[
        (
            LayerKind::Instance,
            "network: internet\ndeny: [{ cidr: 0.0.0.0/0, protocol: icmp }]",
        ),
        (LayerKind::Job, "network: internet"),
    ]);
    assert_eq!(to("1.1.1.1", 0).echo().on(&s), "address_denied @instance:3");
    assert_eq!(to("1.1.1.1", 53).udp().on(&s), "dial 1.1.1.1 any");
}

#[test]
fn a_name_that_may_only_be_pinged_may_be_looked_up() {
    let found = |body: &str| {
        let s = job(body);
        matches!(decide_lookup(&s, &name("b.com"), NOW), Lookup::Permit(_))
    };
    assert!(found(
        "network: domains\nallow: [{ host: b.com, protocol: icmp }]"
    ));
    assert!(!found(
        "network: domains\nallow: [{ host: b.com, protocol: icmp }]\ndeny: [{ host: b.com, protocol: icmp }]"
    ));
    assert!(!found(
        "network: domains\nallow: [{ host: b.com, protocol: icmp }]\ndeny: [{ host: b.com }]"
    ));
}

#[test]
fn nothing_pings_into_a_sandbox() {
    let s = job("network: internet\ningress: [{ ports: [80] }]");
    assert_eq!(
        to("198.18.0.9", 0).echo().ingress().on(&s),
        "protocol_not_allowed"
    );
}
