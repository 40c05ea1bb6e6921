//! Every sentence, as people read it, and the shape that programs read.

use std::fmt::Write as _;
use std::sync::Arc;

use super::*;
use crate::addr::AddressBook;
use crate::decide::OwnListeners;
use crate::name::Authority;
use crate::policy::Policy;

const NOW: UnixSeconds = UnixSeconds(1_795_996_799);

fn policy(file: &str, body: &str) -> Arc<Policy> {
    let text = format!("policy: {}\n{body}\n", file.trim_end_matches(".yaml"));
    match crate::document::parse(file, &text, None) {
        Ok(policy) => Arc::new(policy),
        Err(mistakes) => panic!("{text}\n{mistakes:#?}"),
    }
}

fn snapshot(layers: &[(LayerKind, Arc<Policy>)]) -> Snapshot {
    let book = AddressBook {
        gateway: vec!["198.18.0.0/15".parse().unwrap()],
        host: vec!["93.184.216.1".parse().unwrap()],
        ..AddressBook::default()
    };
    let own = OwnListeners {
        ports: vec![7070],
        names: vec![Name::parse("console.example.net").unwrap()],
    };
    Snapshot::new(layers.to_vec(), Arc::new(book), Arc::new(own))
}

fn job(body: &str) -> Snapshot {
    snapshot(&[(LayerKind::Job, policy("job.yaml", body))])
}

/// `host:port` with ` udp`, ` sni=N`, ` ip=A`, ` GET /path`.
fn question(text: &str) -> Question {
    let mut words = text.split(' ');
    let to = Authority::parse(words.next().unwrap().as_bytes()).unwrap();
    let mut question = Question::new(to.host, to.port.unwrap(), Protocol::Tcp);
    for word in words {
        match word.split_once('=') {
            Some(("sni", name)) => question.sni = Some(Name::parse(name).unwrap()),
            Some(("ip", address)) => question.resolves_to.push(address.parse().unwrap()),
            _ if word == "udp" => question.protocol = Protocol::Udp,
            _ if word.starts_with('/') => question.path = Some(word.to_owned()),
            _ => question.method = Some(word.to_owned()),
        }
    }
    question
}

fn asked(s: &Snapshot, text: &str) -> Explanation {
    explain(s, &question(text), NOW)
}

fn report(s: &Snapshot, questions: &[&str]) -> String {
    let mut out = String::new();
    for text in questions {
        let e = asked(s, text);
        let reason = e
            .reason
            .map(|reason| format!(" {reason}"))
            .unwrap_or_default();
        let class = e
            .class
            .map(|class| format!(" class={class:?}"))
            .unwrap_or_default();
        let rule = e
            .rule
            .map(|rule| format!(" {}:{}", rule.file, rule.line))
            .unwrap_or_default();
        let layer = e
            .layer
            .map(|layer| format!(" {}", layer.word()))
            .unwrap_or_default();
        let inspect = if e.inspect { " inspect" } else { "" };
        writeln!(
            out,
            "? {text}\n= {:?}{reason}{class}{rule}{layer}{inspect}\n  {}",
            e.decision, e.summary
        )
        .unwrap();
        if let Some(change) = e.change {
            writeln!(out, "  > {change}").unwrap();
        }
    }
    out
}

