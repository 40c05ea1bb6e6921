//! `run` where somebody is signed in, interrupted at every moment; a console that is away or refuses is no exit code of a
//! command.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use lab::cli::Said;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tempfile::TempDir;

use crate::hostile::Recorder;
use crate::world::{Console, at_home};

const RUN: &str = "0199f3a2-7d1c-7000-8a51-3c2b9d7e4f10";

fn spawn(mut command: std::process::Command) -> Child {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start")
}

fn interrupt(child: &Child) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("an id"));
    kill(pid, Signal::SIGINT).expect("it runs");
}

#[test]
fn an_interrupt_cancels_a_submitted_run() {
    let console = Console::start();
    let child = spawn(console.command(&["run", "--", "sleep", "600"]));
    let state = |wanted: &str| {
        // asked so often it may say that it was asked too often
        let listed = console.try_owner("GET", &console.path("runs"), None);
        (listed.json["items"][0]["state"] == wanted).then_some(())
    };
    lab::wait::eventually("the run to wait", || state("queued"));
    // once: it has listened since before the run was submitted
    interrupt(&child);
    lab::wait::eventually("the run to be cancelled", || state("cancelled"));
    let said = Said::from(child.wait_with_output().expect("it ends"));
    assert_eq!(said.code, Some(130), "{said:?}");
}

/// A console that answers one path late: it says when it was asked, and waits until it may go on.
struct Slow {
    recorder: Recorder,
    asked: Receiver<()>,
    go: Sender<()>,
}

impl Slow {
    /// `late`: the end of the path.
    fn at(late: &'static str) -> Self {
        let (tell, asked) = channel();
        let (go, may) = channel::<()>();
        let (tell, may) = (Mutex::new(tell), Mutex::new(may));
        let cancelled = AtomicBool::new(false);
        let recorder = Recorder::with(move |stream, head| {
            let line = head.lines().next().unwrap_or_default();
            let is = |end: &str| line.starts_with("POST") && line.contains(&format!("{end} HTTP"));
            cancelled.fetch_or(is("/cancel"), Ordering::Relaxed);
            if is(late) {
                let _ = tell.lock().expect("unpoisoned").send(());
                // a test that is over lets it go on as well
                let _ = may.lock().expect("unpoisoned").recv();
            }
            answer(stream, head, cancelled.load(Ordering::Relaxed));
        });
        Self {
            recorder,
            asked,
            go,
        }
    }

    fn run(&self, folder: &TempDir) -> Child {
        let mut command = at_home(folder.path(), &["run", "--", "true"]);
        command
            .env("SALLYPORT_URL", self.recorder.url())
            .env("SALLYPORT_TOKEN", format!("spt_{}", "a".repeat(43)));
        spawn(command)
    }
}

/// Its run goes on until it is cancelled.
fn answer(stream: &mut TcpStream, head: &str, cancelled: bool) {
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).expect("a body");
    let (kind, body) = if head.contains("/events?") {
        ("text/event-stream", ": here\n\n".to_owned())
    } else {
        let next = head.contains("/output?").then_some(0);
        let value = json!({ "items": [{ "id": "w1", "name": "W" }], "next": next, "id": RUN,
            "pieces": [], "total": 0, "over": cancelled, "run": { "id": RUN, "state": "cancelled" } });
        ("application/json", value.to_string())
    };
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\n{body}"
    );
}

#[test]
fn an_interrupt_while_the_console_thinks_cancels_what_it_then_makes() {
    let (slow, folder) = (Slow::at("/runs"), TempDir::new().expect("a folder"));
    let child = slow.run(&folder);
    slow.asked.recv().expect("it submits");
    interrupt(&child);
    slow.go.send(()).expect("it waits");
    let said = Said::from(child.wait_with_output().expect("it ends"));
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(slow.recorder.heard().contains(&format!("/{RUN}/cancel")));
}

#[test]
fn a_second_interrupt_does_not_wait_for_the_cancellation() {
    let (slow, folder) = (Slow::at("/cancel"), TempDir::new().expect("a folder"));
    let child = slow.run(&folder);
    lab::wait::eventually("it to follow", || {
        slow.recorder.heard().contains("/output?").then_some(())
    });
    interrupt(&child);
    slow.asked.recv().expect("it cancels");
    interrupt(&child);
    // nothing is answered before it ends
    let said = Said::from(child.wait_with_output().expect("it ends"));
    assert_eq!(said.code, Some(130), "{said:?}");
    drop(slow.go);
}

#[test]
fn a_console_that_refuses_or_is_away_is_no_exit_code_of_a_command() {
    let console = Console::start();
    let run = |url: &str| {
        let mut command = console.stranger(&["run", "--url", url, "--", "true"]);
        command.env("SALLYPORT_TOKEN", console.token("read"));
        Said::from(spawn(command).wait_with_output().expect("it ends")).expect(125)
    };
    let refused = run(&console.url());
    assert!(refused.err.contains("scope"), "{refused:?}");
    let away = run("http://127.0.0.1:1");
    assert!(away.err.contains("nobody answers"), "{away:?}");
}
