//! `plan` and `apply`: every mistake at once, nothing sent while there is one, nothing of somebody else overwritten.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use lab::cli::Said;
use serde_json::{Value, json};

use crate::hostile::Recorder;
use crate::world::{Console, ask, at_home};

/// A folder of files beside the console.
fn folder(console: &Console, files: &[(&str, &str)]) -> PathBuf {
    let folder = console.folder.path().join("jobs");
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("write");
    }
    folder
}

fn call(console: &Console, verb: &str, more: &[&str]) -> Said {
    let folder = console.folder.path().join("jobs").display().to_string();
    console.run(&[&[verb, "-f", &folder][..], more].concat())
}

const NIGHTLY: &str = "job: nightly\ncommand: [sh, \"-c\", echo x]\nnetwork: { policy_file: policies/p.yml }\nlimits: { pids: 64 }\n";
const POLICY: &str = "policy: p\nnetwork: domains\nallow:\n  - host: a.example\n";

#[test]
fn files_are_planned_applied_once_and_then_nothing_is_to_be_changed() {
    let console = Console::start();
    let files = folder(
        &console,
        &[
            ("nightly.yml", NIGHTLY),
            ("policies/p.yml", POLICY),
            ("more/b.yaml", "job: b\ncommand: [\"true\"]\n"),
        ],
    );
    let planned = call(&console, "plan", &[]).expect(1).out;
    assert!(
        planned.contains("+ create nightly") && planned.contains("+ create b"),
        "{planned}"
    );
    assert_eq!(
        console.run(&["job", "list", "--json"]).expect(0).json(),
        json!([]),
        "a plan changes nothing"
    );
    call(&console, "apply", &[]).expect(0);
    assert!(
        call(&console, "plan", &[])
            .expect(0)
            .out
            .contains("nothing is to be changed")
    );
    let before = console
        .run(&["job", "show", "nightly", "--json"])
        .expect(0)
        .json();
    assert_eq!(before["spec"]["network"]["mode"], "domains");
    call(&console, "apply", &[]).expect(0);
    assert_eq!(
        console
            .run(&["job", "show", "nightly", "--json"])
            .expect(0)
            .json(),
        before,
        "applied twice is applied once"
    );
    fs::write(files.join("nightly.yml"), NIGHTLY.replace("64", "32")).expect("write");
    fs::write(
        files.join("policies/p.yml"),
        POLICY.replace("a.example", "b.example"),
    )
    .expect("write");
    let planned = call(&console, "plan", &[]).expect(1).out;
    for line in [
        "~ change nightly",
        "limits.pids: 64 -> 32",
        "-   - host: a.example",
        "+   - host: b.example",
    ] {
        assert!(planned.contains(line), "{line}: {planned}");
    }
    let values = call(&console, "plan", &["-o", "json"]).expect(1).json();
    assert_eq!(
        (&values[0]["action"], &values[0]["job"]),
        (&json!("change"), &json!("nightly")),
        "{values}"
    );
    call(&console, "apply", &["-o", "yaml"]).expect(0);
    call(&console, "plan", &[]).expect(0);
}

#[test]
fn every_mistake_of_every_file_is_told_and_nothing_is_sent() {
    let console = Console::start();
    folder(
        &console,
        &[
            (
                "a.yml",
                "job: a\ncomand: [x]\nlimits: { memory_mib: many }\n",
            ),
            ("b.yml", "job: b\nlimits:\n  memory_mib: 1\n"),
            (
                "c.yml",
                "job: c\nnetwork: { policy_file: policies/p.yml }\n",
            ),
            ("d.yml", "job: good\n"),
            ("e.yml", "job: good\n"),
            ("f.yml", "job: f\n\tx: 1\n"),
            ("policies/p.yml", "policy: p\nnetwork: domains\nalow: []\n"),
        ],
    );
    let silent = Recorder::answering(b"");
    let mut command = console.command(&[
        "apply",
        "-f",
        &console.folder.path().join("jobs").display().to_string(),
    ]);
    let said = Said::from(
        command
            .env("SALLYPORT_URL", silent.url())
            .output()
            .expect("start"),
    )
    .expect(3);
    for place in [
        "a.yml:2:1:",
        "a.yml:3:23:",
        "b.yml:3:15:",
        "p.yml:3:1:",
        "e.yml:1:6:",
        "f.yml:2:",
    ] {
        assert!(said.err.contains(place), "{place}: {}", said.err);
    }
    assert_eq!(silent.heard(), "");
}

#[test]
fn only_prune_removes_and_an_empty_folder_removes_nothing() {
    let console = Console::start();
    folder(&console, &[("b.yml", "job: b\n")]);
    console
        .run(&["job", "create", "by-hand", "--", "true"])
        .expect(0);
    assert!(
        call(&console, "apply", &[])
            .expect(0)
            .err
            .contains("no file is of: by-hand")
    );
    assert!(
        call(&console, "plan", &["--prune"])
            .expect(1)
            .out
            .contains("- remove by-hand")
    );
    call(&console, "apply", &["--prune"]).expect(0);
    let names = |said: Said| -> Vec<Value> {
        said.json()
            .as_array()
            .expect("a list")
            .iter()
            .map(|job| job["name"].clone())
            .collect()
    };
    assert_eq!(
        names(console.run(&["job", "list", "--json"]).expect(0)),
        ["b"]
    );
    fs::remove_file(console.folder.path().join("jobs/b.yml")).expect("remove");
    call(&console, "apply", &["--prune"]).expect(3);
    assert_eq!(
        names(console.run(&["job", "list", "--json"]).expect(0)),
        ["b"]
    );
}

