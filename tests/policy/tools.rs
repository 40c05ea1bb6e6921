//! The tools of policy authors: warnings, `tests:`, diff. Exit codes, places and the form for programs.

use std::path::Path;

use lab::cli::{Said, sallyport, sallyport_in};

/// Files in a fresh directory.
pub(crate) fn files(all: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("directory");
    for (name, text) in all {
        std::fs::write(directory.path().join(name), text).expect("file");
    }
    directory
}

fn policy(directory: &Path, arguments: &[&str]) -> Said {
    let all: Vec<&str> = ["policy"].iter().chain(arguments).copied().collect();
    sallyport_in(directory, &all)
}

const WIDE: &str = "policy: p\nnetwork: domains\nallow:\n  - host: '*.com'\n  - host: a.example.net\n  - host: a.example.net\n";

#[test]
fn a_wildcard_over_a_public_suffix_and_a_duplicate_are_warned_about_with_their_places() {
    let directory = files(&[("p.yml", WIDE)]);
    let said = policy(directory.path(), &["check", "p.yml"]).expect(0);
    assert!(
        said.out.contains("p.yml:4:5: warning[public_suffix]: "),
        "{}",
        said.out
    );
    assert!(
        said.out.contains("p.yml:6:5: warning[duplicate]: "),
        "{}",
        said.out
    );
    assert!(said.out.contains("p.yml: ok"), "{}", said.out);
    policy(directory.path(), &["check", "--deny-warnings", "p.yml"]).expect(1);
    let json = policy(
        directory.path(),
        &["check", "--deny-warnings", "p.yml", "--json"],
    )
    .expect(1)
    .json();
    assert_eq!(json["ok"], false);
    let warnings = json["files"][0]["warnings"].as_array().expect("warnings");
    let codes: Vec<_> = warnings
        .iter()
        .map(|w| w["code"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(codes, ["public_suffix", "duplicate"]);
    assert!(
        warnings
            .iter()
            .all(|w| w["line"].is_u64() && w["column"].is_u64() && w["hint"].is_string())
    );
}

#[test]
fn a_policy_without_warnings_passes_where_warnings_are_denied() {
    let directory = files(&[(
        "p.yml",
        "policy: p\nnetwork: domains\nallow:\n  - host: a.example.net\n",
    )]);
    policy(directory.path(), &["check", "--deny-warnings", "p.yml"]).expect(0);
}

#[test]
fn a_lints_file_adds_hosts_and_accepts_what_was_judged() {
    let directory = files(&[
        (
            "p.yml",
            "policy: p\nnetwork: domains\nallow:\n  - host: api.github.com\n  - host: paste.example.net\n",
        ),
        (
            "lints.yml",
            "date: 2026-11-29\nuploads:\n  - { host: paste.example.net, note: our pastes }\naccept:\n  - { code: uploads, host: api.github.com, reason: judged }\n",
        ),
        ("bad.yml", "date: 2026-11-29\nuplods: []\n"),
    ]);
    let said = policy(
        directory.path(),
        &["check", "p.yml", "--lints", "lints.yml"],
    )
    .expect(0);
    assert!(
        said.out.contains("p.yml:5:5: warning[uploads]"),
        "{}",
        said.out
    );
    assert!(!said.out.contains("p.yml:4:"), "{}", said.out);
    let wrong = policy(directory.path(), &["check", "p.yml", "--lints", "bad.yml"]).expect(1);
    assert!(wrong.err.contains("bad.yml:2:1"), "{}", wrong.err);
    let listed = policy(directory.path(), &["lints", "--lints", "lints.yml"]).expect(0);
    assert!(
        listed.out.contains("looked through on 20") && listed.out.contains("added by lints.yml"),
        "{}",
        listed.out
    );
    let json = sallyport(&["policy", "lints", "--json"]).expect(0).json();
    assert!(
        json["date"].is_string()
            && json["codes"]
                .as_array()
                .is_some_and(|codes| codes.len() >= 12),
        "{json}"
    );
}

#[test]
fn entries_outside_of_a_floor_are_warned_about_only_under_it() {
    let directory = files(&[
        (
            "floor.yml",
            "policy: floor\nnetwork: domains\nallow:\n  - host: b.example.net\n",
        ),
        (
            "p.yml",
            "policy: p\nnetwork: domains\nallow:\n  - host: a.example.net\n",
        ),
    ]);
    policy(directory.path(), &["check", "p.yml", "--deny-warnings"]).expect(0);
    let said = policy(
        directory.path(),
        &["check", "p.yml", "--floor", "floor.yml", "--deny-warnings"],
    )
    .expect(1);
    assert!(
        said.out.contains("warning[outside_floor]") && said.out.contains("floor.yml:2"),
        "{}",
        said.out
    );
}

#[test]
fn a_failed_test_is_shown_with_its_place_and_fails() {
    let tests = "tests:\n  - { to: 'a.example.net:443', expect: permit }\n  - { to: 'b.example.net:443', expect: permit }\n  - { to: 'a.example.net:443', sni: b.example.net, expect: deny, reason: tls_name_mismatch }\n";
    let text = format!("policy: p\nnetwork: domains\nallow:\n  - host: a.example.net\n{tests}");
    let directory = files(&[
        ("p.yml", &text),
        (
            "good.yml",
            &text.replace(
                "'b.example.net:443', expect: permit",
                "'b.example.net:443', expect: deny",
            ),
        ),
    ]);
    let said = policy(directory.path(), &["test", "p.yml"]).expect(1);
    assert!(
        said.out.contains("p.yml:7:")
            && said.out.contains("FAIL")
            && said.out.contains("2 passed, 1 failed"),
        "{}",
        said.out
    );
    let json = policy(directory.path(), &["test", "p.yml", "good.yml", "--json"])
        .expect(1)
        .json();
    assert_eq!(
        (json["passed"].as_u64(), json["failed"].as_u64()),
        (Some(5), Some(1)),
        "{json}"
    );
    assert_eq!(
        json["files"][0]["tests"][1]["found"]["reason"],
        "name_not_allowed"
    );
    assert!(
        policy(directory.path(), &["test", "good.yml"])
            .expect(0)
            .out
            .contains("3 passed, 0 failed")
    );
    let wrong = text.replace("expect: permit", "expect: allow");
    std::fs::write(directory.path().join("p.yml"), wrong).expect("policy");
    assert!(
        policy(directory.path(), &["check", "p.yml"])
            .expect(1)
            .out
            .contains("p.yml:6:")
    );
}

#[test]
fn a_diff_tells_what_is_decided_differently_and_not_what_is_written_differently() {
    let one =
        "policy: p\nnetwork: domains\nallow:\n  - host: a.example.net\n  - host: b.example.net\n";
    let same = "# the same\npolicy: q\nnetwork: domains\nallow:\n  - { host: b.example.net, ports: [443, 80] }\n  - host: a.example.net\n";
    let other = "policy: p\nnetwork: domains\nallow:\n  - host: a.example.net\n  - { host: c.example.net, ports: [22] }\nlimits: { flows: 9 }\n";
    let directory = files(&[("one.yml", one), ("same.yml", same), ("other.yml", other)]);
    assert!(
        policy(directory.path(), &["diff", "one.yml", "same.yml"])
            .expect(0)
            .out
            .contains("the same")
    );
    let said = policy(directory.path(), &["diff", "one.yml", "other.yml"]).expect(1);
    for line in [
        "- newly denied: b.example.net, tcp ports 80, 443",
        "+ newly permitted: c.example.net, tcp ports 22 (other.yml:5)",
        "limits.flows: 9",
    ] {
        assert!(said.out.contains(line), "{line}:\n{}", said.out);
    }
    let json = policy(
        directory.path(),
        &["diff", "other.yml", "one.yml", "--json"],
    )
    .expect(1)
    .json();
    assert_eq!(json["same"], false);
    assert!(
        json["changes"].as_array().is_some_and(|all| all
            .iter()
            .any(|c| c["effect"] == "wider" && c["what"] == "b.example.net")),
        "{json:#}"
    );
    policy(directory.path(), &["diff", "none", "none"]).expect(0);
    policy(directory.path(), &["diff", "none", "missing.yml"]).expect(3);
}

#[test]
fn the_reference_the_reasons_and_the_sets_are_printed_with_what_to_do_and_their_date() {
    let reference = sallyport(&["policy", "reference"]).expect(0).out;
    assert!(
        reference.contains("### `resolves_to`") && reference.contains("```yaml\nallow:"),
        "{reference}"
    );
    let page = sallyport(&["policy", "reasons", "name_denied"])
        .expect(0)
        .out;
    assert!(
        page.contains("In the sandbox: ") && page.contains("In the policy: "),
        "{page}"
    );
    let all = sallyport(&["policy", "reasons", "--json"]).expect(0).json();
    assert!(all.as_array().is_some_and(|all| all.len() >= 41), "{all}");
    assert!(
        sallyport(&["policy", "reasons", "name_denid"])
            .expect(2)
            .err
            .contains("name_denied")
    );
    let sets = sallyport(&["policy", "sets", "github"]).expect(0).out;
    assert!(
        sets.contains("github.com") && sets.contains("looked through on 20"),
        "{sets}"
    );
    sallyport(&["policy", "sets", "nothing"]).expect(2);
}

#[test]
fn an_explanation_names_policy_layer_file_and_line() {
    let directory = files(&[
        (
            "floor.yml",
            "policy: house\nnetwork: internet\ndeny:\n  - host: b.example.net\n",
        ),
        (
            "p.yml",
            "policy: p\nnetwork: domains\nallow:\n  - host: a.example.net\n  - host: b.example.net\n",
        ),
    ]);
    for (destination, line) in [
        ("a.example.net:443", "decided by job policy `p`, p.yml:4"),
        ("a.example.net:22", "decided by job policy `p`, p.yml:4"),
        ("c.example.net:443", "decided by job policy `p`, p.yml:2"),
        (
            "b.example.net:443",
            "decided by instance policy `house`, floor.yml:4",
        ),
    ] {
        let code = i32::from(destination != "a.example.net:443");
        let said = policy(
            directory.path(),
            &["explain", "p.yml", destination, "--floor", "floor.yml"],
        )
        .expect(code);
        assert!(said.out.contains(line), "{destination}: {}", said.out);
    }
}
