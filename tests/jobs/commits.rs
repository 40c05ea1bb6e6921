//! `sallyport run --policy NAME` of a policy in git: the job is decided by a commit, and a push changes the live run.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use lab::Lab;
use lab::topology::{PUBLIC4, ip};

use crate::place::{Place, at};
use crate::world::Here;

pub const OPEN: &str = "policy: research\nnetwork: domains\nallow:\n  - host: ok.sallylab.net\n  - host: four.sallylab.net\n";
const TIGHT: &str = "policy: research\nnetwork: domains\nallow:\n  - host: four.sallylab.net\n";

pub fn git(at: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(at)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .args(["-c", "user.name=A", "-c", "user.email=a@example.com"])
        .args(arguments)
        .output()
        .expect("git");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// One more commit with this policy; its name.
pub fn commit(at: &Path, text: &str) -> String {
    std::fs::create_dir_all(at.join("policies")).expect("a folder");
    std::fs::write(at.join("policies/research.yml"), text).expect("a policy");
    git(at, &["add", "--all"]);
    git(at, &["commit", "--quiet", "-m", "words"]);
    git(at, &["rev-parse", "HEAD"])
}

at!(a_run_keeps_the_stamp_of_its_commit_and_a_push_changes_it_while_it_runs: docker);
fn a_run_keeps_the_stamp_of_its_commit_and_a_push_changes_it_while_it_runs(place: Place) {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    git(at, &["init", "--quiet", "--initial-branch=main"]);
    let loose = commit(at, OPEN);
    let source = format!(
        "sources:\n  main:\n    remote: {}\n    poll: 3600\n",
        at.display()
    );
    let builder = Lab::builder().gateway_only().config(&source);
    let class = place.class;
    let lines = format!("  pool: 0\n  limits: {{ isolation: {class} }}\n");
    let lab = Here::on(builder, place, &lines);
    let config = lab.directory().join("config.yml").display().to_string();
    // until it is denied; what is permitted throughout is asked last, so the run goes on
    let script = "for i in $(seq 300); do curl -sSf -m 10 http://ok.sallylab.net/ > /dev/null || { echo denied; break; }; \
                  echo before; sleep 0.1; done; curl -sS -m 10 http://four.sallylab.net/ && echo after";
    let arguments = [
        "run", "--config", &config, "--policy", "research", "--", "/bin/sh", "-c", script,
    ];
    let mut command = lab.command(&arguments);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = lab.topology.uplink.start(&mut command).expect("start");
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    let mut text = String::new();
    while !text.contains("before") {
        let more = said.read_line(&mut text).expect("the run's words");
        assert!(more > 0, "the run ended: {text}");
    }
    let tight = commit(at, TIGHT);
    lab.sallyport(&["policy", "sync", "main"]).expect(0);
    let mark = lab.capture.mark();
    said.read_to_string(&mut text).expect("the rest");
    let ended = child.wait_with_output().expect("the end");
    assert!(ended.status.success(), "{text}: {ended:?}");
    assert!(text.contains("denied") && text.contains("after"), "{text}");
    let stamps = |kind: &str| -> Vec<String> {
        let records = lab.records();
        let all = records.iter().filter(|r| r["kind"] == kind);
        all.map(|r| r["by"].to_string())
            .filter(|by| by != "null")
            .collect()
    };
    let opened = stamps("open");
    assert!(opened.iter().any(|by| by.contains(&loose)), "{opened:?}");
    assert!(opened.iter().any(|by| by.contains(&tight)), "{opened:?}");
    assert!(
        opened
            .iter()
            .all(|by| by.contains("\"vouched\":\"commit\""))
    );
    // nothing of the denied name was sent; the other one has the same address
    let frames = lab.capture.touching(mark, ip(PUBLIC4));
    assert!(!frames.iter().any(|f| f.holds(b"ok.sallylab.net")));
}
