//! The programs of iptables: found by absolute path, run inside the namespace in a fixed environment, never for ever.
//!
//! JUSTIFICATION: the legacy tables are written through a binary interface that differs between kernels and that these
//! programs alone keep up with; nothing that a sandbox or a policy says is ever an argument.
//!
//! The lock that the programs of a whole machine share is not waited for: it orders programs that change the same tables,
//! which here one gateway does, one act after the other; whoever holds it for long would stop every gateway. Each run
//! locks its own input instead, which also works for users who may not open the other. Programs before 1.8.6 wait.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use netpolicy::ruleset::IpFamily;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::kernel::error::{Act, KernelError};
use crate::kernel::netns::Ns;

/// Where distributions keep them.
const DIRECTORIES: [&str; 5] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin"];
/// The file that a program locks: the pipe that it reads.
const OWN_LOCK: &str = "/proc/self/fd/0";
/// Seconds that a program waits for the lock that all of them share on a machine, should it take that one.
const LOCK_SECONDS: &str = "5";
/// After that it is stuck. Above the wait for the lock; a thousand networks take tens of milliseconds.
const STUCK: Duration = Duration::from_secs(10);
/// So much is read of the chains of a table that may be anybody's: a gateway has a few dozen.
const MOST_DECLARED: u64 = 1 << 20;
/// Of what a program said, so much is repeated.
const SAID: usize = 600;

/// The programs of one family.
#[derive(Clone, Debug)]
struct Pair {
    restore: PathBuf,
    save: PathBuf,
}

/// The programs of both families.
#[derive(Clone, Debug)]
pub struct Programs {
    four: Pair,
    six: Pair,
}

impl Programs {
    /// Finds the legacy programs: by that name, or by the plain one where that is legacy.
    pub fn find() -> Result<Self, KernelError> {
        Self::find_in(&DIRECTORIES.map(Path::new))
    }

    /// The same, in these folders.
    pub fn find_in(folders: &[&Path]) -> Result<Self, KernelError> {
        Ok(Self {
            four: find("iptables", folders)?,
            six: find("ip6tables", folders)?,
        })
    }

    /// Where the program that writes IPv4 tables is.
    pub fn restore(&self) -> &Path {
        &self.four.restore
    }

    /// Replaces the tables that the text names, or changes them.
    pub fn write(
        &self,
        ns: &Ns,
        family: IpFamily,
        text: String,
        keep: Keep,
    ) -> Result<(), KernelError> {
        let mut args = vec!["-w", LOCK_SECONDS];
        if keep == Keep::Others {
            args.push("--noflush");
        }
        run(ns, &self.pair(family).restore, args, text).map(drop)
    }

    /// What is there, with counters.
    pub fn save(&self, ns: &Ns, family: IpFamily) -> Result<String, KernelError> {
        run(ns, &self.pair(family).save, vec!["-c"], String::new())
    }

    /// Whether a table that is there has a chain of this name. Of what is printed no more is read than that takes: rules,
    /// which may be somebody else's, as many and as long as they like, stand behind all chains.
    pub fn has_chain(
        &self,
        ns: &Ns,
        (family, table): (IpFamily, &'static str),
        chain: &'static str,
    ) -> Result<bool, KernelError> {
        let path = self.pair(family).save.clone();
        let act = format!("running {}", path.display());
        ns.run(move || {
            started(&path, &["-t", table])
                .and_then(|child| declares(child, chain))
                .act(act)
        })
    }

    const fn pair(&self, family: IpFamily) -> &Pair {
        match family {
            IpFamily::V4 => &self.four,
            IpFamily::V6 => &self.six,
        }
    }
}

/// What happens to rules that the text does not name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// They go.
    Nothing,
    /// They stay.
    Others,
}

fn find(name: &str, folders: &[&Path]) -> Result<Pair, KernelError> {
    let both = |restore: String, save: String| {
        folders.iter().find_map(|place| {
            let pair = Pair {
                restore: place.join(&restore),
                save: place.join(&save),
            };
            (pair.restore.is_file() && pair.save.is_file()).then_some(pair)
        })
    };
    both(
        format!("{name}-legacy-restore"),
        format!("{name}-legacy-save"),
    )
    .or_else(|| {
        both(format!("{name}-restore"), format!("{name}-save"))
            .filter(|pair| is_legacy(&pair.restore) && is_legacy(&pair.save))
    })
    .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    .act(format!(
        "looking for {name}-legacy-restore, or a {name}-restore that is legacy"
    ))
}

/// `iptables-restore v1.8.9 (legacy)`; before 1.8 there was no other kind and nothing in brackets.
fn is_legacy(program: &Path) -> bool {
    let said = Command::new(program).arg("--version").env_clear().output();
    said.is_ok_and(|said| {
        said.status.success() && !String::from_utf8_lossy(&said.stdout).contains("nf_tables")
    })
}

