//! Whole documents: what is accepted, what is refused where, and that the schema agrees.

use super::*;
use crate::policy::*;

fn mistakes_of(text: &str) -> Vec<String> {
    match parse("p.yaml", text, None) {
        Ok(policy) => panic!("accepted: {:?}\n{text}", policy.name),
        Err(mistakes) => mistakes.iter().map(ToString::to_string).collect(),
    }
}

/// The document of the design, as its readers will write it.
const FULL: &str = r#"policy: research
description: Reads our repositories, talks to the model, nothing else
network: domains
private: false
names: leased
use: [packages, github, lab]
sets:
  lab:
    - { host: lab.example.com, ports: [8443], speaks: tls }
allow:
  - host: api.github.com
    http:
      - { methods: [GET], paths: ["/repos/acme/**"] }
  - host: git.example.com
    ports: [22, "6000-6100"]
    speaks: any
    protocol: tcp
    until: 2027-01-31
  - cidr: 203.0.113.0/24
    ports: [5432]
deny:
  - host: gist.github.com
    reason: pastes leave the company
  - cidr: 198.51.100.0/24
ingress:
  - { ports: [8080] }
limits: { flows: 256, upload: 100MiB, names: 500 }
secrets:
  - { secret: GITHUB_TOKEN, host: api.github.com, header: "Authorization: Bearer {}" }
unknown: ask
explain: true
tests:
  - { to: "api.github.com:443", expect: permit }
  - { to: "gist.github.com:443", expect: deny, reason: name_denied }
"#;

#[test]
fn the_whole_grammar_is_read() {
    let policy = parse("p.yaml", FULL, None).unwrap();
    assert_eq!(policy.name, "research");
    assert_eq!(policy.network, NetworkMode::Domains);
    assert_eq!(policy.allow.len(), 3 + 4 + 1);
    assert_eq!(policy.allow[1].ports, Ports(vec![22..=22, 6000..=6100]));
    assert_eq!(policy.allow[1].until.unwrap().0, 1_801_440_000);
    assert_eq!(policy.allow[0].at.line, 11);
    assert_eq!(policy.allow[0].at.column, 5);
    assert_eq!(&*policy.allow[3].at.file, "set:github");
    assert_eq!(policy.allow[7].at.line, 9);
    assert_eq!(policy.deny[0].reason.as_deref(), Some("pastes leave the company"));
    assert_eq!(policy.deny[1].ports, Ports::any());
    assert_eq!(policy.limits.upload, Some(104_857_600));
    assert_eq!(policy.needs_packages.as_ref().unwrap().line, 6);
    assert_eq!(policy.network_at.line, 3);
    let unenforced: Vec<_> = policy.unenforced.iter().map(|(what, at)| (what.as_str(), at.line)).collect();
    assert_eq!(unenforced, [("`http` (methods and paths)", 11), ("`secrets`", 29), ("`unknown: ask`", 30)]);
    assert_eq!(policy.tests.len(), 2);
}


/// A document with these lines after a good head.
fn with(lines: &str) -> String {
    format!("policy: p\nnetwork: domains\n{lines}\n")
}

fn accepted(text: &str) -> Policy {
    parse("p.yaml", text, None).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes:#?}"))
}

