//! Flows to names.

use super::*;

const LISTED: &str = "
network: domains
allow:
  - host: a.example.com
  - host: '*.wild.example.com'
  - host: git.example.com
    ports: [22, '6000-6100']
  - host: dns.example.com
    ports: [53]
    protocol: udp
  - host: old.example.com
    until: 2026-11-28
  - host: today.example.com
    until: 2026-11-29
  - host: tls.example.com
    ports: [8443]
    speaks: tls
deny:
  - host: bad.wild.example.com
    reason: not this one
  - cidr: 93.184.216.0/24
    ports: [443]
";

#[test]
fn only_listed_names_are_looked_up() {
    let s = job(LISTED);
    assert_eq!(to("b.example.com", 443).on(&s), "name_not_allowed @job:3");
    assert_eq!(to("example.com", 443).on(&s), "name_not_allowed @job:3");
    assert_eq!(
        to("a.example.com.evil.net", 443).on(&s),
        "name_not_allowed @job:3"
    );
    assert_eq!(to("xa.example.com", 443).on(&s), "name_not_allowed @job:3");
    assert_eq!(
        to("wild.example.com", 443).on(&s),
        "name_not_allowed @job:3"
    );
    assert_eq!(to("a.example.com", 443).on(&s), "look up a.example.com");
    assert_eq!(
        to("x.wild.example.com", 80).on(&s),
        "look up x.wild.example.com"
    );
    assert_eq!(
        to("y.x.wild.example.com", 80).on(&s),
        "look up y.x.wild.example.com"
    );
}

#[test]
fn ports_and_protocols_are_exact() {
    let s = job(LISTED);
    assert_eq!(to("a.example.com", 22).on(&s), "port_not_allowed @job:5");
    assert_eq!(to("a.example.com", 8443).on(&s), "port_not_allowed @job:5");
    assert_eq!(to("a.example.com", 0).on(&s), "port_not_allowed @job:5");
    assert_eq!(to("git.example.com", 443).on(&s), "port_not_allowed @job:7");
    assert_eq!(
        to("git.example.com", 5999).on(&s),
        "port_not_allowed @job:7"
    );
    assert_eq!(
        to("git.example.com", 6101).on(&s),
        "port_not_allowed @job:7"
    );
    assert_eq!(
        to("a.example.com", 443).udp().on(&s),
        "protocol_not_allowed @job:5"
    );
    assert_eq!(
        to("dns.example.com", 53).on(&s),
        "protocol_not_allowed @job:9"
    );
    for (text, port) in [
        ("git.example.com", 22),
        ("git.example.com", 6000),
        ("git.example.com", 6100),
    ] {
        assert_eq!(to(text, port).on(&s), format!("look up {text}"));
    }
    assert_eq!(
        to("dns.example.com", 53).udp().on(&s),
        "look up dns.example.com"
    );
}

#[test]
fn an_expired_entry_does_not_exist() {
    let s = job(LISTED);
    assert_eq!(to("old.example.com", 443).on(&s), "name_not_allowed @job:3");
    assert_eq!(
        to("today.example.com", 443).on(&s),
        "look up today.example.com"
    );
    assert_eq!(
        to("today.example.com", 443).at(NOW.0 + 1).on(&s),
        "name_not_allowed @job:3"
    );
}

