//! `policy check`: every mistake with its place and a hint, for people and for programs. (Invariant 11.)

use std::path::Path;
use std::time::{Duration, Instant};

use lab::cli::{Said, sallyport_in};
use lab::pace::Pace;

fn check(text: &str, json: bool) -> Said {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("p.yml"), text).expect("policy");
    run(directory.path(), json)
}

fn run(directory: &Path, json: bool) -> Said {
    let arguments: &[&str] = if json {
        &["policy", "check", "p.yml", "--json"]
    } else {
        &["policy", "check", "p.yml"]
    };
    sallyport_in(directory, arguments)
}

const GOOD: &str = "policy: p\nnetwork: domains\nallow:\n  - host: example.com\n";

#[test]
fn a_good_policy_is_said_to_be_good() {
    assert!(check(GOOD, false).expect(0).out.contains("p.yml: ok"));
    let json = check(GOOD, true).expect(0).json();
    assert_eq!(json["ok"], true);
    assert_eq!(json["files"][0]["policy"], "p");
    assert_eq!(json["files"][0]["hash"].as_str().map(str::len), Some(64));
}

#[test]
fn a_name_that_is_taken_for_another_is_shown_as_what_is_enforced() {
    let directory = tempfile::tempdir().expect("directory");
    let write = |name: &str, host: &str| {
        let text = format!("policy: p\nnetwork: domains\nallow:\n  - host: \"{host}\"\n");
        std::fs::write(directory.path().join(name), text).expect("policy");
    };
    write("meant.yml", "github.com");
    write("taken.yml", "g\u{456}thub.com");
    write("plain.yml", "b\u{fc}cher.de");
    let on = |arguments: &[&str]| sallyport_in(directory.path(), arguments);

    let warned = on(&["policy", "check", "taken.yml", "--deny-warnings"]).expect(1);
    assert!(
        warned.out.contains("warning[lookalike]") && warned.out.contains("xn--gthub-n2e.com"),
        "{}",
        warned.out
    );
    let json = on(&["policy", "check", "taken.yml", "--json"])
        .expect(0)
        .json();
    assert_eq!(
        json["files"][0]["enforced_as"][0]["host"],
        "xn--gthub-n2e.com"
    );
    // a question may be written in the policy's letters; what is meant by them is said
    for asked in ["g\u{456}thub.com:443", "xn--gthub-n2e.com:443"] {
        let explained = on(&["policy", "explain", "taken.yml", asked]).expect(0);
        assert!(
            explained
                .out
                .contains("xn--gthub-n2e.com:443 (tcp) is permitted"),
            "{}",
            explained.out
        );
    }
    on(&["policy", "explain", "meant.yml", "g\u{456}thub.com:443"]).expect(1);
    let differ = on(&["policy", "diff", "meant.yml", "taken.yml"]);
    assert!(differ.out.contains("xn--gthub-n2e.com"), "{}", differ.out);

    // no warning about letters that nobody takes for others, but the same words
    let said = on(&["policy", "check", "plain.yml", "--deny-warnings"]).expect(0);
    assert!(
        said.out
            .contains("`b\u{fc}cher.de` is enforced as `xn--bcher-kva.de`"),
        "{}",
        said.out
    );
    let said = on(&["policy", "check", "meant.yml", "--deny-warnings"]).expect(0);
    assert!(!said.out.contains("enforced as"), "{}", said.out);
}

