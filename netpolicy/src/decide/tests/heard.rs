//! Names for a bare address: those that its bytes carry, and those that answers bound it to.

use super::*;

const LISTED: &str = "
network: domains
allow:
  - host: a.example.com
  - host: git.example.com
    ports: [22, 9000]
  - host: old.example.com
    ports: [7]
    until: 2026-11-28
deny:
  - host: bad.example.com
";

#[test]
fn where_a_host_rule_could_apply_the_name_is_heard_first() {
    let s = job(LISTED);
    assert_eq!(to("8.8.8.8", 443).on(&s), "hear tls");
    assert_eq!(to("8.8.8.8", 80).on(&s), "hear http");
    assert_eq!(to("8.8.8.8", 22).on(&s), "hear any");
    assert_eq!(to("8.8.8.8", 9000).on(&s), "hear any");
    assert_eq!(to("8.8.8.8", 21).on(&s), "address_not_allowed @job:3");
    assert_eq!(to("8.8.8.8", 7).on(&s), "address_not_allowed @job:3");
    assert_eq!(
        to("8.8.8.8", 443).udp().on(&s),
        "address_not_allowed @job:3"
    );
    assert_eq!(to("10.0.0.1", 443).on(&s), "address_private @job:3");
}

#[test]
fn a_heard_name_must_be_permitted_and_lead_to_the_address() {
    let s = job(LISTED);
    let ask = to("8.8.8.8", 443);
    assert_eq!(
        ask.clone().heard_nothing().on(&s),
        "address_not_allowed @job:3"
    );
    assert_eq!(
        ask.clone().heard("b.example.com", None).on(&s),
        "name_not_allowed @job:3"
    );
    assert_eq!(
        ask.clone().heard("bad.example.com", None).on(&s),
        "name_denied @job:12"
    );
    assert_eq!(
        ask.clone().heard("git.example.com", None).on(&s),
        "port_not_allowed @job:6"
    );
    assert_eq!(
        ask.clone().heard("a.example.com", None).on(&s),
        "look up a.example.com"
    );
    assert_eq!(
        ask.clone()
            .heard("a.example.com", Some(&["9.9.9.9"]))
            .on(&s),
        "address_not_allowed @job:3"
    );
    assert_eq!(
        ask.clone().heard("a.example.com", Some(&[])).on(&s),
        "address_not_allowed @job:3"
    );
    let fits = ask.heard("a.example.com", Some(&["9.9.9.9", "8.8.8.8"]));
    assert_eq!(fits.on(&s), "dial 8.8.8.8 tls as a.example.com");
}

#[test]
fn never_names_are_refused_when_heard() {
    let s = job("network: internet\nprivate: true");
    assert_eq!(
        to("8.8.8.8", 80)
            .heard("metadata.google.internal", None)
            .on(&s),
        "address_metadata"
    );
    assert_eq!(
        to("8.8.8.8", 80).heard("console.example.net", None).on(&s),
        "name_denied"
    );
    assert_eq!(
        to("8.8.8.8", 80).heard("a.example.net", None).on(&s),
        "dial 8.8.8.8 any"
    );
}

#[test]
fn internet_hears_only_where_a_host_denial_could_apply() {
    let s = job("network: internet\ndeny:\n  - host: bad.example.com\n    ports: [443]");
    assert_eq!(to("8.8.8.8", 22).on(&s), "dial 8.8.8.8 any");
    assert_eq!(to("8.8.8.8", 443).on(&s), "hear any");
    assert_eq!(
        to("8.8.8.8", 443).heard_nothing().on(&s),
        "dial 8.8.8.8 any"
    );
    assert_eq!(
        to("8.8.8.8", 443).heard("bad.example.com", None).on(&s),
        "name_denied @job:4"
    );
    assert_eq!(
        to("8.8.8.8", 443).heard("good.example.com", None).on(&s),
        "dial 8.8.8.8 any"
    );
}

#[test]
fn one_bound_name_is_the_destination() {
    let s = job(LISTED);
    assert_eq!(
        to("8.8.8.8", 443).bound(&["a.example.com"]).on(&s),
        "dial 8.8.8.8 tls as a.example.com"
    );
    assert_eq!(
        to("8.8.8.8", 22).bound(&["git.example.com"]).on(&s),
        "dial 8.8.8.8 any as git.example.com"
    );
    assert_eq!(
        to("8.8.8.8", 22).bound(&["a.example.com"]).on(&s),
        "hear any"
    );
    assert_eq!(
        to("8.8.8.8", 25).bound(&["a.example.com"]).on(&s),
        "port_not_allowed @job:5"
    );
    assert_eq!(
        to("8.8.8.8", 443).bound(&["bad.example.com"]).on(&s),
        "name_denied @job:12"
    );
    assert_eq!(
        to("10.0.0.1", 443).bound(&["a.example.com"]).on(&s),
        "name_resolves_to_forbidden @job:5"
    );
    let net = job(
        "network: domains\nallow:\n  - { cidr: 8.8.8.8, ports: [5432] }\n  - host: a.example.com",
    );
    assert_eq!(
        to("8.8.8.8", 5432).bound(&["a.example.com"]).on(&net),
        "dial 8.8.8.8 any"
    );
}

#[test]
fn several_bound_names_need_evidence() {
    let s = job(
        "network: domains\nnames: real\nallow:\n  - { host: a.example.com, ports: [443, 22] }\n  - { host: b.example.com, ports: [443, 22] }",
    );
    let ask = to("8.8.8.8", 22).bound(&["a.example.com", "b.example.com"]);
    assert_eq!(ask.on(&s), "hear any");
    assert_eq!(ask.clone().heard_nothing().on(&s), "name_ambiguous");
    assert_eq!(ask.clone().udp().on(&s), "protocol_not_allowed @job:5");
    let udp = "{ protocol: udp, ports: [22], host: ";
    let datagrams = job(&format!(
        "network: domains\nallow:\n  - {udp} a.example.com }}\n  - {udp} b.example.com }}"
    ));
    assert_eq!(ask.clone().udp().on(&datagrams), "hear any");
    let tls = to("8.8.8.8", 443).bound(&["a.example.com", "b.example.com"]);
    assert_eq!(
        tls.clone().heard("b.example.com", None).on(&s),
        "dial 8.8.8.8 tls as b.example.com"
    );
    assert_eq!(
        tls.clone().heard("c.example.com", None).on(&s),
        "name_not_allowed @job:2"
    );
    let wide = job("network: internet\nnames: real");
    assert_eq!(ask.on(&wide), "dial 8.8.8.8 any");
}
