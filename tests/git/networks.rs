//! What a commit does to networks, new and live, and what the record says. (Invariants 7, 10, 11, 12.)

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lab::client::connect;
use lab::namespace::Namespace;
use lab::origin::port;
use lab::pace::Pace;
use lab::topology::{PUBLIC4, ip};
use lab::{Lab, policies};
use serde_json::Value;

use super::repository::Repository;

const OPEN: &str = "policy: research\nnetwork: internet\n";
const CLOSED: &str = "policy: research\nnetwork: domains\nallow:\n  - host: ok.sallylab.net\n";
const FILE: &str = "policies/research.yml";

fn echo() -> SocketAddr {
    SocketAddr::new(ip(PUBLIC4), port::ECHO)
}

fn lab(repository: &Repository, extra: &str) -> Lab {
    Lab::builder()
        .gateway_only()
        .config(&repository.source(extra))
        .start()
}

/// What decided, of every record of one kind.
fn deciders(lab: &Lab, kind: &str) -> Vec<Value> {
    let is_one = |record: &&Value| record.get("kind").and_then(Value::as_str) == Some(kind);
    let records = lab.records();
    // what no policy decided (a packet of no shape, a name that is none) has no line
    let of = |record: &Value| record.get("by").cloned();
    records.iter().filter(is_one).filter_map(of).collect()
}

#[test]
fn invariant_7_a_pushed_tightening_reaches_ten_live_networks_and_every_decision_names_its_commit() {
    let repository = Repository::new();
    let loose = repository.push(&[(FILE, OPEN)]);
    let lab = lab(&repository, "");
    let sandboxes: Vec<_> = (0..10).map(|_| lab.sandbox("research")).collect();
    let to = SocketAddr::new(ip(PUBLIC4), port::MUTE);
    let mut streams: Vec<_> = sandboxes
        .iter()
        .map(|s| s.run(|| connect(to).expect_open()))
        .collect();
    for stream in &mut streams {
        std::io::Write::write_all(stream, b"alive").expect("write");
    }
    let mark = lab.origins.ended.mark();
    let tight = repository.push(&[(FILE, CLOSED)]);
    lab.sallyport(&["policy", "sync", "main"]).expect(0);
    let all = lab::wait::promised(Duration::from_secs(2), || {
        (lab.origins.ended.since(mark).len() >= sandboxes.len()).then_some(())
    });
    assert!(all.is_some(), "live flows outlived their permission");
    for sandbox in &sandboxes {
        let (pace, began) = (Pace::watch(), Instant::now());
        let tried = sandbox.run(|| connect(to));
        assert!(tried.is_refused(), "new flows at once");
        assert!(began.elapsed() < pace.stretches(Duration::from_secs(2)));
    }
    // loosening applies live too
    let again = repository.push(&[(FILE, OPEN)]);
    lab.sallyport(&["policy", "sync"]).expect(0);
    assert!(sandboxes[0].run(|| connect(echo())).is_open());
    let by = |list: Vec<Value>| -> Vec<(Value, Value)> {
        list.iter()
            .map(|by| {
                if by.is_array() {
                    by[0].clone()
                } else {
                    by.clone()
                }
            })
            .map(|by| (by["at"]["commit"].clone(), by["vouched"].clone()))
            .collect()
    };
    let opened = by(deciders(&lab, "open"));
    assert!(
        opened.contains(&(loose.into(), "commit".into()))
            && opened.contains(&(again.into(), "commit".into())),
        "{opened:?}"
    );
    let denied = by(deciders(&lab, "denial"));
    assert!(
        !denied.is_empty()
            && denied
                .iter()
                .all(|d| *d == (tight.clone().into(), "commit".into())),
        "{denied:?}"
    );
    let shown = lab
        .sallyport(&["net", "show", sandboxes[0].name(), "--json"])
        .expect(0)
        .json();
    assert_eq!(
        (&shown["stamp"]["of"], &shown["stamp"]["file"]),
        (&"commit".into(), &FILE.into())
    );
}

#[test]
fn invariant_11_a_broken_commit_changes_nothing_for_old_and_new_networks_and_says_where() {
    let repository = Repository::new();
    let good = repository.push(&[(FILE, OPEN)]);
    let lab = lab(&repository, "");
    let sandbox = lab.sandbox("research");
    let bad = repository.push(&[
        (FILE, CLOSED),
        ("policies/other.yml", "policy: other\nnetwrok: none\n"),
    ]);
    let said = lab.sallyport(&["policy", "sync", "main"]).expect(1);
    let place = format!("{}:policies/other.yml:2:1", &bad[..12]);
    assert!(
        said.out.contains(&place) && said.out.contains(&good),
        "{}",
        said.out
    );
    assert!(sandbox.run(|| connect(echo())).is_open());
    assert!(lab.sandbox("research").run(|| connect(echo())).is_open());
    let doctor = lab.sallyport(&["doctor"]);
    assert!(doctor.out.contains("policy source"), "{}", doctor.out);
    lab.recorded("the refusal", |r| {
        r.to_string().contains("\"refused\"") && r.to_string().contains(&bad)
    });
    let fixed = repository.push(&[(FILE, CLOSED)]);
    let said = lab.sallyport(&["policy", "sync", "main"]).expect(0);
    assert!(said.out.contains(&fixed) && sandbox.run(|| connect(echo())).is_refused());
}

