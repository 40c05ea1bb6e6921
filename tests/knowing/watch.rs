//! Live views: what happens is shown as it happens, once, and a view goes on where it stopped.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use lab::client::{at, connect, http_get};
use lab::origin::port;
use lab::{Lab, cli, policies};
use serde_json::Value;

/// A follower that runs beside the test.
struct Follower {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Follower {
    fn start(lab: &Lab, arguments: &[&str]) -> Self {
        let config = lab.gateway().config().display().to_string();
        let mut all = vec!["--config", config.as_str(), "net", "flows", "-f", "--json"];
        all.extend(arguments);
        let mut child = cli::command(&all)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a follower");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { child, lines }
    }

    /// The next event of a kind; all before it are passed over.
    fn next(&mut self, event: &str) -> Value {
        loop {
            let line = self.lines.next().expect("another line").expect("text");
            let value: Value = serde_json::from_str(&line).expect("JSON");
            if value.get("event").is_some_and(|e| e == event) {
                return value;
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fetch(sandbox: &lab::Sandbox) {
    sandbox.run(|| {
        http_get(
            &mut connect(at("ok.sallylab.net", 80)).expect_open(),
            "ok.sallylab.net",
            "/",
        );
        lab::client::ask("evil.sallylab.net", 1);
    });
}

#[test]
fn a_follower_sees_flows_and_denials_of_its_network_and_goes_on_where_it_stopped() {
    let lab = Lab::builder().gateway_only().start();
    let (sandbox, other) = (
        lab.sandbox(policies::DOMAINS),
        lab.sandbox(policies::DOMAINS),
    );
    let mut follower = Follower::start(&lab, &[sandbox.name(), "--after", "0"]);
    fetch(&other);
    fetch(&sandbox);
    let open = follower.next("open");
    assert_eq!(open["subject"]["name"], "ok.sallylab.net");
    assert_eq!(
        open["subject"]["network"],
        sandbox.name(),
        "the other's came first and is not shown"
    );
    let denied = follower.next("denied");
    assert_eq!(denied["reason"], "name_not_allowed");
    let cursor = denied["cursor"].as_u64().expect("a cursor").to_string();
    drop(follower);
    fetch(&sandbox);
    let mut again = Follower::start(&lab, &[sandbox.name(), "--after", &cursor]);
    let next = again.next("open");
    assert!(
        next["cursor"].as_u64() > denied["cursor"].as_u64(),
        "{next}"
    );
}

#[test]
fn a_live_flow_is_shown_at_once_and_its_end_when_it_comes() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS_ANY);
    let held = sandbox.run(|| connect(at("ok.sallylab.net", port::MUTE)).expect_open());
    let mut follower = Follower::start(&lab, &[]);
    let live = follower.next("open");
    assert_eq!(
        (&live["live"], &live["name"]),
        (&Value::Bool(true), &"ok.sallylab.net".into())
    );
    drop(held);
    assert_eq!(follower.next("close")["flow"], live["id"]);
}

#[test]
fn top_shows_every_network_with_its_names_and_why_something_was_denied() {
    let lab = Lab::builder().gateway_only().start();
    let (sandbox, _quiet) = (lab.sandbox(policies::DOMAINS), lab.sandbox(policies::NONE));
    let config = lab.gateway().config().display().to_string();
    let mut child = cli::command(&["--config", &config, "net", "top", "--json", "-i", "0.2"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("top");
    let mut frames = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut frame = || -> Value {
        let line = frames.next().expect("a frame").expect("text");
        serde_json::from_str(&line).expect("JSON")
    };
    assert_eq!(frame()["networks"].as_array().map(Vec::len), Some(2));
    fetch(&sandbox);
    let row = loop {
        let row = frame()["networks"]
            .as_array()
            .and_then(|all| all.iter().find(|n| n["name"] == sandbox.name()).cloned())
            .expect("the network");
        if row["denials"][0].is_object() && row["names"][0].is_object() {
            break row;
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(row["names"][0]["name"], "ok.sallylab.net", "{row}");
    assert_eq!(row["denials"][0]["reason"], "name_not_allowed", "{row}");
    assert!(row["down"].as_u64() > Some(0), "{row}");
    // for people, without a terminal: plain text, once
    let said = lab
        .sallyport(&["net", "top", "-n", "1", "-i", "0.1"])
        .expect(0);
    assert!(
        said.out.contains("NETWORK") && !said.out.contains('\u{1b}'),
        "{}",
        said.out
    );
}
