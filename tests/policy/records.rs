//! `policy replay` and `learn` on records: what changes, what is proposed, and what is no record.

use lab::cli::sallyport_in;

use crate::tools::files;

/// One journal line; its hashes are not looked at here.
fn line(seq: u32, rest: &str) -> String {
    let zeros = "0".repeat(64);
    format!(
        "{{\"seq\":{seq},\"t\":1796000000000,\"prev\":\"{zeros}\",\"hash\":\"{zeros}\",{rest}}}\n"
    )
}

fn subject(name: &str, port: u16, door: &str) -> String {
    format!(
        "\"subject\":{{\"network\":\"n1\",\"door\":\"{door}\",\"direction\":\"egress\",\"protocol\":\"tcp\",\"source\":\"198.18.0.9:4000\",\"name\":\"{name}\",\"address\":\"198.18.0.77\",\"port\":{port}}}"
    )
}

fn open(seq: u32, name: &str, port: u16) -> String {
    let (hash, subject) = ("0".repeat(64), subject(name, port, "tcp"));
    line(
        seq,
        &format!(
            "\"kind\":\"open\",\"flow\":{seq},{subject},\"upstream\":\"93.184.216.34:{port}\",\"class\":\"public\",\"by\":[],\"policy\":\"{hash}\",\"generation\":1"
        ),
    )
}

fn denial(seq: u32, name: &str, port: u16, reason: &str) -> String {
    let (hash, subject) = (
        "0".repeat(64),
        subject(name, port, if port == 0 { "dns" } else { "tcp" }),
    );
    line(
        seq,
        &format!(
            "\"kind\":\"denial\",{subject},\"reason\":\"{reason}\",\"policy\":\"{hash}\",\"generation\":1"
        ),
    )
}

fn record() -> String {
    [
        open(1, "a.example.net", 443),
        open(2, "a.example.net", 443),
        open(3, "b.example.net", 22),
        denial(4, "c.example.net", 0, "name_not_allowed"),
        denial(5, "a.example.net", 443, "limit_flows"),
    ]
    .concat()
}

const POLICY: &str =
    "policy: p\nnetwork: domains\nallow:\n  - host: a.example.net\n  - host: c.example.net\n";

#[test]
fn a_replay_tells_what_is_newly_permitted_and_newly_denied() {
    let same = format!(
        "{POLICY}  - {{ host: b.example.net, ports: [22] }}\ndeny:\n  - host: c.example.net\n"
    );
    let directory = files(&[
        ("r.jsonl", &record()),
        ("p.yml", POLICY),
        ("same.yml", &same),
    ]);
    let replay = |arguments: &[&str]| {
        let all: Vec<&str> = ["policy", "replay", "--record", "r.jsonl", "--policy"]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        sallyport_in(directory.path(), &all)
    };
    let said = replay(&["p.yml"]).expect(1);
    for part in [
        "newly permitted: 1 destination",
        "c.example.net (look-up)",
        "newly denied: 1 destination",
        "b.example.net:22 tcp: deny name_not_allowed instead of permit, 1 time; r.jsonl:3 of n1",
        "4 contacts, 2 decided as before; 1 denials",
    ] {
        assert!(said.out.contains(part), "{part}:\n{}", said.out);
    }
    let json = replay(&["p.yml", "--json"]).expect(1).json();
    assert_eq!(json["report"]["newly_denied"][0]["to"], "b.example.net");
    assert_eq!(json["not_by_policy"]["limit_flows"], 1);
    replay(&["p.yml", "--fail-on", "never"]).expect(0);
    replay(&["same.yml"]).expect(0);
    let other = replay(&["same.yml", "--network", "other"]).expect(3);
    assert!(
        other.out.is_empty() && other.err.contains("nothing of a network \"other\""),
        "{other:?}"
    );
}

#[test]
fn what_is_learnt_passes_the_check_and_replays_without_a_change() {
    let directory = files(&[("r.jsonl", &record())]);
    let learnt = sallyport_in(
        directory.path(),
        &["policy", "learn", "--record", "r.jsonl"],
    )
    .expect(0);
    assert!(
        learnt.out.contains("# 2 flows, first 2026-11-30T00:53:20Z")
            && learnt.out.contains("host: \"a.example.net\", ports: [443]"),
        "{}",
        learnt.out
    );
    assert!(!learnt.out.contains("c.example.net"), "{}", learnt.out);
    std::fs::write(directory.path().join("learned.yml"), &learnt.out).expect("policy");
    sallyport_in(
        directory.path(),
        &["policy", "check", "--deny-warnings", "learned.yml"],
    )
    .expect(0);
    sallyport_in(
        directory.path(),
        &[
            "policy",
            "replay",
            "--record",
            "r.jsonl",
            "--policy",
            "learned.yml",
        ],
    )
    .expect(0);
}

fn failure(seq: u32, name: &str, upstream: &str) -> String {
    denial(seq, name, 443, "upstream_refused")
        .replace("\"kind\":\"denial\"", "\"kind\":\"failure\"")
        .replace("\"policy\"", &format!("{upstream}\"policy\""))
}