#[test]
fn what_was_loaded_last_outlives_the_gateway_and_the_remote() {
    let repository = Repository::new();
    let commit = repository.push(&[(FILE, CLOSED)]);
    let mut lab = lab(&repository, "");
    let sandbox = lab.sandbox("research");
    lab.gateway_mut().kill();
    std::fs::rename(repository.path(), repository.folder().join("gone")).expect("rename");
    lab.gateway_mut().launch();
    lab::wait::eventually("the gateway to open again", || {
        lab.sallyport(&["net", "show", sandbox.name()])
            .code
            .filter(|c| *c == 0)
    });
    let fresh = lab
        .attach(&Namespace::new("fresh"), "fresh", "research")
        .expect(0)
        .json();
    assert_eq!(fresh["stamp"]["commit"], commit.as_str());
    let said = lab.sallyport(&["policy", "sync"]).expect(1);
    assert!(
        said.out.contains(&commit) && said.out.contains("REFUSED"),
        "{}",
        said.out
    );
    let shown = lab
        .sallyport(&["net", "show", sandbox.name(), "--json"])
        .expect(0)
        .json();
    assert_eq!(shown["stamp"]["commit"], commit.as_str());
}

#[test]
fn a_policy_that_its_source_loses_stays_with_the_networks_that_use_it_and_is_no_policy_for_others()
{
    let repository = Repository::new();
    repository.push(&[
        (FILE, CLOSED),
        ("policies/other.yml", "policy: other\nnetwork: none\n"),
    ]);
    let lab = lab(&repository, "");
    let sandbox = lab.sandbox("research");
    repository.push(&[("policies/other.yml", "policy: other\nnetwork: internet\n")]);
    lab.sallyport(&["policy", "sync", "main"]).expect(0);
    assert!(
        sandbox.run(|| connect(echo())).is_refused(),
        "a policy that is gone is not an open network"
    );
    let said = lab.attach(&Namespace::new("late"), "late", "research");
    assert_ne!(said.code, Some(0));
    assert!(
        said.err.contains("no policy source has a policy"),
        "{}",
        said.err
    );
    lab.attach(&Namespace::new("twin"), "twin", "other")
        .expect(0);
}

/// The stamp is the gateway's: a document that a client sends has none, whatever it calls itself.
#[test]
fn invariant_10_only_what_the_gateway_read_from_the_source_is_stamped() {
    let repository = Repository::new();
    let commit = repository.push(&[(FILE, CLOSED)]);
    let lab = lab(&repository, "");
    let sent = lab.sandbox(CLOSED);
    let named = lab
        .file(&format!("{}:research.yml", &commit[..12]), CLOSED)
        .display()
        .to_string();
    lab.sallyport(&["net", "policy", sent.name(), &named])
        .expect(0);
    assert!(sent.run(|| connect(echo())).is_refused());
    let git = lab.sandbox("research");
    assert!(git.run(|| connect(echo())).is_refused());
    let denied = deciders(&lab, "denial");
    let of = |vouched: &str| {
        denied
            .iter()
            .filter(|by| by["vouched"] == vouched)
            .cloned()
            .collect::<Vec<_>>()
    };
    assert!(
        !of("unverified").is_empty()
            && of("unverified")
                .iter()
                .all(|by| by["at"].get("commit").is_none()),
        "{denied:?}"
    );
    assert!(
        !of("commit").is_empty()
            && of("commit")
                .iter()
                .all(|by| by["at"]["commit"] == commit.as_str()),
        "{denied:?}"
    );
    let shown = lab
        .sallyport(&["net", "show", sent.name(), "--json"])
        .expect(0)
        .json();
    assert_eq!(shown["stamp"]["of"], "unverified");
}

#[test]
fn invariant_12_a_floor_of_the_source_narrows_its_workspace_and_changes_live() {
    let repository = Repository::new();
    let floor = (
        "floors/default.yml",
        "policy: floor\nnetwork: internet\ndeny:\n  - cidr: 93.184.216.0/24\n",
    );
    repository.push(&[(FILE, OPEN), floor]);
    let lab = lab(&repository, "    floors: floors\n");
    let sandbox = lab.sandbox("research");
    let preset = lab.sandbox(policies::INTERNET);
    for one in [&sandbox, &preset] {
        assert!(one.run(|| connect(echo())).is_refused());
    }
    repository.push(&[
        (FILE, OPEN),
        ("floors/default.yml", "policy: floor\nnetwork: internet\n"),
    ]);
    lab.sallyport(&["policy", "sync", "main"]).expect(0);
    for one in [&sandbox, &preset] {
        assert!(one.run(|| connect(echo())).is_open());
    }
}

/// Whatever the environment says to git: nothing of it is heard.
#[test]
fn a_sync_asks_for_exactly_one_source_and_takes_nothing_else() {
    let repository = Repository::new();
    repository.push(&[(FILE, OPEN)]);
    let lab = lab(&repository, "");
    for name in ["--option", "other", "../main", "main/../main"] {
        let said = lab.sallyport(&["policy", "sync", "--", name]);
        assert_ne!(said.code, Some(0), "{name}");
    }
    for accept in ["HEAD", "main", "--upload-pack=x", "abc"] {
        assert_ne!(
            lab.sallyport(&["policy", "sync", "main", &format!("--accept={accept}")])
                .code,
            Some(0),
            "{accept}"
        );
    }
    lab.sallyport(&["policy", "sync", "main"]).expect(0);
}
