//! `policy explain`: what would happen, why, which line.

use lab::cli::{Said, sallyport, sallyport_in};
use serde_json::Value;

const POLICY: &str = "\
policy: research
network: domains
allow:
  - host: api.example.com
    http:
      - { methods: [GET], paths: ['/repos/acme/**'] }
  - host: '*.example.org'
    ports: [443, 22]
    speaks: any
  - cidr: 203.0.113.0/24
    ports: [5432]
deny:
  - host: bad.example.org
    reason: pastes leave the company
";

fn ask(arguments: &[&str]) -> Said {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("p.yml"), POLICY).expect("policy");
    let mut all = vec!["policy", "explain", "p.yml"];
    all.extend_from_slice(arguments);
    sallyport_in(directory.path(), &all)
}

fn json(arguments: &[&str]) -> Value {
    let mut all = arguments.to_vec();
    all.push("--json");
    answered(&ask(&all))
}

/// The answer; the exit code says the same.
fn answered(said: &Said) -> Value {
    let found = said.json();
    let code = i32::from(found.get("decision").is_none_or(|d| d != "permit"));
    assert_eq!(said.code, Some(code), "{said:?}");
    found
}

fn preset(preset: &str, destination: &str, more: &[&str]) -> Value {
    let mut all = vec!["policy", "explain", preset, destination, "--json"];
    all.extend_from_slice(more);
    answered(&sallyport(&all))
}

#[test]
fn the_line_that_permits_is_named() {
    let found = json(&["x.example.org:22"]);
    assert_eq!(
        (&found["decision"], &found["rule"]["line"]),
        (&"permit".into(), &7.into()),
        "{found:#}"
    );
    assert_eq!(found["rule"]["file"], "p.yml");
    assert_eq!(found["policy"], "research");
    assert_eq!(found["inspect"], false);
}

#[test]
fn denials_have_their_reason() {
    for (destination, reason) in [
        ("other.example.com:443", "name_not_allowed"),
        ("example.org:443", "name_not_allowed"),
        ("x.example.org:80", "port_not_allowed"),
        ("bad.example.org:443", "name_denied"),
        ("93.184.216.34:443", "address_not_allowed"),
        ("169.254.169.254:80", "address_metadata"),
        ("127.0.0.1:80", "address_loopback"),
        ("[::1]:80", "address_loopback"),
        ("10.0.0.5:22", "address_private"),
        ("224.0.0.1:80", "address_multicast"),
    ] {
        let found = json(&[destination]);
        assert_eq!(found["decision"], "deny", "{destination}: {found:#}");
        assert_eq!(found["reason"], reason, "{destination}: {found:#}");
    }
}

#[test]
fn what_a_name_resolves_to_changes_the_answer() {
    assert_eq!(json(&["x.example.org:443"])["decision"], "permit");
    assert_eq!(
        json(&["x.example.org:443", "--resolves-to", "93.184.216.34"])["decision"],
        "permit"
    );
    for address in ["10.0.0.5", "169.254.169.254", "::1", "fd00::1"] {
        let found = json(&[
            "x.example.org:443",
            "--resolves-to",
            "93.184.216.34",
            "--resolves-to",
            address,
        ]);
        assert_eq!(
            found["reason"], "name_resolves_to_forbidden",
            "{address}: {found:#}"
        );
    }
}

#[test]
fn requests_are_judged_by_method_and_path() {
    let of = |url: &str, method: &str| json(&[url, "--method", method]);
    let permitted = of("https://api.example.com/repos/acme/x", "GET");
    assert_eq!(
        (&permitted["decision"], &permitted["inspect"]),
        (&"permit".into(), &true.into()),
        "{permitted:#}"
    );
    for (url, method) in [
        ("https://api.example.com/repos/acme/x", "POST"),
        ("https://api.example.com/repos/other", "GET"),
        ("https://api.example.com/repos/acme/../other", "GET"),
        ("https://api.example.com/repos/acme/%2e%2e/other", "GET"),
    ] {
        assert_eq!(of(url, method)["decision"], "deny", "{method} {url}");
    }
}