/// Plays a proxy behind which somebody is quicker: b is changed before its change is passed on.
fn change_first(port: u16, bearer: &str, stream: &mut TcpStream, head: &str) {
    let mut words = head.split(' ');
    let (method, path) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let field = |name: &str| {
        head.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix(name)
                .map(str::to_owned)
        })
    };
    let length: usize = field("content-length: ")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
    let body = serde_json::from_slice::<Value>(&body).ok();
    if method == "PUT" && body.as_ref().is_some_and(|body| body["name"] == "b") {
        let theirs = json!({ "name": "b", "spec": { "description": "theirs" } });
        assert_eq!(
            ask(port, "PUT", path, bearer, Some(&theirs))
                .expect("an answer")
                .status,
            200
        );
    }
    let version = field("if-match: ")
        .map(|tag| format!("if-match: {tag}\r\n"))
        .unwrap_or_default();
    let answer = ask(
        port,
        method,
        path,
        &format!("{bearer}{version}"),
        body.as_ref(),
    )
    .expect("an answer");
    let text = answer.json.to_string();
    let head = format!(
        "HTTP/1.1 {} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
        answer.status,
        text.len()
    );
    let _ = stream.write_all(head.as_bytes());
}

#[test]
fn a_change_in_between_is_not_overwritten_and_the_rest_is_done() {
    let console = Console::start();
    folder(&console, &[("b.yml", "job: b\n"), ("c.yml", "job: c\n")]);
    call(&console, "apply", &[]).expect(0);
    folder(
        &console,
        &[
            ("b.yml", "job: b\nroot: true\n"),
            ("c.yml", "job: c\nroot: true\n"),
        ],
    );
    let (port, token) = (console.port, console.token("write"));
    let (workspace, bearer) = (
        console.workspace.clone(),
        format!("authorization: Bearer {token}\r\n"),
    );
    let proxy = Recorder::with(move |stream, head| change_first(port, &bearer, stream, head));
    let mut command = console.command(&[
        "apply",
        "-f",
        &console.folder.path().join("jobs").display().to_string(),
    ]);
    let said = Said::from(
        command
            .env("SALLYPORT_URL", proxy.url())
            .output()
            .expect("start"),
    )
    .expect(1);
    assert!(
        said.out
            .contains("not done: it has changed since it was read"),
        "{said:?}"
    );
    let jobs = console.owner("GET", &format!("/api/v1/workspaces/{workspace}/jobs"), None);
    let spec = |name: &str| {
        jobs["items"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|job| job["name"] == name)
            .expect("it")["spec"]
            .clone()
    };
    assert_eq!(
        (&spec("b")["description"], &spec("b")["root"]),
        (&json!("theirs"), &json!(false))
    );
    assert_eq!(spec("c")["root"], true);
}

/// Plays a console with a job `b`, and answers every change in one way.
fn refusing(status: &'static str, code: &'static str, workspace: bool) -> Recorder {
    let changed = std::sync::atomic::AtomicBool::new(false);
    Recorder::with(move |stream, head| {
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).expect("a body");
        let own = json!({ "id": "w1", "name": "b", "version": 1, "spec": {}, "enabled": true });
        let good = ("200 OK", json!({ "items": [own], "next": null }));
        let bad = (status, json!({ "code": code, "detail": "it is refused" }));
        let reads = head.starts_with("GET");
        let gone = changed.fetch_or(!reads, std::sync::atomic::Ordering::Relaxed) && !workspace;
        let (status, body) = if reads && !gone { good } else { bad };
        let _ = write!(stream, "HTTP/1.1 {status}\r\n\r\n{body}");
    })
}

#[test]
fn only_what_somebody_else_did_meanwhile_is_called_so() {
    let home = tempfile::TempDir::new().expect("a folder");
    let jobs = home.path().join("jobs");
    fs::create_dir(&jobs).expect("a folder");
    let shown = jobs.display().to_string();
    let (new, other) = ("job: new\n", "job: b\nroot: true\n");
    for (text, status, code, workspace, exits) in [
        (new, "409 Conflict", "taken", true, 1),
        (new, "409 Conflict", "too_many", true, 3),
        (new, "404 Not Found", "not_found", false, 3),
        (other, "412 Precondition Failed", "changed", true, 1),
        (other, "404 Not Found", "not_found", true, 1),
        (other, "404 Not Found", "not_found", false, 3),
    ] {
        fs::write(jobs.join("j.yml"), text).expect("write");
        let console = refusing(status, code, workspace);
        let mut command = at_home(home.path(), &["apply", "-f", &shown]);
        command
            .env("SALLYPORT_URL", console.url())
            .env("SALLYPORT_TOKEN", format!("spt_{}", "a".repeat(43)));
        let said = Said::from(command.output().expect("start"));
        assert_eq!(said.code, Some(exits), "{text} {status} {code}: {said:?}");
    }
}
