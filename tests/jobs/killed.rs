//! Killing any role of a console's machine while it is busy: every run ends, and none is doubled or cut in silence.

use std::fmt::Write as _;
use std::time::Duration;

use lab::wait::within;
use serde_json::{Value, json};

use crate::person::{Person, text};
use crate::pulled::{fell, stop, with_console};
use crate::up::log;
use crate::world::Here;

const LINES: usize = 40;
const AT_ONCE: usize = 6;
/// Sandboxes start one after the other on a busy machine.
const PATIENCE: Duration = Duration::from_mins(3);

fn submit(person: &Person<'_>) -> String {
    let script = format!(
        "i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i; sleep 0.2; done; echo over"
    );
    let spec = json!({ "command": ["/bin/sh", "-c", script] });
    let run = json!({ "name": "load", "spec": spec });
    let made = person.post(&person.within("/runs"), &run);
    text(&made, "/id")
}

fn run(person: &Person<'_>, id: &str) -> Value {
    let mut answer = person.get(&person.within(&format!("/runs/{id}")));
    answer.get_mut("run").expect("the run").take()
}

fn bytes(run: &Value) -> usize {
    let told = run.get("output_bytes").and_then(Value::as_u64);
    usize::try_from(told.unwrap_or_default()).expect("little")
}

/// Waits until so many of the runs are as wanted.
fn until(lab: &Here, person: &Person<'_>, runs: &[String], count: usize, fits: fn(&Value) -> bool) {
    let reached = within(PATIENCE, || {
        let fitting = runs.iter().filter(|id| fits(&run(person, id)));
        (fitting.count() >= count).then_some(())
    });
    assert!(reached.is_some(), "{}", log(lab.directory()));
}

#[test]
fn whatever_is_killed_under_load_every_run_ends_and_none_is_doubled_or_cut_in_silence() {
    let (lab, mut child) = with_console();
    let person = Person::first(&lab);
    let mut runs: Vec<String> = (0..AT_ONCE).map(|_| submit(&person)).collect();
    let prints = |run: &Value| run["output_bytes"].as_i64().is_some_and(|bytes| bytes > 0);
    until(&lab, &person, &runs, AT_ONCE / 2, prints);
    let told: Vec<(String, usize)> = runs
        .iter()
        .map(|id| (id.clone(), bytes(&run(&person, id))))
        .collect();
    fell(&mut child, "console");
    runs.push(submit(&person));
    fell(&mut child, "gateway");
    runs.push(submit(&person));
    fell(&mut child, "runner");
    // what waited, or comes now, is the next runner's
    let after = submit(&person);
    runs.push(after.clone());
    let ended = |run: &Value| run["ended_at"].is_i64();
    until(&lab, &person, &runs, runs.len(), ended);
    let mut whole = (1..=LINES).fold(String::new(), |mut whole, n| {
        let _ = writeln!(whole, "line {n}");
        whole
    });
    whole.push_str("over\n");
    for id in &runs {
        let run = run(&person, id);
        let raw = person.bytes(&person.within(&format!("/runs/{id}/output/raw")));
        let printed = String::from_utf8_lossy(&raw).into_owned();
        match run["state"].as_str() {
            Some("succeeded") => assert_eq!(printed, whole, "{run}"),
            // of a run that its runner lost, what it had told is there, once
            Some("lost") => {
                assert!(whole.starts_with(&printed), "{printed}\n{run}");
                let before = told.iter().find(|(of, _)| of == id);
                let before = before.map_or(0, |(_, bytes)| *bytes);
                assert!(printed.len() >= before, "{before} bytes were told\n{run}");
            }
            _ => panic!("{run}\n{}", log(lab.directory())),
        }
    }
    assert_eq!(run(&person, &after)["state"], "succeeded");
    assert_eq!(lab.containers(), Vec::<String>::new());
    stop(&lab, child);
}
