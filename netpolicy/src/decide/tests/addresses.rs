//! Flows to bare addresses: by `cidr`, by class, and the way in.

use super::*;

#[test]
fn never_classes_stay_closed_under_the_widest_policy() {
    let s = job(
        "network: internet\nprivate: true\nallow:\n  - { cidr: 0.0.0.0/0, ports: any }\n  - { cidr: '::/0', ports: any }\n  - { cidr: 169.254.0.0/16, ports: any }\n  - { cidr: 127.0.0.0/8, ports: any }",
    );
    for (address, reason) in [
        ("169.254.169.254", "address_metadata"),
        ("100.100.100.200", "address_metadata"),
        ("168.63.129.16", "address_metadata"),
        ("fd00:ec2::254", "address_metadata"),
        ("::ffff:169.254.169.254", "address_metadata"),
        ("127.0.0.1", "address_loopback"),
        ("0.0.0.0", "address_loopback"),
        ("::1", "address_loopback"),
        ("::ffff:127.0.0.1", "address_loopback"),
        ("224.0.0.251", "address_multicast"),
        ("255.255.255.255", "address_multicast"),
        ("ff02::1", "address_multicast"),
        ("198.18.0.1", "address_gateway"),
        ("198.19.200.1", "address_gateway"),
        ("fd5a:1::1", "address_gateway"),
    ] {
        assert_eq!(to(address, 80).on(&s), reason, "{address}");
        assert_eq!(to(address, 80).udp().on(&s), reason, "{address}");
    }
    assert_eq!(to("93.184.216.1", 7070).on(&s), "address_host");
    assert_eq!(to("93.184.216.1", 22).on(&s), "dial 93.184.216.1 any");
}

#[test]
fn classes_open_as_the_table_of_classes_says() {
    let shut = job("network: internet");
    let open = job("network: internet\nprivate: true");
    for (address, reason) in [
        ("10.0.0.1", "address_private"),
        ("192.168.7.20", "address_private"),
        ("2001:4860:1::20", "address_private"),
        ("93.184.216.1", "address_host"),
    ] {
        assert_eq!(
            to(address, 22).on(&shut),
            format!("{reason} @job:2"),
            "{address}"
        );
        assert_eq!(
            to(address, 22).on(&open),
            format!("dial {address} any"),
            "{address}"
        );
    }
    assert_eq!(to("240.0.0.1", 22).on(&shut), "address_special @job:2");
    assert_eq!(to("240.0.0.1", 22).on(&open), "address_special @job:2");
}

#[test]
fn special_ranges_need_a_rule_that_names_them() {
    let with = |private: bool, cidr: &str| {
        job(&format!(
            "network: domains\nprivate: {private}\nallow: [{{ cidr: '{cidr}', ports: [9] }}]"
        ))
    };
    assert_eq!(
        to("240.0.0.1", 9).on(&with(true, "0.0.0.0/0")),
        "address_special @job:2"
    );
    assert_eq!(
        to("240.0.0.1", 9).on(&with(false, "240.0.0.0/8")),
        "address_special @job:2"
    );
    assert_eq!(
        to("240.0.0.1", 10).on(&with(true, "240.0.0.0/8")),
        "address_special @job:2"
    );
    assert_eq!(
        to("240.0.0.1", 9).on(&with(true, "240.0.0.0/8")),
        "dial 240.0.0.1 any"
    );
}

#[test]
fn a_cidr_rule_opens_its_ports_only() {
    let s = job(
        "network: domains\nallow:\n  - cidr: 203.0.112.0/24\n    ports: [5432]\n  - { cidr: 203.0.112.0/28, ports: [53], protocol: udp }",
    );
    assert_eq!(to("203.0.112.9", 5432).on(&s), "dial 203.0.112.9 any");
    assert_eq!(to("203.0.112.9", 5433).on(&s), "port_not_allowed @job:4");
    assert_eq!(
        to("203.0.112.9", 5432).udp().on(&s),
        "protocol_not_allowed @job:4"
    );
    assert_eq!(to("203.0.112.9", 53).udp().on(&s), "dial 203.0.112.9 any");
    assert_eq!(to("203.0.113.9", 5432).on(&s), "address_special @job:2");
    assert_eq!(to("8.8.8.8", 5432).on(&s), "address_not_allowed @job:2");
}

#[test]
fn denied_addresses_include_what_is_embedded() {
    let s = job(
        "network: internet\ndeny:\n  - cidr: 8.8.8.0/24\n  - { cidr: 9.9.9.9, ports: [53], protocol: udp }",
    );
    assert_eq!(to("8.8.8.8", 443).on(&s), "address_denied @job:4");
    assert_eq!(to("64:ff9b::808:808", 443).on(&s), "address_denied @job:4");
    assert_eq!(to("::ffff:8.8.8.8", 443).on(&s), "address_denied @job:4");
    assert_eq!(
        to("64:ff9b::101:101", 443).on(&s),
        "dial 64:ff9b::101:101 any"
    );
    assert_eq!(to("9.9.9.9", 53).udp().on(&s), "address_denied @job:5");
    assert_eq!(to("9.9.9.9", 53).on(&s), "dial 9.9.9.9 any");
    assert_eq!(to("9.9.9.9", 853).udp().on(&s), "dial 9.9.9.9 any");
}

