//! What a caller asks to run, and its checked form.
//!
//! Owns the wire type [`JobRequest`], the grammar of each of its fields and the ceilings. Every mistake is reported at
//! once, before any engine call: what reaches the engine's API is a value, never an option, a path of the host or a
//! text that a shell reads. Refuses to own the policy's meaning (the gateway checks it) and whether the image exists.

mod image;

use std::fmt;

use gateway::control::PolicySource;
use gateway::control::api::default_workspace;
use serde::{Deserialize, Serialize};

pub use image::{ImageName, ImageNameError};

use crate::config::Limits;
use crate::sandbox::{Isolation, Resources, User};

/// The kernel's limit for one argument or variable (`MAX_ARG_STRLEN`, execve(2)).
const LONGEST_ARGUMENT: usize = 128 * 1024;
/// All arguments and variables together; a quarter of the default stack, which is what the kernel grants.
const LONGEST_COMMAND: usize = 2 * 1024 * 1024;
const LONGEST_PATH: usize = 4095;
/// Variables that are the sandbox's own.
const RESERVED_PREFIX: &str = "SALLYPORT_";

/// A run as it is asked for. What is absent takes the runner's default.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// The policy: a preset or a document.
    pub policy: PolicySource,
    /// Program and arguments; empty runs what the image itself would.
    #[serde(default)]
    pub command: Vec<String>,
    /// Image; the runner's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Isolation class; the runner's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<IsolationChoice>,
    /// Run as root instead of `agent`.
    #[serde(default)]
    pub root: bool,
    /// Seconds until the run is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Memory in MiB, without swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Thousandths of a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u64>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Variables, in order; later ones win.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Working directory; the image's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Chooses the workspace floor.
    #[serde(default = "default_workspace")]
    pub workspace: String,
    /// What the caller sends to the run once it is accepted.
    #[serde(default, skip_serializing_if = "Takes::is_nothing")]
    pub takes: Takes,
}

impl JobRequest {
    /// A command under a policy, everything else by default.
    pub fn new(policy: PolicySource, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            policy,
            command: command.into_iter().map(Into::into).collect(),
            image: None,
            isolation: None,
            root: false,
            timeout_seconds: None,
            memory_mib: None,
            cpu_millis: None,
            pids: None,
            env: Vec::new(),
            workdir: None,
            workspace: default_workspace(),
            takes: Takes::default(),
        }
    }
}

/// What a run takes in: one stream, with files first (as `images/guest/src/parcel.rs` has them), then what the command
/// reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Takes {
    /// Files that are there before the command starts.
    pub files: bool,
    /// Standard input of the command, which reads nothing without it.
    pub stdin: bool,
}

impl Takes {
    /// Whether it takes nothing at all.
    pub const fn is_nothing(&self) -> bool {
        !self.files && !self.stdin
    }
}

/// Which isolation class is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IsolationChoice {
    /// The strongest that the host has.
    #[default]
    Auto,
    /// runc or crun with everything taken away.
    Hardened,
    /// gVisor.
    Gvisor,
}

impl IsolationChoice {
    /// The class that must be had, if one is asked for by name.
    pub const fn required(self) -> Option<Isolation> {
        match self {
            Self::Auto => None,
            Self::Hardened => Some(Isolation::Hardened),
            Self::Gvisor => Some(Isolation::Gvisor),
        }
    }
}

/// A job that passed every check.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// See [`JobRequest`].
    pub policy: PolicySource,
    /// See [`JobRequest`].
    pub command: Vec<String>,
    /// See [`JobRequest`].
    pub image: ImageName,
    /// See [`JobRequest`].
    pub isolation: IsolationChoice,
    /// See [`JobRequest`].
    pub user: User,
    /// Seconds until the run is ended.
    pub timeout_seconds: u64,
    /// CPU, memory, processes.
    pub resources: Resources,
    /// See [`JobRequest`].
    pub env: Vec<(String, String)>,
    /// See [`JobRequest`].
    pub workdir: Option<String>,
    /// See [`JobRequest`].
    pub workspace: String,
    /// See [`JobRequest`].
    pub takes: Takes,
}

/// Everything that is wrong with a request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub struct JobMistakes(pub Vec<String>);

