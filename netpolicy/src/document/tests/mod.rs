//! Whole documents: what is accepted, what is refused where, and that the schema agrees.

mod agreement;
mod hostile;
mod mistakes;
mod properties;

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
    assert_eq!(
        policy.deny[0].reason.as_deref(),
        Some("pastes leave the company")
    );
    assert_eq!(policy.deny[1].ports, Ports::any());
    assert_eq!(policy.limits.upload, Some(104_857_600));
    assert_eq!(policy.needs_packages.as_ref().unwrap().line, 6);
    assert_eq!(policy.network_at.line, 3);
    let unenforced: Vec<_> = policy
        .unenforced
        .iter()
        .map(|(what, at)| (what.as_str(), at.line))
        .collect();
    assert_eq!(
        unenforced,
        [
            ("`http` (methods and paths)", 11),
            ("`secrets`", 29),
            ("`unknown: ask`", 30)
        ]
    );
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
    let each = |text: &&str| format!("{text}\n=> {}\n\n", mistakes_of(text).join("\n=> "));
    documents.iter().map(each).collect::<Vec<_>>().concat()
}

#[test]
fn packages_come_from_the_image() {
    let text = with("use: [packages]\nallow: [{ host: a.example.com }]");
    let open = accepted(&text);
    assert_eq!(
        (
            open.allow.len(),
            open.needs_packages.as_ref().map(|at| at.line)
        ),
        (1, Some(3))
    );
    let hosts = [
        "mirror.example.net".to_owned(),
        "files.example.net".to_owned(),
    ];
    let filled = parse("p.yaml", &text, Some(&hosts)).unwrap();
    assert_eq!(filled.needs_packages, None);
    assert_eq!(filled.allow.len(), 3);
    for (line, rule) in (1..).zip(&filled.allow[1..]) {
        assert_eq!((&*rule.at.file, rule.at.line), ("set:packages", line));
        assert_eq!(rule.ports, Ports::web());
        assert!(matches!(rule.to, Selector::Host(Pattern::Exact(_))));
    }
    assert_ne!(open.hash, filled.hash);
    let many: Vec<String> = (0..65).map(|n| format!("h{n}.example.net")).collect();
    assert!(parse("p.yaml", &text, Some(&many[..64])).is_ok());
    assert_eq!(parse("p.yaml", &text, Some(&many)).unwrap_err().len(), 1);
    for wider in [
        "*",
        "*.example.net",
        "203.0.113.9",
        "::1",
        "a.example.net:22",
        "a/b",
        "",
    ] {
        let wrong = parse("p.yaml", &text, Some(&[wider.to_owned()])).unwrap_err();
        assert_eq!(wrong[0].at.line, 3, "{wider:?}");
    }
    let unused = with("allow: [{ host: a.example.com }]");
    assert_eq!(
        parse("p.yaml", &unused, Some(&hosts)),
        parse("p.yaml", &unused, None)
    );
}

#[test]
fn the_hash_is_of_the_text() {
    let policy = accepted("policy: p\nnetwork: none\n");
    assert_eq!(
        policy.hash.to_string(),
        "94caa826d213bb83b19135d0d10e6120b53ae2c964a325a818427d304ed9ac86"
    );
}