/// Each document with its mistakes, for a person to read.
fn report(documents: &[&str]) -> String {
    documents.iter().map(|text| format!("{text}\n=> {}\n\n", mistakes_of(text).join("\n=> "))).collect()
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
        &with("allow:\n  - host:\n  - host: ''\n  - hosts: a\n  - { host: a.example.com, cidr: 8.8.8.8, ports: [1] }"),
        &with("allow:\n  - cidr: 203.0.113.0/24\n  - { cidr: 203.0.113.0/24, ports: [80], http: [{ methods: [GET] }] }"),
        &with("allow:\n  - { host: a.example.com, speaks: any, http: [{ methods: [GET] }] }\n  - { host: a.example.com, http: [] }\n  - { host: a.example.com, http: [{}] }"),
        &with("allow:\n  - { host: a.example.com, protocol: udp, speaks: tls }\n  - { host: a.example.com, protocol: icmp }\n  - { host: a.example.com, speaks: https }"),
        &with("deny:\n  - { host: a.example.com, speaks: any, until: 2027-01-01 }\n  - {}"),
        &with("ingress:\n  - 8080\n  - {}\n  - { ports: [] }\n  - { ports: 8080 }"),
        &with("limits: { flows: 0, rate: -1, upload: 100, download: 1.5GiB, names: '5', records: lots, bandwith: 1MB }"),
        &with("secrets:\n  - { secret: a b, host: '*', header: Authorization }\n  - { secret: K, host: a.example.com, header: 'Host: {}' }\n  - { secret: K, host: a.example.com, header: 'X: {} {}' }"),
        &with("unknown: maybe"),
        &with("use: packages"),
        &with("use: [package, githib, nonsense, github, github]"),
        &with("sets: { github: [{ host: a.example.com }], Bad_Name: [], x: [{ host: a }, { hos: b }] }"),
        &with("tests:\n  - { to: a.example.com, expect: permit }\n  - { to: 'a.example.com:443', expect: permit, reason: name_denied }\n  - { to: 'a.example.com:443', expect: deny, reason: name_deneid }\n  - { to: 'http://a:1', expect: perhaps, resolves_to: [010.0.0.1] }"),
    ]));
}

#[test]
fn values_that_yaml_readers_disagree_about_are_refused() {
    insta::assert_snapshot!(report(&[
        &with("allow:\n  - { host: a.example.com, ports: [22:22, 0o10, 010, 1_000, 1e3, 80.0, 65536, -1, 0, 0x50, '80', 80-, 90-80, any] }"),
        &with("allow:\n  - host: no\n  - host: 1.0\n  - host: null\n  - host: ~\n  - host: 2026-01-01\n  - host: 0x7f.1\n  - host: 2130706433\n  - host: true\n  - host: 12:30"),
        &with("allow:\n  - { cidr: 010.0.0.0/8, ports: [1] }\n  - { cidr: 10.0.0.1/8, ports: [1] }\n  - { cidr: 10.0.0.0/33, ports: [1] }\n  - { cidr: 127.1, ports: [1] }\n  - { cidr: a.example.com, ports: [1] }\n  - { cidr: 10, ports: [1] }"),
        &with("allow:\n  - { host: a.example.com, until: tomorrow }\n  - { host: a.example.com, until: 2027-02-30 }\n  - { host: a.example.com, until: 2027-01-31T10:00:00Z }"),
        &with("private: 'true'\nexplain: True"),
        "policy: 1\nnetwork: none",
        "policy: no\nnetwork: 'none'",
    ]));
}

#[test]
fn host_patterns_are_exact_or_refused() {
    let hosts = [
        "*", "**", "*example.com", "a.*.com", "www*.com", "*.*.com", ".example.com", "*.", "..", "ex?mple.com",
        "*.example.com.*", "a..example.com", "http://a.example.com", "a.example.com:443", "a.example.com/x",
        "8.8.8.8", "[::1]", "-a.example.com", "a b.example.com", "user@a.example.com", "a%2e.example.com",
    ];
    let lines: Vec<String> = hosts.iter().map(|host| format!("  - host: {host:?}")).collect();
    let mistakes = mistakes_of(&with(&format!("allow:\n{}", lines.join("\n"))));
    assert_eq!(mistakes.len(), hosts.len(), "{mistakes:#?}");
    insta::assert_snapshot!(mistakes.join("\n"));
    let fine = accepted(&with("allow:\n  - host: '*.example.com.'\n  - host: B\u{fc}cher.example.com\n  - host: _dmarc.example.com"));
    assert_eq!(fine.allow.len(), 3);
}

#[test]
fn paths_are_canonical_or_refused() {
    let rule = |path: &str| with(&format!("allow:\n  - {{ host: a.example.com, http: [{{ paths: [{path:?}] }}] }}"));
    insta::assert_snapshot!(report(&[
        &rule("repos"), &rule("/a/../b"), &rule("/a//b"), &rule("/a/%2e%2e/b"), &rule("/a?x=1"), &rule("/a**"), &rule("/%61"),
    ]));
    for path in ["/", "/**", "/a/*/b", "/v*/x", "/a%2Fb"] {
        accepted(&rule(path));
    }
}