#[test]
fn deny_beats_allow() {
    let s = job(LISTED);
    assert_eq!(
        to("bad.wild.example.com", 443).on(&s),
        "name_denied @job:20"
    );
    assert_eq!(
        to("bad.wild.example.com", 443).answers(&["8.8.8.8"]).on(&s),
        "name_denied @job:20"
    );
    assert_eq!(
        to("good.wild.example.com", 443)
            .answers(&["8.8.8.8"])
            .on(&s),
        "dial 8.8.8.8 tls as good.wild.example.com"
    );
    match decide_connect(&s, &to("bad.wild.example.com", 1).intent, NOW) {
        Connect::Deny(denial) => {
            assert_eq!(denial.note.as_deref(), Some("not this one"));
            assert_eq!(denial.policy.as_deref(), Some("job"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_denied_address_beats_every_name_on_its_ports() {
    let s = job(LISTED);
    assert_eq!(
        to("a.example.com", 443).answers(&["93.184.216.34"]).on(&s),
        "address_denied @job:22"
    );
    assert_eq!(
        to("a.example.com", 443)
            .answers(&["8.8.8.8", "93.184.216.34"])
            .on(&s),
        "address_denied @job:22"
    );
    assert_eq!(
        to("a.example.com", 80).answers(&["93.184.216.34"]).on(&s),
        "dial 93.184.216.34 http as a.example.com"
    );
}

#[test]
fn one_forbidden_answer_refuses_the_whole_answer() {
    let s = job("network: domains\nallow: [{ host: a.example.com }]");
    let forbidden = [
        "10.0.0.5",
        "192.168.7.9",
        "169.254.169.254",
        "127.0.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "198.18.0.1",
        "198.19.1.1",
        "93.184.216.1",
        "100.64.0.1",
        "240.0.0.1",
        "::1",
        "fd00::1",
        "fe80::1",
        "::ffff:10.0.0.5",
        "64:ff9b::a00:5",
        "2001:4860:1::9",
        "fd00:ec2::254",
        "fd5a:1::9",
    ];
    for bad in forbidden {
        for answers in [vec![bad], vec!["8.8.8.8", bad], vec![bad, "8.8.8.8"]] {
            let said = to("a.example.com", 443).answers(&answers).on(&s);
            assert!(
                said.starts_with("name_resolves_to_forbidden"),
                "{answers:?}: {said}"
            );
        }
    }
    let good = to("a.example.com", 443)
        .answers(&["8.8.8.8", "2606:4700::1", "8.8.8.8"])
        .on(&s);
    assert_eq!(good, "dial 8.8.8.8 2606:4700::1 tls as a.example.com");
}

#[test]
fn a_forbidden_answer_names_its_class() {
    let s = job("network: domains\nallow: [{ host: a.example.com }]");
    for (answer, class) in [
        ("169.254.169.254", Class::Metadata),
        ("10.0.0.5", Class::Private),
        ("93.184.216.1", Class::Host),
        ("127.0.0.1", Class::Loopback),
    ] {
        match decide_connect(&s, &to("a.example.com", 443).answers(&[answer]).intent, NOW) {
            Connect::Deny(denial) => assert_eq!(denial.class, Some(class), "{answer}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn no_answer_is_unresolvable() {
    let s = job("network: domains\nallow: [{ host: a.example.com }]");
    assert_eq!(
        to("a.example.com", 443).answers(&[]).on(&s),
        "name_unresolvable"
    );
}

#[test]
fn private_answers_need_private() {
    let s = job("network: domains\nprivate: true\nallow: [{ host: a.example.com }]");
    for open in [
        "10.0.0.5",
        "192.168.7.9",
        "93.184.216.1",
        "fd00::1",
        "2001:4860:1::9",
    ] {
        assert_eq!(
            to("a.example.com", 443).answers(&[open]).on(&s),
            format!("dial {open} tls as a.example.com")
        );
    }
    for closed in [
        "169.254.169.254",
        "127.0.0.1",
        "224.0.0.1",
        "198.18.0.1",
        "240.0.0.1",
        "fe80::1",
    ] {
        let said = to("a.example.com", 443).answers(&[closed]).on(&s);
        assert!(
            said.starts_with("name_resolves_to_forbidden"),
            "{closed}: {said}"
        );
    }
}

#[test]
fn own_listeners_stay_closed_under_private() {
    let s = job("network: internet\nprivate: true");
    assert_eq!(
        to("a.example.com", 7070).answers(&["93.184.216.1"]).on(&s),
        "name_resolves_to_forbidden"
    );
    assert_eq!(to("console.example.net", 443).on(&s), "name_denied");
    assert_eq!(
        to("a.example.com", 7071).answers(&["93.184.216.1"]).on(&s),
        "dial 93.184.216.1 any as a.example.com"
    );
}

#[test]
fn metadata_names_are_never_asked_for() {
    let s = job(
        "network: internet\nprivate: true\nallow: [{ host: metadata.google.internal, ports: any }]",
    );
    assert_eq!(
        to("metadata.google.internal", 80).on(&s),
        "address_metadata"
    );
}

#[test]
fn local_names_need_a_rule_and_private() {
    let rules = "allow: [{ host: nas.local }, { host: router }, { host: '*.home.arpa' }, { host: x.onion }]";
    let open = job(&format!("network: domains\nprivate: true\n{rules}"));
    let shut = job(&format!("network: domains\n{rules}"));
    let wide = job("network: internet\nprivate: true");
    for text in ["nas.local", "router", "x.home.arpa"] {
        assert_eq!(to(text, 443).on(&open), format!("look up {text}"));
        assert!(to(text, 443).on(&shut).starts_with("name_not_allowed"));
        assert!(to(text, 443).on(&wide).starts_with("name_not_allowed"));
    }
    assert!(to("x.onion", 443).on(&open).starts_with("name_not_allowed"));
    assert!(
        to("localhost", 443)
            .on(&wide)
            .starts_with("name_not_allowed")
    );
    assert!(
        to("host.docker.internal", 443)
            .on(&wide)
            .starts_with("name_not_allowed")
    );
}

#[test]
fn internet_permits_every_name_that_nothing_denies() {
    let s = job(
        "network: internet\ndeny:\n  - host: bad.example.com\n  - host: half.example.com\n    ports: [443]",
    );
    assert_eq!(
        to("any.example.org", 12_345).on(&s),
        "look up any.example.org"
    );
    assert_eq!(
        to("any.example.org", 443).answers(&["8.8.8.8"]).on(&s),
        "dial 8.8.8.8 any as any.example.org"
    );
    assert_eq!(
        to("any.example.org", 443).answers(&["10.0.0.1"]).on(&s),
        "name_resolves_to_forbidden @job:2"
    );
    assert_eq!(
        to("any.example.org", 53).udp().on(&s),
        "look up any.example.org"
    );
    assert_eq!(to("bad.example.com", 9).on(&s), "name_denied @job:4");
    assert_eq!(to("half.example.com", 443).on(&s), "name_denied @job:5");
    assert_eq!(
        to("half.example.com", 80).on(&s),
        "look up half.example.com"
    );
}

#[test]
fn no_network_means_nothing() {
    let s = job("network: none\nprivate: true\nallow: [{ host: a.example.com }]");
    assert_eq!(to("a.example.com", 443).on(&s), "network_none @job:2");
    assert_eq!(to("8.8.8.8", 443).on(&s), "network_none @job:2");
    assert_eq!(to("a.example.com", 443).on(&layers(&[])), "network_none");
    assert_eq!(to("8.8.8.8", 443).on(&layers(&[])), "network_none");
}

#[test]
fn what_is_written_about_bytes_beats_a_default() {
    let s = job(
        "network: domains\nallow:\n  - host: '*.example.com'\n  - host: ssh.example.com\n    ports: [443]\n    speaks: any",
    );
    assert_eq!(
        to("ssh.example.com", 443).answers(&["8.8.8.8"]).on(&s),
        "dial 8.8.8.8 any as ssh.example.com"
    );
    assert_eq!(
        to("web.example.com", 443).answers(&["8.8.8.8"]).on(&s),
        "dial 8.8.8.8 tls as web.example.com"
    );
    assert_eq!(
        to("web.example.com", 80).answers(&["8.8.8.8"]).on(&s),
        "dial 8.8.8.8 http as web.example.com"
    );
    let both = job(
        "network: domains\nallow:\n  - { host: a.example.com, ports: [9], speaks: any }\n  - { host: a.example.com, ports: [9], speaks: tls }",
    );
    assert_eq!(
        to("a.example.com", 9).answers(&["8.8.8.8"]).on(&both),
        "dial 8.8.8.8 tls as a.example.com"
    );
}
