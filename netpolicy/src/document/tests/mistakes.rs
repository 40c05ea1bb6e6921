//! What authors get wrong, and what they are told.

use super::*;

#[test]
fn near_misses_are_told_what_was_meant() {
    for (text, says) in [
        (
            "limits: { upload: \"100M\" }",
            "hint: write 100MB or 100MiB",
        ),
        ("limits: { upload: 5mb }", "hint: write 5MB or 5MiB"),
        (
            "limits: { upload: 7 }",
            "hint: write its unit: 7B, 7KiB, 7MiB",
        ),
        (
            "allow: [{ host: a.example.com, ports: 443 }]",
            "hint: write [443]",
        ),
        (
            "allow: [{ host: a.example.com, ports: \"22-80\" }]",
            "hint: write [\"22-80\"]",
        ),
        (
            "allow: [{ host: a.example.com, ports: [\"6000-5000\"] }]",
            "hint: the range is backwards; write 5000-6000",
        ),
        (
            "allow: [{ host: a.example.com, ports: [\"1 - 9\"] }]",
            "hint: write 1-9",
        ),
        ("use: packages", "hint: write [packages]"),
        ("\tallow: []", "p.yaml:3:1: "),
        ("allow:\n\t- host: a.example.com", "p.yaml:4:1: "),
    ] {
        let document = with(text);
        let mistakes = parse("p.yaml", &document, None).unwrap_err();
        let told: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert!(
            told.iter().any(|one| one.contains(says)),
            "{text:?}: {told:#?}"
        );
    }
    // what cannot be told is not guessed at
    for text in [
        "limits: { upload: lots }",
        "allow: [{ host: a.example.com, ports: many }]",
    ] {
        let mistakes = parse("p.yaml", &with(text), None).unwrap_err();
        assert!(
            mistakes.iter().all(|one| one.hint.is_none()),
            "{mistakes:#?}"
        );
    }
}

#[test]
fn structure_mistakes_have_place_and_hint() {
    insta::assert_snapshot!(report(&[
        "",
        "# nothing but a comment",
        "just words",
        "- a\n- list",
        "policy: p",
        "policy: p\nnetwrok: none",
        "policy: p\nnetwork: domain",
        "policy: p\nnetwork:",
        "policy: p\nnetwork: none\nallowed_domains: [a.example.com]\negress_filter: requierd",
        "policy: p\nnetwork: none\nnetwork: internet",
        "policy: [p]\nnetwork: {}\nprivate: 1\nnames: reel\nexplain: yes\ndescription: ''",
        "policy: ../x\nnetwork: none",
        &with("allow: no"),
        &with("allow: off"),
        &with("allow:"),
        &with("allow: a.example.com"),
        &with("allow: [a.example.com]"),
        &with("allow: [{}]"),
        &with(
            "allow:\n  - host:\n  - host: ''\n  - hosts: a\n  - { host: a.example.com, cidr: 8.8.8.8, ports: [1] }"
        ),
        &with(
            "allow:\n  - cidr: 203.0.113.0/24\n  - { cidr: 203.0.113.0/24, ports: [80], http: [{ methods: [GET] }] }"
        ),
        &with(
            "allow:\n  - { host: a.example.com, speaks: any, http: [{ methods: [GET] }] }\n  - { host: a.example.com, http: [] }\n  - { host: a.example.com, http: [{}] }"
        ),
        &with(
            "allow:\n  - { host: a.example.com, protocol: udp, speaks: http }\n  - { host: a.example.com, protocol: sctp }\n  - { host: a.example.com, speaks: https }"
        ),
        &with(
            "allow:\n  - { host: a.example.com, protocol: icmp, ports: [80] }\n  - { cidr: 203.0.113.0/24, protocol: icmp, speaks: any, http: [{ methods: [GET] }] }\ndeny:\n  - { host: b.example.com, protocol: icmp, ports: any }\ntests:\n  - { to: 'a.example.com:80', protocol: icmp, expect: permit }\n  - { to: a.example.com, protocol: icmp, expect: permit }"
        ),
        &with("deny:\n  - { host: a.example.com, speaks: any, until: 2027-01-01 }\n  - {}"),
        &with("ingress:\n  - 8080\n  - {}\n  - { ports: [] }\n  - { ports: 8080 }"),
        &with(
            "limits: { flows: 0, rate: -1, upload: 100, download: 1.5GiB, names: '5', records: lots, bandwith: 1MB }"
        ),
        &with(
            "secrets:\n  - { secret: a b, host: '*', header: Authorization }\n  - { secret: K, host: a.example.com, header: 'Host: {}' }\n  - { secret: K, host: a.example.com, header: 'X: {} {}' }"
        ),
        &with("unknown: maybe"),
        &with("use: packages"),
        &with("use: [package, githib, nonsense, github, github]"),
        &with(
            "sets: { github: [{ host: a.example.com }], Bad_Name: [], x: [{ host: a }, { hos: b }] }"
        ),
        &with(
            "tests:\n  - { to: a.example.com, expect: permit }\n  - { to: 'a.example.com:443', expect: permit, reason: name_denied }\n  - { to: 'a.example.com:443', expect: deny, reason: name_deneid }\n  - { to: 'http://a:1', expect: perhaps, resolves_to: [010.0.0.1] }"
        ),
    ]));
}

