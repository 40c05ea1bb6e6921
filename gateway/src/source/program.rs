//! Running another program on input that nobody should trust: a fixed environment, limits, an end that always comes.
//!
//! The program leads a process group of its own; when time is up, or whoever waits goes away, the whole group is killed,
//! so that no helper (ssh, index-pack) outlives it. Nothing of the gateway's environment is inherited. What it prints is
//! read up to a limit. Refuses to own: what is run ([`super::git`], [`super::signature`]).

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Resource, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::kernel::limits::limit;

/// Where programs are looked for; the gateway's own PATH could name a folder of somebody else.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What a program may say on standard error.
const MOST_WORDS: u64 = 16 << 10;

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It cannot be started.
    #[error("starting {program}")]
    Start {
        /// Which.
        program: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It was killed when its time was up.
    #[error("{program} did not end within {limit:?} and was killed")]
    Late {
        /// Which.
        program: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// It printed more than it may.
    #[error("{program} printed more than {most} bytes and was killed")]
    TooMuch {
        /// Which.
        program: &'static str,
        /// The limit.
        most: u64,
    },
    /// It ended with a failure.
    #[error("{program} {}: {words}", ending(*code, *signal))]
    Failed {
        /// Which.
        program: &'static str,
        /// Exit code.
        code: Option<i32>,
        /// What killed it: a limit, or somebody.
        signal: Option<i32>,
        /// The last line that it said, made harmless.
        words: String,
    },
    /// Speaking to it failed.
    #[error("speaking to {program}")]
    Pipe {
        /// Which.
        program: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn ending(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (Some(code), _) => format!("failed with {code}"),
        // SIGXFSZ of setrlimit(2)
        (None, Some(libc::SIGXFSZ)) => {
            "was killed because what it received is larger than the limit".to_owned()
        }
        (None, Some(libc::SIGXCPU)) => {
            "was killed because it computed longer than the limit".to_owned()
        }
        (None, signal) => format!("was killed by signal {}", signal.unwrap_or_default()),
    }
}

/// What a program may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest file that it may write.
    pub file: u64,
    /// Address space.
    pub memory: u64,
    /// Time until it is killed; also the most that it may compute.
    pub time: Duration,
}

/// A program and what it is started with.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name, looked up in [`PATH`].
    pub name: &'static str,
    /// Its whole environment beside [`PATH`].
    pub environment: Vec<(OsString, OsString)>,
    /// What it may use.
    pub limits: Limits,
}

/// Kills the group unless it was told that everything ended.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    fn kill(&mut self) {
        if let Some(leader) = self.0.take() {
            // gone already: nothing to do
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A program that is spoken to.
#[derive(Debug)]
pub struct Running {
    child: Child,
    group: Group,
    /// Its standard input.
    pub stdin: Option<ChildStdin>,
    /// Its standard output.
    pub stdout: Option<ChildStdout>,
}

impl Running {
    /// Ends it now.
    pub async fn end(mut self) {
        self.group.kill();
        let _ = self.child.wait().await;
    }
}

impl Program {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.name);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", PATH)
            .env("LC_ALL", "C")
            .envs(self.environment.iter().map(|(k, v)| (k, v)))
            .current_dir("/")
            .process_group(0)
            .kill_on_drop(true)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn start(&self, arguments: &[&str]) -> Result<(Child, Group), ProgramError> {
        let fail = |source| ProgramError::Start {
            program: self.name,
            source,
        };
        let mut command = self.command(arguments);
        let limits = [
            (Resource::Fsize, self.limits.file),
            (Resource::As, self.limits.memory),
            (Resource::Cpu, self.limits.time.as_secs().max(1)),
            (Resource::Core, 0),
        ];
        limit(&mut command, limits);
        let child = command.spawn().map_err(fail)?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        Ok((child, Group(pid.and_then(Pid::from_raw))))
    }

    /// Starts a program that is then spoken to; nobody reads what it says on standard error.
    pub fn converse(&self, arguments: &[&str]) -> Result<Running, ProgramError> {
        let (mut child, group) = self.start(arguments)?;
        let gone = || ProgramError::Start {
            program: self.name,
            source: io::ErrorKind::BrokenPipe.into(),
        };
        drop(child.stderr.take());
        let stdin = Some(child.stdin.take().ok_or_else(gone)?);
        let stdout = Some(child.stdout.take().ok_or_else(gone)?);
        Ok(Running {
            child,
            group,
            stdin,
            stdout,
        })
    }

    /// Runs it to its end; what it printed, whatever its exit code.
    pub async fn run(
        &self,
        arguments: &[&str],
        input: &[u8],
        most: u64,
    ) -> Result<Printed, ProgramError> {
        let (mut child, mut group) = self.start(arguments)?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async move {
            if let Some(mut stdin) = stdin {
                // a program that ends before it has read all says why by its exit code
                let _ = stdin.write_all(input).await;
            }
        };
        let work = async {
            let ((), out, words) = tokio::join!(feed, read(stdout, most), read(stderr, MOST_WORDS));
            (out, words, child.wait().await)
        };
        let pipe = |source| ProgramError::Pipe {
            program: self.name,
            source,
        };
        let Ok((out, words, status)) = tokio::time::timeout(self.limits.time, work).await else {
            group.kill();
            let _ = child.wait().await;
            return Err(ProgramError::Late {
                program: self.name,
                limit: self.limits.time,
            });
        };
        group.kill();
        let (out, status) = (out.map_err(pipe)?, status.map_err(pipe)?);
        if out.len() as u64 > most {
            return Err(ProgramError::TooMuch {
                program: self.name,
                most,
            });
        }
        Ok(Printed {
            program: self.name,
            out,
            words: words.unwrap_or_default(),
            code: status.code(),
            signal: status.signal(),
        })
    }
}

/// Reads up to a limit and one byte more; the rest is dropped with the pipe.
async fn read(from: Option<impl AsyncRead + Unpin>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(most + 1).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// What a program printed.
#[derive(Debug)]
pub struct Printed {
    program: &'static str,
    /// Standard output.
    pub out: Vec<u8>,
    words: Vec<u8>,
    /// Exit code.
    pub code: Option<i32>,
    signal: Option<i32>,
}

impl Printed {
    /// Standard output if it succeeded.
    pub fn good(self) -> Result<Vec<u8>, ProgramError> {
        if self.code == Some(0) {
            return Ok(self.out);
        }
        Err(self.failed())
    }

    /// As a failure.
    pub fn failed(&self) -> ProgramError {
        ProgramError::Failed {
            program: self.program,
            code: self.code,
            signal: self.signal,
            words: last_line(&self.words),
        }
    }
}

/// The line that says most, without control characters and cut: a remote may have written it.
fn last_line(words: &[u8]) -> String {
    let text = String::from_utf8_lossy(words);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let telling = lines
        .iter()
        .rev()
        .find(|l| l.starts_with("fatal:") || l.starts_with("error:"));
    let line = telling
        .or(lines.last())
        .copied()
        .unwrap_or("it said nothing");
    line.chars()
        .flat_map(char::escape_debug)
        .take(300)
        .collect()
}

#[cfg(test)]
mod tests;
