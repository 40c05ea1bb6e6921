//! `sallyport up`: a role that falls comes back, and the end is an orderly one.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use lab::cli;
use lab::policies;
use lab::topology::{OTHER4, ip};
use lab::wait::{eventually, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::world::{Here, lab, run};

pub fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).expect("pid"))
}

/// The child of this process that is this role.
pub fn role(parent: u32, name: &str) -> Option<u32> {
    std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .find_map(|entry| {
            let number: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // proc(5): the name in parentheses may hold anything; the parent is the second field after it
            let of = stat
                .rsplit_once(')')?
                .1
                .split_whitespace()
                .nth(1)?
                .parse::<u32>();
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let word = line.split(|byte| *byte == 0).nth(1)?;
            (of == Ok(parent) && word == name.as_bytes()).then_some(number)
        })
}

/// `up` in place of the lab's own gateway; both roles answer.
pub fn up(lab: &mut Here) -> Child {
    lab.stop_gateway();
    let config = lab.directory().join("config.yml").display().to_string();
    let mut command = cli::command(&["up", "--config", &config]);
    let log = std::fs::File::create(lab.directory().join("up.log")).expect("a log");
    command.stdout(Stdio::null()).stderr(log);
    let child = lab.topology.uplink.start(&mut command).expect("start");
    answers(lab);
    child
}

fn answers(lab: &Here) {
    for socket in ["control.sock", "runner.sock"] {
        let path = lab.directory().join(socket);
        eventually("both roles to answer", || {
            std::os::unix::net::UnixStream::connect(&path).ok()
        });
    }
}

fn works(lab: &Here) {
    let said = eventually("a run that is not refused", || {
        let said = run(
            lab,
            policies::DOMAINS,
            &["--quiet"],
            "curl -sS -m 10 -o /dev/null http://ok.sallylab.net/ && ! curl -sSf -m 5 http://evil.sallylab.net/",
        );
        (said.code != Some(125) && said.code != Some(3)).then_some(said)
    });
    said.expect(0);
}

#[test]
fn a_role_that_is_killed_is_started_again_and_sigterm_ends_runs_and_roles_in_order() {
    let mut lab = lab();
    let mut child = up(&mut lab);
    let frames = lab.capture.mark();
    works(&lab);
    for name in ["gateway", "runner"] {
        let old = role(child.id(), name).expect("the role");
        kill(pid(old), Signal::SIGKILL).expect("kill");
        eventually("another process of the role", || {
            role(child.id(), name).filter(|new| *new != old)
        });
        answers(&lab);
        works(&lab);
    }
    // a live run is ended by the runner, not by the loss of its way out
    let mut live = lab.long_run();
    kill(pid(child.id()), Signal::SIGTERM).expect("signal");
    let ended = within(Duration::from_mins(1), || child.try_wait().expect("wait"));
    assert_eq!(
        ended.and_then(|s| s.code()),
        Some(0),
        "{}",
        log(lab.directory())
    );
    assert_eq!(live.wait().expect("the run ends").code(), Some(125));
    assert_eq!(lab.containers(), Vec::<String>::new());
    for socket in ["control.sock", "runner.sock"] {
        assert!(std::os::unix::net::UnixStream::connect(lab.directory().join(socket)).is_err());
    }
    lab.capture.none_to(frames, ip(OTHER4));
}

#[test]
fn a_run_while_up_is_stopping_waits_and_starts_its_own() {
    let mut lab = lab();
    let mut child = up(&mut lab);
    let mut live = lab.long_run();
    kill(pid(child.id()), Signal::SIGTERM).expect("signal");
    eventually("the runner to be stopping", || {
        log(lab.directory())
            .contains("stopping console and runner")
            .then_some(())
    });
    let said = lab
        .sallyport(&["run", "--quiet", "--", "echo", "mine"])
        .expect(0);
    assert_eq!((said.out.as_str(), said.err.as_str()), ("mine\n", ""));
    live.wait().expect("the run ends");
    let ended = within(Duration::from_mins(1), || child.try_wait().expect("wait"));
    assert_eq!(ended.and_then(|s| s.code()), Some(0));
    // and its own is gone with it
    assert!(std::os::unix::net::UnixStream::connect(lab.directory().join("runner.sock")).is_err());
}

#[test]
fn a_role_that_refuses_to_start_ends_up_and_one_that_starts_later_is_waited_for() {
    // the lab's own gateway has the state
    let lab = lab();
    let config = lab.directory().join("config.yml").display().to_string();
    let mut command = cli::command(&["up", "--config", &config]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = lab.topology.uplink.start(&mut command).expect("start");
    let said: cli::Said = child.wait_with_output().expect("it ends").into();
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(
        said.err.contains("the gateway refuses to start"),
        "{said:?}"
    );
    assert!(!said.err.contains("the gateway ended"), "{said:?}");
    // while a fresh one has nothing to complain about
    let mut lab = self::lab();
    let mut child = up(&mut lab);
    let log = log(lab.directory());
    let complains = |line: &str| line.contains("WARN") && line.contains("runner::");
    assert!(!log.lines().any(complains), "{log}");
    for role in ["gateway", "runner"] {
        assert!(!log.contains(&format!("the {role} ended")), "{log}");
    }
    kill(pid(child.id()), Signal::SIGTERM).expect("signal");
    child.wait().expect("it ends");
}

pub fn log(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("up.log")).unwrap_or_default()
}