#[test]
fn values_that_yaml_readers_disagree_about_are_refused() {
    insta::assert_snapshot!(report(&[
        &with(
            "allow:\n  - { host: a.example.com, ports: [22:22, 0o10, 010, 1_000, 1e3, 80.0, 65536, -1, 0, 0x50, '80', 80-, 90-80, any] }"
        ),
        &with(
            "allow:\n  - host: no\n  - host: 1.0\n  - host: null\n  - host: ~\n  - host: 2026-01-01\n  - host: 0x7f.1\n  - host: 2130706433\n  - host: true\n  - host: 12:30"
        ),
        &with(
            "allow:\n  - { cidr: 010.0.0.0/8, ports: [1] }\n  - { cidr: 10.0.0.1/8, ports: [1] }\n  - { cidr: 10.0.0.0/33, ports: [1] }\n  - { cidr: 127.1, ports: [1] }\n  - { cidr: a.example.com, ports: [1] }\n  - { cidr: 10, ports: [1] }"
        ),
        &with(
            "allow:\n  - { host: a.example.com, until: tomorrow }\n  - { host: a.example.com, until: 2027-02-30 }\n  - { host: a.example.com, until: 2027-01-31T10:00:00Z }"
        ),
        &with("private: 'true'\nexplain: True"),
        "policy: 1\nnetwork: none",
        "policy: no\nnetwork: 'none'",
    ]));
}

#[test]
fn host_patterns_are_exact_or_refused() {
    let hosts = [
        "*",
        "**",
        "*example.com",
        "a.*.com",
        "www*.com",
        "*.*.com",
        ".example.com",
        "*.",
        "..",
        "ex?mple.com",
        "*.example.com.*",
        "a..example.com",
        "http://a.example.com",
        "a.example.com:443",
        "a.example.com/x",
        "8.8.8.8",
        "[::1]",
        "-a.example.com",
        "a b.example.com",
        "user@a.example.com",
        "a%2e.example.com",
    ];
    let lines: Vec<String> = hosts
        .iter()
        .map(|host| format!("  - host: {host:?}"))
        .collect();
    let mistakes = mistakes_of(&with(&format!("allow:\n{}", lines.join("\n"))));
    assert_eq!(mistakes.len(), hosts.len(), "{mistakes:#?}");
    insta::assert_snapshot!(mistakes.join("\n"));
    let fine = accepted(&with(
        "allow:\n  - host: '*.example.com.'\n  - host: B\u{fc}cher.example.com\n  - host: _dmarc.example.com",
    ));
    assert_eq!(fine.allow.len(), 3);
}

#[test]
fn paths_are_canonical_or_refused() {
    let rule = |path: &str| {
        with(&format!(
            "allow:\n  - {{ host: a.example.com, http: [{{ paths: [{path:?}] }}] }}"
        ))
    };
    insta::assert_snapshot!(report(&[
        &rule("repos"),
        &rule("/a/../b"),
        &rule("/a//b"),
        &rule("/a/%2e%2e/b"),
        &rule("/a?x=1"),
        &rule("/a**"),
        &rule("/%61"),
    ]));
    for path in ["/", "/**", "/a/*/b", "/v*/x", "/a%2Fb"] {
        accepted(&rule(path));
    }
}

#[test]
fn every_mistake_in_a_tests_block_is_told_at_once() {
    let text = with(
        "tests:
  - { to: a.example.com, expect: permit }
  - { to: 'a.example.com:443', expect: allow }
  - { to: 'a.example.com:443', expect: deny, reason: name_denid }
  - { to: 'a.example.com:443', expect: permit, resolves_to: [10.0.0.256] }
  - { to: 'a.example.com:443', expect: permit, sni: '*.example.com' }
  - { to: 'a.example.com:443', expect: permit, method: get }
  - { to: 'a.example.com:443', expect: permit, path: x }
  - { to: 'a.example.com:53', protocol: udp, sni: a.example.com, expect: deny }
  - { to: 'a.example.com:53', protocol: udp, path: /x, expect: deny }
  - { expect: permit }
  - { to: '*.example.com:443', expect: permit }",
    );
    let found = parse("p.yaml", &text, None).unwrap_err();
    let lines: Vec<u32> = found.iter().map(|mistake| mistake.at.line).collect();
    assert_eq!(lines, (4..=14).collect::<Vec<u32>>(), "{found:#?}");
    assert!(
        found[2]
            .hint
            .as_deref()
            .is_some_and(|hint| hint.contains("name_denied"))
    );
}