/// Runs one inside the namespace; what it printed, or what it complained about.
fn run(
    ns: &Ns,
    program: &Path,
    args: Vec<&'static str>,
    input: String,
) -> Result<String, KernelError> {
    let path = program.to_owned();
    let act = format!("running {}", program.display());
    ns.run(move || {
        let said = started(&path, &args)
            .and_then(|child| finished(child, &input))
            .act(act.clone())?;
        if said.status.success() {
            return String::from_utf8(said.stdout)
                .map_err(io::Error::other)
                .act(act);
        }
        let complaint = String::from_utf8_lossy(&said.stderr);
        let complaint: String = complaint.trim().chars().take(SAID).collect();
        let complaint = if complaint.is_empty() {
            said.status.to_string()
        } else {
            complaint
        };
        Err(io::Error::other(complaint)).act(act)
    })
}

fn started(path: &Path, args: &[&str]) -> io::Result<Child> {
    Command::new(path)
        .args(args)
        .env_clear()
        .env("LC_ALL", "C")
        .env("XTABLES_LOCKFILE", OWN_LOCK)
        // for modprobe, which the kernel's helper may not find alone
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Feeds it and waits; a program that does not end is killed, so that whoever waits goes on.
fn finished(mut child: Child, input: &str) -> io::Result<std::process::Output> {
    let watch = watched(&mut child)?;
    // It reads everything before it says anything, so neither side waits for the other. What it does not read, it
    // complains about.
    let fed = child
        .stdin
        .take()
        .map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let said = child.wait_with_output();
    let stuck = watch.join().unwrap_or(false);
    let said = said?;
    if stuck {
        return Err(io::ErrorKind::TimedOut.into());
    }
    match fed {
        Err(error) if said.status.success() => Err(error),
        _ => Ok(said),
    }
}

/// Reads the chains that a program prints, and ends it there.
fn declares(mut child: Child, chain: &str) -> io::Result<bool> {
    let watch = watched(&mut child)?;
    drop(child.stdin.take());
    let own = format!(":{chain} ");
    let mut found = None;
    let said = child.stdout.take().into_iter();
    for line in said.flat_map(|said| BufReader::new(said.take(MOST_DECLARED)).lines()) {
        let Ok(line) = line else { break };
        match line.split_at_checked(1) {
            Some((":", _)) if line.starts_with(&own) => found = Some(true),
            None | Some(("#" | "*" | ":", _)) => continue,
            Some(_) => found = Some(false),
        }
        break;
    }
    // it may be printing still; if it ended, that is no matter
    let _ = child.kill();
    child.wait()?;
    let stuck = watch.join().unwrap_or(false);
    match found {
        Some(found) if !stuck => Ok(found),
        _ => Err(io::Error::other("its chains cannot be read")),
    }
}

/// Sees to it that a program ends.
fn watched(child: &mut Child) -> io::Result<JoinHandle<bool>> {
    let watch = handle_of(child).and_then(|handle| {
        std::thread::Builder::new()
            .name("iptables-watch".into())
            .spawn(move || end_if_stuck(&handle))
    });
    if watch.is_err() {
        // unwatched it might never end
        child.kill()?;
        child.wait()?;
    }
    watch
}

fn handle_of(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Whether it had to be killed.
fn end_if_stuck(process: &OwnedFd) -> bool {
    use std::os::fd::AsFd as _;
    let timeout = PollTimeout::try_from(STUCK).unwrap_or(PollTimeout::MAX);
    let mut ends = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    if matches!(poll(&mut ends, timeout), Ok(0)) {
        return pidfd_send_signal(process, Signal::KILL).is_ok();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(script: &str, input: &str) -> io::Result<std::process::Output> {
        finished(started(Path::new("/bin/sh"), &["-c", script])?, input)
    }

    #[test]
    fn a_program_sees_a_fixed_environment_and_all_of_its_input() {
        let long = "x".repeat(1 << 20);
        let said = ended("wc -c; env | cut -d= -f1 | sort | tr '\\n' ' '", &long).unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        assert_eq!(text, "1048576\nLC_ALL PATH PWD XTABLES_LOCKFILE ");
    }

    #[test]
    fn chains_are_found_without_reading_the_rules_behind_them() {
        let declared = |script: &str| {
            let child = started(Path::new("/bin/sh"), &["-c", script]).unwrap();
            declares(child, "source4").map_err(|error| error.to_string())
        };
        let head = "echo '# by'; echo '*raw'; echo ':PREROUTING DROP [0:0]'; ";
        // a program that prints for ever is not listened to for ever
        let rules = "while :; do echo '-A PREROUTING -j DROP'; done";
        let own = "echo ':source4 - [0:0]'; ";
        assert_eq!(declared(&format!("{head}{own}{rules}")), Ok(true));
        assert_eq!(declared(&format!("{head}{rules}")), Ok(false));
        assert_eq!(declared(&format!("{head}echo COMMIT")), Ok(false));
        for unknown in [
            "exit 1".to_owned(),
            format!("{head}exit 1"),
            format!("{head}while :; do echo ':c - [0:0]'; done"),
        ] {
            assert!(declared(&unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn what_a_program_complains_about_is_told() {
        let said = ended("exec >&2; echo no; exit 3", "unread").unwrap();
        assert_eq!(said.status.code(), Some(3));
        assert_eq!(said.stderr, b"no\n");
    }

    #[test]
    fn the_programs_of_this_machine_are_legacy() {
        let programs = Programs::find().expect("the tests need iptables");
        for pair in [&programs.four, &programs.six] {
            assert!(
                is_legacy(&pair.restore) && is_legacy(&pair.save),
                "{pair:?}"
            );
        }
    }
}
