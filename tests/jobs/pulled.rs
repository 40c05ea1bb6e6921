//! Runs that a console gives its runner: what they print and reach is in the console's store, whatever dies meanwhile.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use lab::cli::{self, Said};
use lab::policies;
use lab::topology::{OTHER4, ip};
use lab::wait::{eventually, within};
use nix::sys::signal::{Signal, kill};

use crate::up::{log, pid, role, up};
use crate::world::{Here, lab};

/// A process that ends with its test, also if that fails: `up` in order, anything else at once.
#[derive(Debug)]
pub struct Ends(Option<Child>);

impl Ends {
    pub fn of(child: Child) -> Self {
        Self(Some(child))
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it was not waited for")
    }

    fn signal(&self, signal: Signal) {
        let child = self.0.as_ref().expect("it was not waited for");
        kill(pid(child.id()), signal).expect("signal");
    }

    /// What it said, when it has ended.
    fn said(mut self) -> Said {
        let child = self.0.take().expect("it was not waited for");
        child.wait_with_output().expect("it ends").into()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let Some(child) = &mut self.0 else { return };
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ = kill(pid(child.id()), Signal::SIGTERM);
        if within(Duration::from_secs(20), || child.try_wait().ok().flatten()).is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Everything of `sallyport up` on this machine, with the console's folder in the lab's own.
pub fn with_console() -> (Here, Ends) {
    let mut lab = lab();
    let child = Ends(Some(up(&mut lab)));
    let log = lab.directory().join("up.log");
    eventually("the runner to pull", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.contains("pulling work from the console").then_some(())
    });
    (lab, child)
}

/// Starts a shell script as a run of the console.
fn submit(lab: &Here, script: &str) -> Ends {
    let policy = lab.file("job.yml", policies::DOMAINS).display().to_string();
    let config = lab.directory().join("config.yml").display().to_string();
    let arguments = [
        "console", "sample", "--config", &config, "--policy", &policy, "--", "/bin/sh", "-c",
        script,
    ];
    let mut command = lab.command(&arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Ends(Some(
        lab.topology.uplink.start(&mut command).expect("start"),
    ))
}

pub fn stop(lab: &Here, mut child: Ends) {
    child.signal(Signal::SIGTERM);
    let ended = within(Duration::from_mins(1), || {
        child.child().try_wait().expect("wait")
    });
    assert_eq!(
        ended.and_then(|s| s.code()),
        Some(0),
        "{}",
        log(lab.directory())
    );
}

/// Kills a role and waits until another process has its place.
pub fn fell(parent: &mut Ends, name: &str) {
    let parent = parent.child().id();
    let old = role(parent, name).expect("the role");
    kill(pid(old), Signal::SIGKILL).expect("kill");
    eventually("another process of the role", || {
        role(parent, name).filter(|new| *new != old)
    });
}

/// Reads until a line was printed.
fn until(child: &mut Ends, line: &str) {
    let out = child.child().stdout.as_mut().expect("piped");
    let (mut text, mut byte) = (String::new(), [0]);
    while !text.ends_with(&format!("{line}\n")) {
        out.read_exact(&mut byte).expect("it goes on");
        text.extend(byte.map(char::from));
    }
}

#[test]
fn a_run_of_the_console_reaches_what_it_may_and_its_denials_are_in_its_flows() {
    let (lab, child) = with_console();
    let frames = lab.capture.mark();
    let script = "echo out; echo err >&2; curl -sS -m 10 -o /dev/null http://ok.sallylab.net/ && echo fine; \
                  curl -sSf -m 5 http://evil.sallylab.net/ || exit 7";
    let said = submit(&lab, script).said();
    assert_eq!(said.code, Some(7), "{said:?}\n{}", log(lab.directory()));
    assert_eq!(said.out, "out\nfine\n", "{said:?}");
    let line = |words: &[&str]| {
        let all = |line: &&str| words.iter().all(|word| line.contains(word));
        assert!(
            said.err.lines().any(|line| all(&line)),
            "{words:?}: {said:?}"
        );
    };
    line(&["err"]);
    line(&["permitted", "ok.sallylab.net:80", "job.yaml:"]);
    line(&["denied", "evil.sallylab.net", "name_not_allowed"]);
    line(&["failed"]);
    lab.capture.none_to(frames, ip(OTHER4));
    stop(&lab, child);
}

#[test]
fn a_killed_console_or_gateway_loses_no_output_and_doubles_none() {
    let (lab, mut child) = with_console();
    let script = "echo begun; i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo line $i; sleep 0.2; done; echo over";
    let mut run = submit(&lab, script);
    until(&mut run, "begun");
    fell(&mut child, "console");
    until(&mut run, "line 30");
    fell(&mut child, "gateway");
    let said = run.said();
    assert_eq!(said.code, Some(0), "{said:?}\n{}", log(lab.directory()));
    let mut expected: Vec<String> = (31..=60).map(|n| format!("line {n}")).collect();
    expected.push("over".to_owned());
    assert_eq!(said.out.lines().collect::<Vec<_>>(), expected);
    stop(&lab, child);
}

#[test]
fn a_killed_runner_loses_its_runs_and_says_so_and_takes_the_next_one() {
    let (lab, mut child) = with_console();
    let mut run = submit(&lab, "echo begun; sleep 600");
    until(&mut run, "begun");
    fell(&mut child, "runner");
    // known as soon as the next process says hello, not when the lease ends
    let begun = Instant::now();
    let lost = run.said();
    assert!(lost.err.contains(": lost"), "{lost:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(40),
        "{:?}",
        begun.elapsed()
    );
    submit(&lab, "echo next").said().expect(0);
    assert_eq!(lab.containers(), Vec::<String>::new());
    stop(&lab, child);
}

#[test]
fn a_cancelled_run_ends_within_seconds() {
    let (lab, child) = with_console();
    let mut run = submit(&lab, "echo begun; trap '' TERM INT; sleep 600");
    until(&mut run, "begun");
    let begun = Instant::now();
    run.signal(Signal::SIGINT);
    let said = run.said();
    assert!(said.err.contains(": cancelled"), "{said:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    stop(&lab, child);
}

#[test]
fn a_sandbox_that_dials_the_console_is_refused() {
    let (lab, child) = with_console();
    // it answers whoever is no sandbox
    let answers = lab
        .topology
        .uplink
        .run(|| std::net::TcpStream::connect("127.0.0.1:8420").is_ok());
    assert!(answers);
    let own = lab::topology::HOST4;
    let script = format!(
        "for to in 127.0.0.1 {own} 198.18.0.1 localhost; do \
         curl -s -m 5 -o /dev/null http://$to:8420/api/v1 && echo reached $to; done; echo tried"
    );
    let said = submit(&lab, &script).said().expect(0);
    assert_eq!(said.out, "tried\n", "{said:?}");
    stop(&lab, child);
}

#[test]
fn cli_says_what_a_sample_needs() {
    cli::sallyport(&["console", "sample"]).expect(2);
}