#[test]
fn the_way_in_needs_an_ingress_entry() {
    let s = job("network: none\ningress:\n  - { ports: [8080] }");
    assert_eq!(
        to("198.18.0.9", 8080).ingress().on(&s),
        "dial 198.18.0.9 any"
    );
    assert_eq!(
        to("198.18.0.9", 8081).ingress().on(&s),
        "port_not_allowed @job:4"
    );
    assert_eq!(
        to("198.18.0.9", 8080).ingress().udp().on(&s),
        "protocol_not_allowed"
    );
    assert_eq!(to("8.8.8.8", 8080).ingress().on(&s), "address_not_allowed");
    assert_eq!(to("10.0.0.1", 8080).ingress().on(&s), "address_not_allowed");
    assert_eq!(
        to("a.example.com", 8080).ingress().on(&s),
        "address_not_allowed"
    );
    let none = job("network: internet");
    assert_eq!(
        to("198.18.0.9", 8080).ingress().on(&none),
        "port_not_allowed @job:2"
    );
    let floor = |body| {
        layers(&[
            (LayerKind::Instance, body),
            (
                LayerKind::Job,
                "network: none\ningress: [{ ports: [8080] }]",
            ),
        ])
    };
    assert_eq!(
        to("198.18.0.9", 8080)
            .ingress()
            .on(&floor("network: internet")),
        "dial 198.18.0.9 any"
    );
    let narrow = floor("network: internet\ningress: [{ ports: [9090] }]");
    assert_eq!(
        to("198.18.0.9", 8080).ingress().on(&narrow),
        "port_not_allowed @instance:3"
    );
    let only_floor = layers(&[(
        LayerKind::Instance,
        "network: none\ningress: [{ ports: [8080] }]",
    )]);
    assert_eq!(
        to("198.18.0.9", 8080).ingress().on(&only_floor),
        "network_none"
    );
}

#[test]
fn the_app_preset_reaches_http_and_tls_and_nothing_else() {
    let s = Snapshot::new(
        vec![(
            LayerKind::Job,
            Arc::new(crate::document::preset("app").unwrap()),
        )],
        book(),
        own(),
    );
    let bound = |port| to("8.8.8.8", port).bound(&["any.example.org"]);
    assert_eq!(bound(443).on(&s), "dial 8.8.8.8 tls as any.example.org");
    assert_eq!(bound(80).on(&s), "dial 8.8.8.8 http as any.example.org");
    assert_eq!(to("8.8.8.8", 443).on(&s), "dial 8.8.8.8 tls");
    for port in [1, 25, 79, 81, 442, 444, 8443, 65_535] {
        assert!(bound(port).on(&s).starts_with("address_denied"), "{port}");
        assert!(
            to("2606:4700::1", port)
                .on(&s)
                .starts_with("address_denied"),
            "{port}"
        );
    }
    assert!(bound(443).udp().on(&s).starts_with("address_denied"));
    assert!(to("10.0.0.1", 443).on(&s).starts_with("address_private"));
    assert!(!s.explains());
}

#[test]
fn a_denied_address_is_denied_in_every_form_and_every_part() {
    let s = job("network: internet\ndeny: [{ cidr: 9.9.9.9 }, { cidr: 9.9.8.0/24 }]");
    // mapped, well-known NAT64
    for address in [
        "9.9.9.9",
        "::ffff:9.9.9.9",
        "64:ff9b::909:909",
        "64:ff9b::909:801",
    ] {
        assert!(
            to(address, 443).on(&s).starts_with("address_denied"),
            "{address}"
        );
    }
    for address in ["8.8.8.8", "64:ff9b::808:808"] {
        assert!(to(address, 443).on(&s).starts_with("dial"), "{address}");
    }
    let mapped = to("a.example.com", 443).answers(&["::ffff:9.9.9.9"]).on(&s);
    assert!(mapped.starts_with("address_denied"), "{mapped}");
}

#[test]
fn a_mapped_address_is_dialled_as_the_address_it_is() {
    let s = job("network: domains\nallow: [{ cidr: 8.8.8.8, ports: [443] }]");
    assert_eq!(to("::ffff:8.8.8.8", 443).on(&s), to("8.8.8.8", 443).on(&s));
}

#[test]
fn naming_the_well_known_nat64_prefix_does_not_open_what_lies_inside_it() {
    let s = job(
        "network: domains\nprivate: true\nallow: [{ cidr: \"64:ff9b::a00:0/104\", ports: [80] }, { cidr: 192.0.2.0/24, ports: [80] }]",
    );
    assert!(
        to("64:ff9b::a00:5", 80)
            .on(&s)
            .starts_with("address_special")
    );
    assert!(to("192.0.2.5", 80).on(&s).starts_with("dial"));
}