#[test]
fn failures_are_replayed_with_their_address_and_without_one_as_before_and_learnt_when_asked_for() {
    let known = |address: &str, class: &str| {
        format!("\"class\":\"{class}\",\"upstream\":\"{address}:443\",")
    };
    let text = [
        failure(1, "lan.example.net", &known("10.0.0.5", "private")),
        failure(2, "down.example.net", &known("93.184.216.34", "public")),
        // as earlier versions wrote it
        failure(3, "old.example.net", ""),
        open(4, "a.example.net", 443),
        failure(5, "a.example.net", &known("93.184.216.34", "public")),
        failure(6, "mine.example.net", "").replace("\"n1\"", "\"selftest-0123456789abcdef\""),
    ]
    .concat();
    let policy = "policy: p\nnetwork: internet\n";
    let directory = files(&[("r.jsonl", &text), ("p.yml", policy)]);
    let run = |arguments: &[&str]| {
        let all = [&["policy"], arguments, &["--record", "r.jsonl"]].concat();
        sallyport_in(directory.path(), &all)
    };
    let said = run(&["replay", "--policy", "p.yml"]).expect(1);
    assert!(
        said.out.contains("newly denied: 1 destination, 1 contact")
            && said
                .out
                .contains("lan.example.net:443 tcp: deny name_resolves_to_forbidden")
            && said.out.contains("5 contacts, 4 decided as before"),
        "{}",
        said.out
    );
    let learnt = run(&["learn"]).expect(0).out;
    assert!(learnt.contains("host: \"a.example.net\""), "{learnt}");
    assert_eq!(learnt.matches("it never answered").count(), 3, "{learnt}");
    assert!(!learnt.contains("mine.example.net"), "{learnt}");
    let asked = run(&["learn", "--failed"]).expect(0).out;
    assert!(asked.contains("host: \"down.example.net\""), "{asked}");
    for left in [
        "lan.example.net:443: it is private",
        "old.example.net:443: the record does not say whose address it has",
    ] {
        assert!(asked.contains(left), "{left}: {asked}");
    }
}

#[test]
fn a_journal_folder_is_read_while_its_last_line_is_being_written() {
    let directory = files(&[]);
    let journal = directory.path().join("journal");
    std::fs::create_dir(&journal).expect("folder");
    std::fs::write(journal.join("00000001.jsonl"), record()).expect("segment");
    let half = open(6, "d.example.net", 443);
    std::fs::write(
        journal.join("00000002.jsonl"),
        half.get(..90).expect("half"),
    )
    .expect("segment");
    let said = sallyport_in(
        directory.path(),
        &[
            "policy", "replay", "--record", "journal", "--policy", "none",
        ],
    )
    .expect(1);
    assert!(said.out.contains("4 contacts"), "{}", said.out);
}

#[test]
fn what_is_no_record_is_told_with_its_place_and_changes_nothing() {
    let cut = record();
    let cut = cut.get(..cut.len() - 20).expect("cut");
    let long = format!("{}{}", record(), "x".repeat(2 << 20));
    let bad_name = record().replace("b.example.net", "b..example.net");
    for (what, text, place) in [
        ("a cut line", cut.to_owned(), "r.jsonl:5: "),
        ("text", format!("{}hello\n", record()), "r.jsonl:6: "),
        (
            "foreign JSON",
            format!("{{\"kind\":\"open\"}}\n{}", record()),
            "r.jsonl:1: ",
        ),
        (
            "an unknown kind",
            record().replace("\"kind\":\"denial\"", "\"kind\":\"gossip\""),
            "r.jsonl:4: ",
        ),
        ("an endless line", long, "r.jsonl:6: "),
        ("a name that is none", bad_name, "r.jsonl:3: "),
        ("bytes", "\u{0}\u{1}\n".to_owned(), "r.jsonl:1: "),
    ] {
        let directory = files(&[("r.jsonl", &text), ("p.yml", POLICY)]);
        for verb in [&["replay", "--policy", "p.yml"][..], &["learn"]] {
            let all: Vec<&str> = ["policy"]
                .iter()
                .chain(verb)
                .chain(&["--record", "r.jsonl"])
                .copied()
                .collect();
            let said = sallyport_in(directory.path(), &all).expect(3);
            assert!(
                said.err.contains(place) && said.out.is_empty(),
                "{what}: {said:?}"
            );
        }
    }
    let directory = files(&[]);
    sallyport_in(directory.path(), &["policy", "learn", "--record", "."]).expect(3);
    sallyport_in(
        directory.path(),
        &["policy", "learn", "--record", "missing"],
    )
    .expect(3);
}

#[test]
fn a_hostile_record_writes_neither_yaml_nor_a_terminal() {
    let text = record().replace("\"network\":\"n1\"", "\"network\":\"n1\\u001b[31m\"");
    let directory = files(&[("r.jsonl", &text)]);
    let said = sallyport_in(
        directory.path(),
        &[
            "policy", "replay", "--record", "r.jsonl", "--policy", "none",
        ],
    );
    assert!(
        said.code == Some(3) && !said.err.contains('\u{1b}') && !said.out.contains('\u{1b}'),
        "{said:?}"
    );
}
