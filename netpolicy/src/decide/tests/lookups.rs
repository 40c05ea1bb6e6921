//! Look-ups: a name is asked for only if some port of it is open.

use super::*;

fn look(s: &Snapshot, text: &str) -> String {
    match decide_lookup(s, &name(text), NOW) {
        Lookup::Permit(ground) => format!("permit {}", ground.name().unwrap()),
        Lookup::Ancestor => "ancestor".to_owned(),
        Lookup::Deny(denial) => words(&denial),
    }
}

const LISTED: &str = "
network: domains
allow:
  - host: a.b.example.com
  - host: '*.wild.example.org'
  - host: dns.example.com
    ports: [53]
    protocol: udp
  - host: old.example.net
    until: 2026-11-28
  - host: shut.example.com
deny:
  - host: bad.wild.example.org
  - host: shut.example.com
    ports: [443]
  - host: shut.example.com
    ports: [1-442]
  - host: half.wild.example.org
    ports: [443]
";

#[test]
fn a_denied_name_is_never_asked_for() {
    let s = job(LISTED);
    assert_eq!(look(&s, "evil.test-site.com"), "name_not_allowed @job:3");
    assert_eq!(look(&s, "b.a.b.example.com"), "name_not_allowed @job:3");
    assert_eq!(look(&s, "bad.wild.example.org"), "name_denied @job:14");
    assert_eq!(look(&s, "old.example.net"), "name_not_allowed @job:3");
    assert_eq!(look(&s, "example.net"), "name_not_allowed @job:3");
    assert_eq!(look(&s, "shut.example.com"), "name_denied @job:15");
    assert_eq!(look(&s, "metadata.google.internal"), "address_metadata");
    assert_eq!(look(&s, "console.example.net"), "name_denied");
    assert_eq!(
        look(&job("network: none"), "a.example.com"),
        "network_none @job:2"
    );
    assert_eq!(look(&layers(&[]), "a.example.com"), "network_none");
}

#[test]
fn permitted_names_are_asked_for_whatever_the_port() {
    let s = job(LISTED);
    for text in [
        "a.b.example.com",
        "x.wild.example.org",
        "dns.example.com",
        "half.wild.example.org",
    ] {
        assert_eq!(look(&s, text), format!("permit {text}"));
    }
}

#[test]
fn ancestors_exist_and_hold_nothing() {
    let s = job(LISTED);
    for text in [
        "b.example.com",
        "example.com",
        "com",
        "wild.example.org",
        "example.org",
        "org",
    ] {
        assert_eq!(look(&s, text), "ancestor", "{text}");
    }
    let wide =
        job("network: internet\nallow: [{ host: a.example.com }]\ndeny: [{ host: example.com }]");
    assert_eq!(look(&wide, "example.com"), "name_denied @job:4");
}

#[test]
fn service_names_inherit_permission() {
    let s = job(LISTED);
    assert_eq!(
        look(&s, "_http._tcp.a.b.example.com"),
        "permit _http._tcp.a.b.example.com"
    );
    assert_eq!(
        look(&s, "_8443._https.a.b.example.com"),
        "permit _8443._https.a.b.example.com"
    );
    assert_eq!(look(&s, "_http._tcp.evil.com"), "name_not_allowed @job:3");
    assert_eq!(
        look(&s, "_dmarc.a.b.example.com"),
        "name_not_allowed @job:3"
    );
    assert_eq!(
        look(&s, "_http._tcp.shut.example.com"),
        "name_not_allowed @job:3"
    );
    let denied = job(
        "network: domains\nallow: [{ host: a.example.com }]\ndeny: [{ host: '*.a.example.com' }]",
    );
    assert_eq!(
        look(&denied, "_http._tcp.a.example.com"),
        "name_denied @job:4"
    );
}

#[test]
fn internet_asks_for_all_but_denied_names() {
    let s = job(
        "network: internet\ndeny:\n  - host: bad.example.com\n  - host: half.example.com\n    ports: [443]",
    );
    assert_eq!(look(&s, "any.example.org"), "permit any.example.org");
    assert_eq!(look(&s, "half.example.com"), "permit half.example.com");
    assert_eq!(look(&s, "bad.example.com"), "name_denied @job:4");
    for text in [
        "localhost",
        "nas.local",
        "router",
        "x.onion",
        "4.3.2.1.in-addr.arpa",
    ] {
        assert_eq!(look(&s, text), "name_not_allowed @job:2", "{text}");
    }
}

#[test]
fn layers_must_leave_a_port_in_common() {
    let rule = |ports: &str| {
        format!("network: domains\nallow: [{{ host: a.example.com, ports: {ports} }}]")
    };
    let both =
        |a: &str, b: &str| layers(&[(LayerKind::Instance, &rule(a)), (LayerKind::Job, &rule(b))]);
    assert_eq!(
        look(&both("[80]", "[443]"), "a.example.com"),
        "port_not_allowed @job:2"
    );
    assert_eq!(
        look(&both("[80, 443]", "[443]"), "a.example.com"),
        "permit a.example.com"
    );
    let floor = layers(&[
        (LayerKind::Instance, &rule("[443]")),
        (LayerKind::Job, "network: internet"),
    ]);
    assert_eq!(
        look(&floor, "b.example.com"),
        "name_not_allowed @instance:2"
    );
    assert_eq!(look(&floor, "example.com"), "ancestor");
}