#[test]
fn what_hides_meaning_is_refused() {
    insta::assert_snapshot!(report(&[
        &with("allow: &a\n  - host: a.example.com\ndeny: *a"),
        &with("x: &base { host: a.example.com }\nallow:\n  - <<: *base"),
        &with("allow:\n  - !!str host: a.example.com\n  - !Rule { host: a.example.com }"),
        &with("---\npolicy: q"),
        "%YAML 1.1\n---\npolicy: p\nnetwork: none\n---\npolicy: q\nnetwork: internet",
        "policy: p\nnetwork: none\n...\npolicy: q\nnetwork: internet",
        &with("? [a, b]\n: c"),
        &with("? { a: b }\n: c\n'': d"),
        "policy: p\n\"network\": none\nnetwork: internet",
        "policy: p\nnetwork: none\n\tprivate: true",
        "policy: p\nnetwork: [none",
        "policy: p\nnetwork: \"none",
        "{ policy: p, network: none }}",
    ]));
}

#[test]
fn characters_that_nobody_sees_are_refused() {
    for (character, what) in [
        ('\0', "NUL"), ('\u{7}', "control"), ('\u{1b}', "control"), ('\u{7f}', "control"), ('\u{85}', "control"),
        ('\u{2028}', "control"), ('\u{202e}', "bidirectional"), ('\u{2066}', "bidirectional"), ('\u{200f}', "bidirectional"),
        ('\u{200b}', "invisible"), ('\u{200d}', "invisible"), ('\u{2060}', "invisible"), ('\u{ad}', "invisible"),
        ('\u{feff}', "byte order mark"), ('\u{fe0f}', "invisible"), ('\u{e0041}', "invisible"), ('\u{3164}', "invisible"),
        ('\u{a0}', "blank"), ('\u{3000}', "blank"), ('\u{ffff}', "non-character"), ('\u{fdd0}', "non-character"),
        ('\u{1fffe}', "non-character"), ('\u{e000}', "private-use"), ('\u{fffd}', "replacement"),
    ] {
        let raw = mistakes_of(&with(&format!("description: ab{character}c")));
        assert_eq!(raw.len(), 1, "{character:?} {raw:?}");
        assert!(raw[0].starts_with("p.yaml:3:16:") && raw[0].contains(what), "{raw:?}");
        let code = u32::from(character);
        let escape = if code > 0xffff { format!("\\U{code:08x}") } else { format!("\\u{code:04x}") };
        let escaped = mistakes_of(&with(&format!("description: \"ab{escape}c\"")));
        assert!(escaped[0].starts_with("p.yaml:3:14:") && escaped[0].contains(what), "{escaped:?}");
        mistakes_of(&with(&format!("allow: [{{ host: \"exam{escape}ple.com\" }}]")));
        mistakes_of(&with(&format!("\"allow{escape}\": []")));
    }
    accepted("\u{feff}policy: p\nnetwork: none\n");
    accepted("policy: p\r\nnetwork: none\r\ndescription: Gr\u{fc}\u{df}e \u{4f60}\u{597d} \u{1f600}\r\n");
    accepted(&with("description: |\n  two\n  lines"));
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_place() {
    let of = |bytes: &[u8]| parse_bytes("p.yaml", bytes, None).unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(of(b"\xff\xfep\0"), ["p.yaml:1:1: the file is UTF-16 (hint: save it as UTF-8)"]);
    assert_eq!(of(b"policy: p\nnetwork: n\xffne"), ["p.yaml:2:11: the file is not UTF-8 (hint: save it as UTF-8)"]);
    assert_eq!(parse_bytes("p.yaml", b"policy: p\nnetwork: none\n", None), parse("p.yaml", "policy: p\nnetwork: none\n", None));
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    mistakes_of(pointer);
}

#[test]
fn documents_that_no_person_writes_are_refused_quickly() {
    let start = std::time::Instant::now();
    let alias_bomb = format!("a: &a [x, x]\n{}", (0..1000).map(|i| format!("b{i}: [*a, *a, *a]\n")).collect::<String>());
    let scalar = format!("policy: p\ndescription: {}\n", "x".repeat(2 << 20));
    for text in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        format!("a: {}", "&a ".repeat(10_000)),
        (0..500).map(|i| format!("{}a:\n", " ".repeat(i))).collect(),
        format!("policy: {}", "\"".repeat(100_000)),
        "a: b\n".repeat(100_000),
        "!!a ".repeat(100_000),
        "%TAG ! x\n".repeat(50_000),
        format!("allow: [{}]", "a, ".repeat(250_000)),
        alias_bomb,
        scalar,
    ] {
        let mistakes = mistakes_of(&text);
        assert!(mistakes.len() <= 101);
        assert!(mistakes.iter().all(|mistake| mistake.len() < 600), "{mistakes:?}");
    }
    // generous for a loaded machine; what is excluded is work that grows faster than the text
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn packages_come_from_the_image() {
    let text = with("use: [packages]\nallow: [{ host: a.example.com }]");
    let open = accepted(&text);
    assert_eq!((open.allow.len(), open.needs_packages.as_ref().map(|at| at.line)), (1, Some(3)));
    let hosts = ["mirror.example.net".to_owned(), "proxy.example.net:8081".to_owned(), "203.0.113.9:80".to_owned()];
    let filled = parse("p.yaml", &text, Some(&hosts)).unwrap();
    assert_eq!(filled.needs_packages, None);
    assert_eq!(filled.allow.len(), 4);
    assert_eq!(filled.allow[1].ports, Ports::web());
    assert_eq!(filled.allow[2].ports, Ports(vec![8081..=8081]));
    assert!(matches!(filled.allow[3].to, Selector::Cidr(_)));
    assert!(filled.allow[1..].iter().all(|rule| rule.at.line == 3));
    assert_ne!(open.hash, filled.hash);
    let wrong = parse("p.yaml", &text, Some(&["*".to_owned()])).unwrap_err();
    assert_eq!(wrong[0].at.line, 3);
    let unused = with("allow: [{ host: a.example.com }]");
    assert_eq!(parse("p.yaml", &unused, Some(&hosts)), parse("p.yaml", &unused, None));
}

#[test]
fn the_hash_is_of_the_text() {
    let policy = accepted("policy: p\nnetwork: none\n");
    assert_eq!(policy.hash.to_string(), "94caa826d213bb83b19135d0d10e6120b53ae2c964a325a818427d304ed9ac86");
}

mod agreement {
    //! The schema and the checker give the same verdict on structure.

    use super::super::tree::{self, Node, Value};
    use super::*;

    fn json(node: &Node) -> serde_json::Value {
        match &node.value {
            Value::List(items) => items.iter().map(json).collect(),
            Value::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), json(&entry.value))).collect(),
            Value::Scalar { text, .. } => match (node.is_null(), shape::flag(node), shape::whole(node)) {
                (true, _, _) => serde_json::Value::Null,
                (_, Some(flag), _) => flag.into(),
                (_, _, Some(number)) => number.into(),
                _ => text.clone().into(),
            },
        }
    }

    #[test]
    fn the_schema_agrees_with_the_checker() {
        let schema = schema();
        jsonschema::meta::validate(&schema).unwrap();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let good = [
            FULL.to_owned(),
            with("allow: []\ndeny: []\nuse: []\ningress: [{ ports: any }]"),
            with("allow: [{ host: a.example.com, ports: [1-2, 3], http: [{ methods: [GET] }] }]"),
            with("deny: [{ cidr: 8.8.8.8 }, { host: a.example.com, ports: any, protocol: udp }]"),
            with("limits: {}\nsecrets: []\ntests: []\nsets: {}"),
        ];
        let presets = PRESETS.iter().map(|(name, _)| preset_text(name).unwrap().to_owned());
        let bad = [
            "policy: p".to_owned(),
            "network: none".to_owned(),
            "policy: p\nnetwork: domain".to_owned(),
            "[]".to_owned(),
            "policy: ../p\nnetwork: none".to_owned(),
            with("nonsense: 1"),
            with("private: 1"),
            with("private: 'true'"),
            with("allow: {}"),
            with("allow:"),
            with("allow: [a.example.com]"),
            with("allow: [{}]"),
            with("allow: [{ host: a.example.com, cidr: 8.8.8.8, ports: [1] }]"),
            with("allow: [{ cidr: 8.8.8.8 }]"),
            with("allow: [{ cidr: 8.8.8.8, ports: [1], http: [{ methods: [GET] }] }]"),
            with("allow: [{ host: a.example.com, ports: [] }]"),
            with("allow: [{ host: a.example.com, ports: [0] }]"),
            with("allow: [{ host: a.example.com, ports: [65536] }]"),
            with("allow: [{ host: a.example.com, ports: ['80'] }]"),
            with("allow: [{ host: a.example.com, ports: 80 }]"),
            with("allow: [{ host: a.example.com, ports: [any] }]"),
            with("allow: [{ host: a.example.com, ports: [22:22] }]"),
            with("allow: [{ host: a.example.com, speaks: any, http: [{ methods: [GET] }] }]"),
            with("allow: [{ host: a.example.com, protocol: udp, http: [{ methods: [GET] }] }]"),
            with("allow: [{ host: a.example.com, protocol: udp, speaks: any }]"),
            with("allow: [{ host: a.example.com, http: [] }]"),
            with("allow: [{ host: a.example.com, http: [{ methods: [get] }] }]"),
            with("allow: [{ host: a.example.com, until: soon }]"),
            with("allow: [{ host: '' }]"),
            with("deny: [{ host: a.example.com, speaks: any }]"),
            with("ingress: [{}]"),
            with("limits: { flows: 0 }"),
            with("limits: { upload: 100 }"),
            with("limits: { upload: 100mib }"),
            with("secrets: [{ secret: K, host: a.example.com, header: 'X: y' }]"),
            with("secrets: [{ secret: K, host: a.example.com }]"),
            with("sets: { Bad_Name: [{ host: a.example.com }] }"),
            with("sets: { x: [] }"),
            with("unknown: maybe"),
            with("use: packages"),
            with("tests: [{ to: 'a.example.com:1', expect: permit, reason: name_denied }]"),
            with("tests: [{ to: 'a.example.com:1' }]"),
        ];
        for (text, fits) in good.into_iter().chain(presets).map(|text| (text, true)).chain(bad.map(|text| (text, false))) {
            let mut mistakes = Mistakes::new("p.yaml");
            let root = tree::read(&text, &mut mistakes).unwrap();
            shape::check(&root, &grammar::POLICY, &mut mistakes);
            assert_eq!(mistakes.count() == 0, fits, "checker: {text}\n{mistakes:?}");
            assert_eq!(validator.is_valid(&json(&root)), fits, "schema: {text}");
        }
    }

    #[test]
    fn the_schema_is_published_as_it_stands() {
        insta::assert_json_snapshot!(schema());
    }
}

mod properties {
    //! Nothing that a text can be makes reading panic, and every mistake has its place in the text.

    use proptest::prelude::*;

    use super::*;

    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "policy", "network", "allow", "host", "ports", ": ", ":", "\n", "\n  ", "\n  - ", "- ", "[", "]", "{", "}", ", ",
            "&a ", "*a", "!t ", "'", "\"", "|", ">", "#", "%", "@", "`", "?", "<<", "---", "...", "none", "domains", "80",
            "*.example.com", "a.example.com", "\\", "\\u202e", "\t", "\r\n", "\u{fc}", "~",
        ]);
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn any_text_gives_a_policy_or_placed_mistakes(text in prop_oneof![pieces(), any::<String>()]) {
            if let Err(mistakes) = parse("p.yaml", &text, None) {
                prop_assert!(!mistakes.is_empty());
                let lines = u32::try_from(text.split(['\n', '\r']).count()).unwrap();
                for mistake in mistakes {
                    prop_assert!(mistake.at.line >= 1 && mistake.at.line <= lines + 1, "{mistake}");
                    prop_assert!(!mistake.to_string().chars().any(char::is_control), "{mistake:?}");
                }
            }
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_bytes("p.yaml", &bytes, None);
        }
    }
}