impl fmt::Display for JobMistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl Job {
    /// Checks a request against the grammar and the runner's ceilings.
    pub fn check(request: JobRequest, limits: &Limits) -> Result<Self, JobMistakes> {
        let mut mistakes = Vec::new();
        let image = request
            .image
            .clone()
            .unwrap_or_else(|| limits.image.clone());
        let image = image
            .parse::<ImageName>()
            .map_err(|e| mistakes.push(format!("image {image:?}: {e}")))
            .ok();
        check_command(&request.command, &mut mistakes);
        check_environment(&request.env, &mut mistakes);
        if let Some(workdir) = &request.workdir
            && let Err(why) = check_workdir(workdir)
        {
            mistakes.push(format!("workdir {workdir:?}: {why}"));
        }
        check_total(&request, &mut mistakes);
        if !is_word(&request.workspace) {
            mistakes.push("workspace: 1 to 40 characters of a-z, 0-9 and '-'".to_owned());
        }
        let mut limit = |what: Limit, value: Option<u64>, default: u64, most: u64| {
            let value = value.unwrap_or(default.min(most));
            if value < what.least || value > most {
                let [value, least, most] = [value, what.least, most].map(what.write);
                let name = what.name;
                mistakes.push(format!("{name}: {value} is not between {least} and {most}"));
            }
            value
        };
        let timeout_seconds = limit(
            TIMEOUT,
            request.timeout_seconds,
            limits.timeout_seconds,
            limits.max_timeout_seconds,
        );
        let resources = Resources {
            memory_mib: limit(
                MEMORY,
                request.memory_mib,
                limits.memory_mib,
                limits.max_memory_mib,
            ),
            cpu_millis: limit(
                CPUS,
                request.cpu_millis,
                limits.cpu_millis,
                limits.max_cpu_millis,
            ),
            pids: limit(PIDS, request.pids, limits.pids, limits.max_pids),
        };
        match image {
            Some(image) if mistakes.is_empty() => Ok(Self {
                policy: request.policy,
                command: request.command,
                image,
                isolation: request.isolation.unwrap_or(limits.isolation),
                user: if request.root {
                    User::Root
                } else {
                    User::Agent
                },
                timeout_seconds,
                resources,
                env: request.env,
                workdir: request.workdir,
                workspace: request.workspace,
                takes: request.takes,
            }),
            _ => Err(JobMistakes(mistakes)),
        }
    }
}

/// A limit of a run, as people write it.
struct Limit {
    name: &'static str,
    least: u64,
    write: fn(u64) -> String,
}

const TIMEOUT: Limit = Limit {
    name: "timeout",
    least: 1,
    write: |seconds| match seconds {
        s if s > 0 && s % 3600 == 0 => format!("{}h", s / 3600),
        s if s > 0 && s % 60 == 0 => format!("{}m", s / 60),
        s => format!("{s}s"),
    },
};

const MEMORY: Limit = Limit {
    name: "memory",
    // Engines refuse less than 6 MiB.
    least: 6,
    write: |mebibytes| match mebibytes {
        m if m > 0 && m % 1024 == 0 => format!("{}g", m / 1024),
        m => format!("{m}m"),
    },
};

const CPUS: Limit = Limit {
    name: "cpus",
    least: 10,
    write: |thousandths| {
        let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    },
};

const PIDS: Limit = Limit {
    name: "pids",
    // Init, the command and a child of it.
    least: 4,
    write: |count| count.to_string(),
};

fn is_word(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn check_command(command: &[String], mistakes: &mut Vec<String>) {
    if command.first().is_some_and(String::is_empty) {
        mistakes.push("command: the program's name is empty".to_owned());
    }
    for (index, argument) in command.iter().enumerate() {
        if argument.contains('\0') {
            mistakes.push(format!("command: argument {index} contains a NUL byte"));
        }
        if argument.len() >= LONGEST_ARGUMENT {
            mistakes.push(format!(
                "command: argument {index} has {} bytes, the kernel takes {LONGEST_ARGUMENT}",
                argument.len()
            ));
        }
    }
}

fn check_environment(env: &[(String, String)], mistakes: &mut Vec<String>) {
    for (key, value) in env {
        let head = key
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        let rest = key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !(head && rest) || key.len() > 256 {
            mistakes.push(format!(
                "env {key:?}: a name has letters, digits and '_' and does not start with a digit"
            ));
        } else if key.starts_with(RESERVED_PREFIX) {
            mistakes.push(format!(
                "env {key}: names that start with {RESERVED_PREFIX} are reserved"
            ));
        }
        if value
            .bytes()
            .any(|b| b.is_ascii_control() && b != b'\n' && b != b'\t' && b != b'\r')
        {
            mistakes.push(format!(
                "env {key:?}: the value contains control characters"
            ));
        }
        if key.len() + value.len() + 2 > LONGEST_ARGUMENT {
            mistakes.push(format!(
                "env {key:?}: longer than the {LONGEST_ARGUMENT} bytes that the kernel takes"
            ));
        }
    }
}

fn check_total(request: &JobRequest, mistakes: &mut Vec<String>) {
    let command: usize = request.command.iter().map(|a| a.len() + 1).sum();
    let env: usize = request.env.iter().map(|(k, v)| k.len() + v.len() + 2).sum();
    if command + env > LONGEST_COMMAND {
        mistakes.push(format!(
            "command and env have {} bytes together, the kernel takes {LONGEST_COMMAND}",
            command + env
        ));
    }
}

/// Whether a path may be a working directory: absolute, plain, and outside of what the kernel mounts (a working
/// directory below /proc/self/fd has led out of containers: CVE-2024-21626). Images are held to the same rule.
pub fn check_workdir(path: &str) -> Result<(), &'static str> {
    if !path.starts_with('/') {
        return Err("not an absolute path");
    }
    if path.len() > LONGEST_PATH {
        return Err("too long");
    }
    if path.chars().any(char::is_control) {
        return Err("contains control characters");
    }
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let first = parts.clone().next().unwrap_or_default();
    if parts.any(|part| part == ".." || part == ".") {
        return Err("contains '.' or '..'");
    }
    match first {
        "proc" | "sys" | "dev" => Err("lies in a file system of the kernel"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