#[test]
fn a_server_name_must_agree() {
    assert_eq!(
        json(&["x.example.org:443", "--sni", "x.example.org"])["decision"],
        "permit"
    );
    assert_eq!(
        json(&["x.example.org:443", "--sni", "evil.example.com"])["decision"],
        "deny"
    );
}

#[test]
fn presets_mean_what_their_names_say() {
    for (name, destination, decision) in [
        ("none", "example.com:443", "deny"),
        ("internet", "example.com:443", "permit"),
        ("internet", "93.184.216.34:2222", "permit"),
        ("internet", "example.com:25", "deny"),
        ("internet", "10.0.0.5:443", "deny"),
        ("internet-private", "10.0.0.5:443", "permit"),
        ("internet-private", "169.254.169.254:80", "deny"),
    ] {
        assert_eq!(
            preset(name, destination, &[])["decision"],
            decision,
            "{name} {destination}"
        );
    }
}

#[test]
fn invariant_4_metadata_and_loopback_are_denied_by_every_preset_under_every_spelling() {
    let presets = sallyport(&["policy", "presets", "--json"]).expect(0).json();
    for name in presets
        .as_array()
        .expect("presets")
        .iter()
        .filter_map(|p| p["name"].as_str())
    {
        for destination in [
            "169.254.169.254:80",
            "[::ffff:169.254.169.254]:80",
            "[64:ff9b::a9fe:a9fe]:80",
            "[fd00:ec2::254]:80",
            "127.0.0.1:80",
        ] {
            assert_eq!(
                preset(name, destination, &[])["decision"],
                "deny",
                "{name} {destination}"
            );
        }
        let found = preset(
            name,
            "rebound.example.com:80",
            &["--resolves-to", "169.254.169.254"],
        );
        assert_eq!(found["decision"], "deny", "{name}: {found:#}");
    }
}

#[test]
fn people_get_sentences() {
    let said = ask(&["other.example.com:443"]).expect(1);
    assert!(
        said.out
            .starts_with("deny (name_not_allowed): other.example.com:443"),
        "{}",
        said.out
    );
}

#[test]
fn what_is_no_destination_is_wrong_usage() {
    for destination in [
        "example.com:0",
        "0x7f000001:80",
        "017700000001:80",
        "127.1:80",
        "ftp://example.com/",
        "a b:80",
    ] {
        assert_eq!(ask(&[destination]).code, Some(2), "{destination}");
    }
    let udp = ask(&["udp://time.example.com:123"]).expect(2);
    assert!(udp.err.contains("--udp"), "{udp:?}");
    let method = ask(&["https://api.example.com/", "--method", "get"]).expect(2);
    assert!(method.err.contains("capital letters: GET"), "{method:?}");
}

#[test]
fn what_names_no_policy_is_told_with_what_was_probably_meant() {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("research.yml"), POLICY).expect("policy");
    for (policy, says) in [
        ("intrenet", "did you mean `internet`?"),
        ("reserch", "did you mean research.yml?"),
        ("reserch.yml", "did you mean research.yml?"),
        ("./nosuch.yml", "there is no file ./nosuch.yml"),
        ("no-such-preset", "presets are none, "),
    ] {
        let all = ["policy", "explain", policy, "example.com:443"];
        let said = sallyport_in(directory.path(), &all).expect(3);
        assert!(said.err.contains(says), "{policy}: {said:?}");
        let is_path = policy.contains(".yml");
        assert!(!is_path || !said.err.contains("preset"), "{said:?}");
    }
}

#[test]
fn a_destination_without_a_port_is_https_and_any_letters_may_be_written() {
    let permitted = json(&["x.example.org"]);
    assert_eq!(permitted["decision"], "permit");
    assert!(
        permitted["summary"]
            .as_str()
            .is_some_and(|s| s.contains("x.example.org:443"))
    );
    let found = json(&["b\u{fc}cher.example.org:443"]);
    assert_eq!(found["decision"], "permit", "{found:#}");
    assert!(
        found["summary"]
            .as_str()
            .is_some_and(|s| s.contains("xn--bcher-kva.example.org"))
    );
}
