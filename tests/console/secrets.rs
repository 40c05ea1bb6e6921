//! Secrets and the audit log by the command line: a value comes in by standard input and goes out nowhere.

use std::io::Write;
use std::process::Stdio;

use lab::cli::Said;
use serde_json::json;

use crate::world::Console;

fn set(console: &Console, arguments: &[&str], value: &str) -> Said {
    let arguments = [&["secret", "set"][..], arguments].concat();
    let mut child = console
        .command(&arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    // it may have refused before it read anything
    let _ = child
        .stdin
        .take()
        .expect("piped")
        .write_all(value.as_bytes());
    child.wait_with_output().expect("it ends").into()
}

#[test]
fn a_secret_is_set_replaced_listed_and_deleted_and_never_shown() {
    let console = Console::start();
    let value = "hunter2-hunter2";
    let mut seen = set(
        &console,
        &["API_KEY", "--host", "api.example.com", "-o", "json"],
        value,
    )
    .expect(0)
    .out;
    seen += &set(&console, &["API_KEY"], value).expect(0).out;
    let listed = console.run(&["secret", "list", "--json"]).expect(0);
    assert_eq!(listed.json()[0]["hosts"], json!(["api.example.com"]));
    assert_eq!(listed.json()[0]["version"], 2);
    seen += &listed.out;
    seen += &console.run(&["secret", "list"]).expect(0).out;
    assert!(!seen.contains(value), "{seen}");
    assert!(
        set(&console, &["lower case"], value)
            .expect(3)
            .err
            .contains("name")
    );
    assert!(
        set(&console, &["EMPTY"], "\n")
            .expect(3)
            .err
            .contains("the value is empty")
    );
    assert!(
        set(&console, &["LONG"], &"x".repeat((64 << 10) + 1))
            .expect(3)
            .err
            .contains("at most")
    );
    // an argument is no place for one
    assert_eq!(
        console.run(&["secret", "set", "API_KEY", value]).code,
        Some(2)
    );
    console.run(&["secret", "delete", "API_KEY"]).expect(0);
    console.run(&["secret", "delete", "API_KEY"]).expect(3);
}

#[test]
fn the_audit_log_is_read_over_the_api_by_who_may() {
    let console = Console::start();
    console.run(&["job", "create", "j", "--", "true"]).expect(0);
    let entries = console.run(&["audit", "list", "--json"]).expect(0).json();
    let added = entries
        .as_array()
        .expect("a list")
        .iter()
        .find(|entry| entry["action"] == "job.add");
    let seq = added.expect("the job's entry")["seq"].clone();
    let table = console.run(&["audit", "list"]).expect(0).out;
    assert!(table.contains("job.add"), "{table}");
    let later = console
        .run(&["audit", "list", "--json", "--after", &seq.to_string()])
        .expect(0)
        .json();
    assert!(
        later
            .as_array()
            .expect("a list")
            .iter()
            .all(|entry| entry["seq"].as_i64() > seq.as_i64()),
        "{later}"
    );
}