#[test]
fn a_list_of_domains_is_explained() {
    let s = job("network: domains
allow:
  - host: a.example.com
  - host: '*.wild.example.com'
    ports: [22, '6000-6100']
  - { host: dns.example.com, ports: [53], protocol: udp }
  - { cidr: 203.0.112.0/24, ports: [5432] }
  - host: nas.local
deny:
  - { host: bad.wild.example.com, reason: pastes leave the company }
  - { cidr: 8.8.8.0/24 }");
    insta::assert_snapshot!(report(
        &s,
        &[
            "a.example.com:443",
            "a.example.com:80",
            "a.example.com:443 ip=93.184.216.34 sni=a.example.com",
            "a.example.com:443 sni=b.example.com",
            "a.example.com:80 sni=b.example.com",
            "a.example.com:22",
            "a.example.com:443 udp",
            "b.example.com:443",
            "b.example.com:8443 udp",
            "x.wild.example.com:22",
            "bad.wild.example.com:22",
            "dns.example.com:53 udp",
            "dns.example.com:53",
            "a.example.com:443 ip=8.8.8.8",
            "a.example.com:443 ip=1.1.1.1 ip=10.0.0.1",
            "a.example.com:443 ip=169.254.169.254",
            "a.example.com:443 ip=240.0.0.1",
            "203.0.112.7:5432",
            "203.0.112.7:5433",
            "1.1.1.1:443",
            "1.1.1.1:443 sni=a.example.com",
            "1.1.1.1:443 sni=a.example.com ip=9.9.9.9",
            "10.0.0.1:5432",
            "93.184.216.1:22",
            "240.0.0.1:22",
            "169.254.169.254:80",
            "127.0.0.1:80",
            "[ff02::1]:80",
            "198.18.0.1:53",
            "nas.local:443",
            "router:443",
            "x.onion:443",
            "metadata.google.internal:80",
            "console.example.net:443",
        ]
    ));
}

#[test]
fn internet_is_explained() {
    let preset = |name| Arc::new(crate::document::preset(name).unwrap());
    let s = snapshot(&[(LayerKind::Job, preset("internet"))]);
    insta::assert_snapshot!(
        "internet",
        report(
            &s,
            &[
                "any.example.org:443",
                "any.example.org:25",
                "8.8.8.8:25",
                "8.8.8.8:53 udp",
                "10.0.0.1:443",
                "93.184.216.1:443",
            ]
        )
    );
    let s = snapshot(&[(LayerKind::Job, preset("internet-private"))]);
    insta::assert_snapshot!(
        "internet_private",
        report(
            &s,
            &[
                "any.example.org:443",
                "10.0.0.1:443",
                "93.184.216.1:7070",
                "any.example.org:7070 ip=93.184.216.1",
                "nas.local:443",
                "240.0.0.1:9",
            ]
        )
    );
    insta::assert_snapshot!(
        "app",
        report(
            &snapshot(&[(LayerKind::Job, preset("app"))]),
            &[
                "8.8.8.8:443",
                "8.8.8.8:80",
                "a.example.org:80 ip=8.8.8.8",
                "a.example.org:8443"
            ]
        )
    );
}

#[test]
fn nothing_is_explained() {
    let none = snapshot(&[(
        LayerKind::Job,
        Arc::new(crate::document::preset("none").unwrap()),
    )]);
    insta::assert_snapshot!("none", report(&none, &["a.example.com:443", "8.8.8.8:443"]));
    insta::assert_snapshot!("no_policy", report(&snapshot(&[]), &["a.example.com:443"]));
}

#[test]
fn floors_are_named_as_such() {
    let s = snapshot(&[
        (
            LayerKind::Instance,
            policy(
                "floor.yaml",
                "network: internet\ndeny:\n  - host: gist.example.com",
            ),
        ),
        (
            LayerKind::Workspace,
            policy(
                "team.yaml",
                "network: domains\nallow:\n  - { host: '*.example.com', ports: [443], speaks: tls }",
            ),
        ),
        (
            LayerKind::Job,
            policy(
                "job.yaml",
                "network: domains\nprivate: true\nallow:\n  - { host: '*.example.com' }\n  - { host: web.example.com, ports: [443], speaks: http }\n  - { host: a.example.org }",
            ),
        ),
    ]);
    insta::assert_snapshot!(report(
        &s,
        &[
            "a.example.com:443",
            "gist.example.com:443",
            "a.example.org:443",
            "a.example.com:80",
            "a.example.com:443 ip=10.0.0.1",
            "web.example.com:443",
        ]
    ));
}

#[test]
fn requests_secrets_and_asking_are_explained() {
    let s = job("network: domains
allow:
  - host: api.example.com
    http:
      - { methods: [GET, HEAD], paths: ['/repos/acme/**'] }
      - { paths: ['/status'] }
  - host: model.example.com
secrets:
  - { secret: KEY, host: model.example.com, header: 'Authorization: Bearer {}' }
deny:
  - host: bad.example.com
unknown: ask");
    insta::assert_snapshot!(report(
        &s,
        &[
            "api.example.com:443",
            "api.example.com:443 GET /repos/acme/x?y=1",
            "api.example.com:443 sni=api.example.com GET /repos/acme/x",
            "api.example.com:80 POST /status",
            "api.example.com:443 DELETE /repos/acme/x",
            "api.example.com:443 GET /repos/acme/%2e%2e/x",
            "api.example.com:443 /repos",
            "model.example.com:443",
            "new.example.com:443",
            "api.example.com:22",
            "8.8.8.8:443",
            "10.0.0.1:443",
            "bad.example.com:443",
            "router:443",
        ]
    ));
}

#[test]
fn a_floor_is_not_asked_about() {
    let s = snapshot(&[
        (
            LayerKind::Instance,
            policy(
                "floor.yaml",
                "network: domains\nallow: [{ host: a.example.com }]",
            ),
        ),
        (
            LayerKind::Job,
            policy("job.yaml", "network: domains\nunknown: ask"),
        ),
    ]);
    assert_eq!(asked(&s, "b.example.com:443").decision, Decision::Deny);
    assert_eq!(asked(&s, "a.example.com:443").decision, Decision::Ask);
}

#[test]
fn programs_read_exactly_these_keys() {
    let s = job("network: domains\nallow: [{ host: a.example.com }]");
    for text in ["a.example.com:443", "b.example.com:443", "127.0.0.1:1"] {
        let json = serde_json::to_value(asked(&s, text)).unwrap();
        let mut keys: Vec<&str> = json
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        keys.sort_unstable();
        let all = [
            "change", "class", "decision", "inspect", "layer", "policy", "reason", "rule",
            "summary",
        ];
        assert_eq!(keys, all);
    }
    let json = serde_json::to_value(asked(&s, "10.0.0.1:443")).unwrap();
    assert_eq!(json["decision"], "deny");
    assert_eq!(json["reason"], "address_private");
    assert_eq!(json["class"], "private");
    assert_eq!(
        json["rule"],
        serde_json::json!({ "file": "job.yaml", "line": 2 })
    );
    assert_eq!(json["layer"], "job");
    assert_eq!(json["policy"], "job");
    assert_eq!(json["inspect"], false);
}

#[test]
fn what_the_change_says_changes_it() {
    let body = "network: domains\nprivate: false\nallow:\n";
    for text in [
        "b.example.com:443",
        "b.example.com:8443",
        "b.example.com:53 udp",
        "203.0.112.7:5432",
    ] {
        let before = asked(&job(&format!("{body}  - host: a.example.com")), text);
        assert_eq!(before.decision, Decision::Deny, "{text}");
        let change = before.change.unwrap();
        let entry = change.split("add under `allow`: ").nth(1).unwrap();
        assert_eq!(
            asked(&job(&format!("{body}  {entry}")), text).decision,
            Decision::Permit,
            "{change}"
        );
    }
}

#[test]
fn tests_of_a_policy_are_run() {
    let s = job("network: domains
allow: [{ host: a.example.com }]
tests:
  - { to: 'a.example.com:443', expect: permit }
  - { to: 'a.example.com:443', resolves_to: [10.0.0.1], expect: deny, reason: name_resolves_to_forbidden }
  - { to: '8.8.8.8:443', expect: deny }
  - { to: 'b.example.com:443', expect: permit }
  - { to: '8.8.8.8:443', expect: deny, reason: address_denied }");
    let run = run_tests(&s, NOW);
    let failed = run.iter().filter(|tested| !tested.passed);
    let lines: Vec<u32> = failed.map(|tested| tested.test.at.line).collect();
    assert_eq!(lines, [8, 9]);
}

#[test]
fn tests_may_suppose_addresses_server_names_and_requests() {
    let s = job("network: domains
allow:
  - { host: a.example.com, ports: [443], http: [{ methods: [GET], paths: [/pub/**] }] }
tests:
  - { to: 'a.example.com:443', method: GET, path: /pub/x, expect: permit }
  - { to: 'a.example.com:443', path: /pub/x, expect: permit }
  - { to: 'a.example.com:443', method: POST, path: /pub/x, expect: deny, reason: http_request_not_allowed }
  - { to: 'a.example.com:443', path: /pub/../x, expect: deny, reason: http_request_not_allowed }
  - { to: 'a.example.com:443', sni: b.example.com, expect: deny, reason: tls_name_mismatch }
  - { to: 'a.example.com:443', resolves_to: [10.0.0.1], expect: deny, reason: name_resolves_to_forbidden }
  - { to: 'a.example.com:443', protocol: udp, expect: deny, reason: protocol_not_allowed }
  - { to: 'a.example.com:443', resolves_to: [8.8.8.8, 8.8.4.4], expect: permit }
  - { to: '8.8.8.8:443', sni: a.example.com, expect: permit }
  - { to: '8.8.8.8:443', sni: a.example.com, resolves_to: [8.8.4.4], expect: deny, reason: address_not_allowed }");
    for tested in run_tests(&s, NOW) {
        assert!(tested.passed, "{:?} is {:?}", tested.test, tested.found);
    }
}