#[test]
fn who_stops_reading_sees_no_failure() {
    for arguments in [
        &["policy", "reference"][..],
        &["policy", "reasons"],
        &["policy", "schema"],
        &["--help"],
        &["completions", "bash"],
        &["version", "--licenses"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let status = lab::cli::command(arguments)
            .stdin(std::process::Stdio::null())
            .stdout(writer)
            .status()
            .expect("start");
        assert_eq!(status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn invariant_11_all_mistakes_are_told_at_once_with_their_places() {
    let text = "policy: p\nnetwrok: domains\nnetwork: domain\nallow:\n  - host: 'https://example.com/'\n  - { host: a.example.com, ports: [70000] }\n";
    let said = check(text, false).expect(1);
    for place in ["p.yml:2:1: ", "p.yml:3:", "p.yml:5:", "p.yml:6:"] {
        assert!(
            said.out.contains(place),
            "{place} is missing in:\n{}",
            said.out
        );
    }
    assert!(said.out.contains("did you mean `network`?"), "{}", said.out);
    let json = check(text, true).expect(1).json();
    let mistakes = json["files"][0]["mistakes"].as_array().expect("mistakes");
    assert!(mistakes.len() >= 4, "{json:#}");
    assert!(
        mistakes
            .iter()
            .all(|m| m["line"].is_u64() && m["column"].is_u64() && m["message"].is_string()),
        "{json:#}"
    );
}

#[test]
fn yaml_that_hides_meaning_is_refused() {
    let rules = "allow:\n  - host: example.com\n";
    for (what, text) in [
        (
            "a duplicate key",
            format!("policy: p\nnetwork: none\nnetwork: internet\n{rules}"),
        ),
        (
            "an alias",
            format!("policy: p\nnetwork: &a domains\nnames: *a\n{rules}"),
        ),
        (
            "a merge key",
            "policy: p\nnetwork: domains\n<<: { private: true }\n".to_owned(),
        ),
        ("a second document", format!("{GOOD}---\n{GOOD}")),
        ("a tag", "policy: !!str p\nnetwork: none\n".to_owned()),
        (
            "an invisible character",
            "policy: p\u{200b}\nnetwork: none\n".to_owned(),
        ),
        (
            "a text direction mark",
            "policy: p # \u{202e}\nnetwork: none\n".to_owned(),
        ),
        (
            "sexagesimal ports",
            "policy: p\nnetwork: domains\nallow:\n  - { host: example.com, ports: [22:22] }\n"
                .to_owned(),
        ),
        (
            "an octal port",
            "policy: p\nnetwork: domains\nallow:\n  - { host: example.com, ports: [010] }\n"
                .to_owned(),
        ),
        (
            "a word for a list",
            "policy: p\nnetwork: domains\nallow: no\n".to_owned(),
        ),
        (
            "an empty host",
            "policy: p\nnetwork: domains\nallow:\n  - host: ''\n".to_owned(),
        ),
        (
            "an empty entry",
            "policy: p\nnetwork: domains\nallow:\n  - {}\n".to_owned(),
        ),
        ("nothing", String::new()),
    ] {
        let said = check(&text, false);
        assert_eq!(said.code, Some(1), "{what}: {said:?}");
        assert!(
            said.out.starts_with("p.yml:"),
            "{what} has no place: {said:?}"
        );
    }
}

#[test]
fn hosts_that_would_widen_silently_are_refused() {
    for host in [
        "*",
        "**",
        "*example.com",
        "a.*.com",
        "www*.com",
        ".example.com",
        "ex?mple.com",
        "example.com:443",
        "example.com/x",
        "user@example.com",
        "exam ple.com",
        "0x7f.1",
        "127.1",
        "a..example.com",
    ] {
        let text = format!("policy: p\nnetwork: domains\nallow:\n  - host: \"{host}\"\n");
        assert_eq!(check(&text, false).code, Some(1), "{host} was taken");
    }
}

#[test]
fn a_bomb_is_refused_quickly() {
    let aliases =
        (0..100_000).fold("policy: &a p\nnames: [".to_owned(), |text, _| text + "*a,") + "]\n";
    let deep = "[".repeat(100_000);
    let large = format!(
        "policy: p\nnetwork: none\ndescription: {}\n",
        "x".repeat(40 << 20)
    );
    for (what, text) in [("aliases", aliases), ("depth", deep), ("size", large)] {
        let (pace, started) = (Pace::watch(), Instant::now());
        assert_eq!(check(&text, false).code, Some(1), "{what}");
        let took = started.elapsed();
        assert!(
            took < pace.stretches(Duration::from_secs(5)),
            "{what} took {took:?}"
        );
    }
}

#[test]
fn a_hostile_file_writes_no_control_characters() {
    let said = check("policy: p\nnetwork: \"\u{1b}]52;c;x\u{7}\"\n", false);
    assert_eq!(said.code, Some(1));
    assert!(
        !said.out.contains('\u{1b}') && !said.err.contains('\u{1b}'),
        "{said:?}"
    );
}

#[test]
fn one_bad_file_does_not_hide_the_others() {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("good.yml"), GOOD).expect("policy");
    std::fs::write(directory.path().join("bad.yml"), "policy: p\n").expect("policy");
    let said = sallyport_in(
        directory.path(),
        &["policy", "check", "bad.yml", "missing.yml", "good.yml"],
    )
    .expect(1);
    assert!(
        said.out.contains("bad.yml:1:1")
            && said.out.contains("missing.yml")
            && said.out.contains("good.yml: ok"),
        "{said:?}"
    );
}

#[test]
fn a_file_that_cannot_be_read_could_not_be_checked() {
    let directory = tempfile::tempdir().expect("directory");
    assert!(run(directory.path(), false).expect(3).err.contains("p.yml"));
}

#[test]
fn the_schema_accepts_what_check_accepts() {
    let schema = lab::cli::sallyport(&["policy", "schema"]).expect(0).json();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
}

#[test]
fn what_is_understood_but_not_enforced_is_said() {
    let text = "policy: p\nnetwork: domains\nunknown: ask\nallow:\n  - host: example.com\n";
    assert!(
        check(text, false)
            .expect(0)
            .out
            .contains("not enforced yet")
    );
    let json = check(text, true).expect(0).json();
    assert_eq!(
        json["files"][0]["not_enforced_yet"][0]["line"], 3,
        "{json:#}"
    );
}

#[test]
fn what_is_no_regular_file_is_refused_and_not_waited_for() {
    let directory = tempfile::tempdir().expect("directory");
    let made = std::process::Command::new("mkfifo")
        .arg(directory.path().join("p.yml"))
        .status();
    assert!(made.expect("mkfifo").success());
    let said = run(directory.path(), false);
    assert!(said.code.is_some_and(|code| code != 0), "{said:?}");
    let text = format!("{}{}", said.out, said.err);
    assert!(text.contains("p.yml is no regular file"), "{text}");
}
