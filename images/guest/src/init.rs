//! Process 1 of every workload: starts the command, reaps orphans, forwards the engine's signals, ends everything.
//!
//! Invariants: untraceable, and without core files, before the command exists; at the deadline, by a clock that counts sleep and that nobody
//! inside can set, everything is killed even if every other process of Sallyport is gone; when the command ends,
//! nothing that it left behind lives on. Signals from inside the sandbox are ignored: only a sender outside of the
//! pid namespace (sender 0) can end a workload early. The kernel itself shields process 1 from SIGKILL and SIGSTOP of
//! its own namespace (`pid_namespaces(7)`).

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use crate::{parcel, say, sys};

/// Exit code when the deadline ended the workload, as in timeout(1).
const TIMED_OUT: u8 = 124;
/// Exit code when init itself could not do its duty: the workload was not started.
const COULD_NOT: u8 = 125;
/// The command exists and cannot be executed, as in a shell.
const CANNOT_EXECUTE: u8 = 126;
/// The command does not exist, as in a shell.
const NOT_FOUND: u8 = 127;

/// What the runner asks engines for, too: enough for servers and builds, too few to fill the machine's table.
const OPEN_FILES: u64 = 16_384;

/// 128 plus SIGKILL: how the kernel ends what needs more memory than there is.
const KILLED: u8 = 137;

/// What standard input brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takes {
    /// Files, first ([`parcel`]).
    files: bool,
    /// What the command reads, then. Without it the command reads nothing.
    stdin: bool,
}

impl Takes {
    /// Of the words before `--`.
    pub fn read(words: &[&str]) -> Option<Self> {
        let known = words.iter().all(|w| matches!(*w, "--files" | "--stdin"));
        known.then_some(Self {
            files: words.contains(&"--files"),
            stdin: words.contains(&"--stdin"),
        })
    }
}

/// Runs `command` for at most `deadline_seconds`.
pub fn run(deadline_seconds: u64, takes: Takes, command: &[OsString]) -> ExitCode {
    match supervise(deadline_seconds, takes, command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say::note(format_args!("sally init: {error}"));
            ExitCode::from(COULD_NOT)
        }
    }
}

/// When everything has to end.
struct Deadline {
    at_seconds: u64,
    timer: Option<OwnedFd>,
}

impl Deadline {
    fn after(seconds: u64) -> std::io::Result<Self> {
        let at_seconds = sys::seconds_since_boot()?.saturating_add(seconds);
        // A kernel without boot-time timers (an old gVisor) is asked the time each second instead.
        Ok(Self {
            at_seconds,
            timer: sys::boot_timer(seconds).ok(),
        })
    }

    fn passed(&self) -> bool {
        // A clock that cannot be read any more ends the workload: a sandbox without an end is the worse failure.
        sys::seconds_since_boot().map_or(true, |now| now >= self.at_seconds)
    }
}

fn supervise(deadline_seconds: u64, takes: Takes, command: &[OsString]) -> std::io::Result<u8> {
    sys::refuse_tracing()?;
    sys::refuse_cores()?;
    sys::limit_files(OPEN_FILES)?;
    let signals = sys::take_signals()?;
    let deadline = Deadline::after(deadline_seconds)?;
    if takes.files {
        parcel::unpack(&|| deadline.passed())?;
    }
    let main = match start(takes, command) {
        Ok(main) => main,
        Err(code) => return Ok(code),
    };
    let code = loop {
        sys::wait_a_second(signals.as_fd(), deadline.timer.as_ref().map(AsFd::as_fd));
        while let Some(received) = sys::next_signal(signals.as_fd()) {
            forward(received, main);
        }
        let mut ended = None;
        while let Some(child) = sys::reap() {
            if child.pid == main {
                ended = Some(child.code);
            }
        }
        if let Some(code) = ended {
            break code;
        }
        if deadline.passed() {
            say::note("sally init: the deadline has passed, ending everything");
            break TIMED_OUT;
        }
    };
    if code == KILLED && killed_for_memory() > 0 {
        say::note("sally init: the memory limit was reached and the kernel killed for it");
    }
    // As process 1 our end takes everything with it; where we are not (a test, a shared pid namespace) this does
    // what it can.
    if std::process::id() == 1 {
        sys::kill(-1, libc::SIGKILL);
    } else {
        sys::kill(-main, libc::SIGKILL);
    }
    Ok(code)
}

/// How often the kernel killed here because of the memory limit (cgroup v2, then v1). For people: not every engine
/// notices, and whoever reads the output should know why it ends.
fn killed_for_memory() -> u64 {
    [
        "/sys/fs/cgroup/memory.events",
        "/sys/fs/cgroup/memory/memory.oom_control",
    ]
    .iter()
    .filter_map(|path| std::fs::read_to_string(path).ok())
    .find_map(|text| oom_kills(&text))
    .unwrap_or(0)
}

fn oom_kills(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Starts the command in a process group of its own; on failure says why and returns the exit code.
fn start(takes: Takes, command: &[OsString]) -> Result<i32, u8> {
    let (program, arguments) = command.split_first().ok_or(NOT_FOUND)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(if takes.stdin {
            Stdio::inherit()
        } else {
            Stdio::null()
        })
        .process_group(0);
    sys::unblock_signals(&mut command);
    match command.spawn() {
        Ok(child) => i32::try_from(child.id()).map_err(|_| COULD_NOT),
        Err(error) => {
            say::note(format_args!(
                "sally init: {}: {}",
                program.to_string_lossy(),
                error
            ));
            Err(if error.kind() == ErrorKind::NotFound {
                NOT_FOUND
            } else {
                CANNOT_EXECUTE
            })
        }
    }
}

/// Passes a signal of the engine on to the command's process group.
fn forward(received: sys::Received, main: i32) {
    let from_outside = received.sender == 0;
    let reserved = matches!(
        received.signal,
        libc::SIGCHLD | libc::SIGPIPE | libc::SIGTTIN | libc::SIGTTOU
    );
    if from_outside && !reserved {
        sys::kill(-main, received.signal);
        // A stopped group would sit on the signal until someone continues it.
        sys::kill(-main, libc::SIGCONT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_kills_are_read_in_both_forms() {
        assert_eq!(
            oom_kills("low 0\nhigh 0\nmax 4\noom 1\noom_kill 2\noom_group_kill 0\n"),
            Some(2)
        );
        assert_eq!(
            oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
            Some(1)
        );
        assert_eq!(oom_kills(""), None);
    }
}
