//! Sandboxes as the runner sees them, whatever makes them.
//!
//! Owns the vocabulary (who runs, how isolated, with how much) and the [`Backend`] trait: hold a network namespace,
//! prepare a workload in it, start it, wait, end, remove. The engine backend ([`engine`]) is one implementation; a
//! backend that mounts and starts without an engine fits behind the same trait. Refuses to own networks (the gateway's)
//! and the order of things ([`crate::drive`]).
//!
//! Failure stance: removing something that is gone succeeds; everything else that did not happen is an error.

pub mod engine;
pub mod guest;
pub mod seccomp;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};

use gateway::control::api::Via;

use crate::job::{ImageName, Takes};
use crate::run::RunId;

/// Who a workload is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum User {
    /// uid 1000, no capabilities.
    Agent,
    /// uid 0 with an engine's usual capabilities, never `SYS_PTRACE`.
    Root,
}

/// How strongly a sandbox is kept apart, weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Namespaces, seccomp and no capabilities (runc or crun).
    Hardened,
    /// A kernel in user space (runsc).
    Gvisor,
}

impl std::fmt::Display for Isolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Hardened => "hardened",
            Self::Gvisor => "gvisor",
        })
    }
}

/// How much a workload gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Resources {
    /// MiB, without swap.
    pub memory_mib: u64,
    /// Thousandths of a CPU.
    pub cpu_millis: u64,
    /// Processes and threads.
    pub pids: u64,
}

/// What a sandbox's part is in its pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Keeps the namespaces.
    Holder,
    /// Runs the job.
    Workload,
}

impl Role {
    /// The label's value and the name's last part.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Holder => "holder",
            Self::Workload => "workload",
        }
    }
}

/// A holder to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HolderSpec {
    /// The run that its pod is for.
    pub run: RunId,
    /// One-use socket on which it sends its network namespace, or its door.
    pub socket: PathBuf,
    /// Which of the two.
    pub via: Via,
}

/// Files of the host that a workload sees read-only in place of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodFiles {
    /// Over /etc/resolv.conf.
    pub resolv_conf: PathBuf,
    /// Over /etc/hosts.
    pub hosts: PathBuf,
    /// Over /etc/hostname.
    pub hostname: PathBuf,
    /// An empty file, over what an engine would share writable.
    pub empty: PathBuf,
}

/// A workload to make in a holder's network namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadSpec {
    /// Its run.
    pub run: RunId,
    /// The sandbox whose namespace it joins.
    pub holder: SandboxId,
    /// Exactly which image, as the engine named it.
    pub image_id: String,
    /// Program and arguments, never empty.
    pub command: Vec<String>,
    /// Variables.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub workdir: String,
    /// Who it is.
    pub user: User,
    /// Isolation class.
    pub isolation: Isolation,
    /// How much it gets.
    pub resources: Resources,
    /// When its init ends everything by itself.
    pub deadline_seconds: u64,
    /// Name resolution files.
    pub files: PodFiles,
    /// What it reads.
    pub takes: Takes,
}

/// What the backend calls a sandbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SandboxId(pub String);

/// What is known about an image before anything runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageFacts {
    /// The recipe that it was made by, if it says so.
    pub stamp: Option<String>,
    /// Content-addressed identity.
    pub id: String,
    /// Entry point and default arguments.
    pub command: Vec<String>,
    /// Working directory, `/` if the image names none.
    pub workdir: String,
    /// Paths that the image wants volumes for.
    pub volumes: Vec<String>,
}

/// A prepared workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepared {
    /// Its identity.
    pub id: SandboxId,
    /// Limits that were asked for and that the engine says it does not hold, as people call them.
    pub unlimited: Vec<&'static str>,
}

/// A piece of output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Chunk {
    /// Standard output.
    Out(Bytes),
    /// Standard error.
    Err(Bytes),
}

/// Live output; reading slowly slows the workload down.
pub type Output = BoxStream<'static, Result<Chunk, SandboxError>>;

/// What a workload reads. Shutting it down is the end of its input; dropping it may end the output as well.
pub type Input = std::pin::Pin<Box<dyn tokio::io::AsyncWrite + Send>>;

/// The streams of a started workload.
pub struct Streams {
    /// What it prints, from the first byte.
    pub output: Output,
    /// What it reads, if it reads anything.
    pub input: Option<Input>,
}

/// How a workload ended, as the backend saw it. Nothing the workload prints can change it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exit {
    /// Exit code, 128 plus signal.
    pub code: i64,
    /// Whether its memory limit killed something.
    pub out_of_memory: bool,
}

/// Something of this instance that exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owned {
    /// Identity.
    pub id: SandboxId,
    /// The run in its labels.
    pub run: RunId,
}

/// What a backend is and can do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// For people, with version.
    pub name: String,
    /// Isolation classes that it has, weakest first.
    pub isolation: Vec<Isolation>,
    /// What an operator should know, each with its cure.
    pub warnings: Vec<String>,
}

/// Why a backend did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// No engine answers.
    #[error("no container engine answers at {tried}")]
    NoEngine {
        /// Sockets that were tried.
        tried: String,
    },
    /// The engine is not on this kernel.
    #[error("{0}")]
    Elsewhere(engine::elsewhere::Elsewhere),
    /// Docker without root.
    #[error(
        "Docker in rootless mode keeps its containers in a user namespace that the gateway cannot be in"
    )]
    RootlessDocker,
    /// The engine refused or failed.
    #[error("{act}: {source}")]
    Engine {
        /// What was being done.
        act: &'static str,
        /// The engine's answer.
        #[source]
        source: Box<bollard::errors::Error>,
    },
    /// The engine did not answer.
    #[error("{act}: no answer within {limit:?}")]
    Late {
        /// What was being done.
        act: &'static str,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The image is not there.
    #[error("the engine has no image {0}")]
    NoSuchImage(ImageName),
    /// The image cannot be run safely.
    #[error("image {image}: {why}")]
    ImageRefused {
        /// Which.
        image: ImageName,
        /// Why.
        why: String,
    },
    /// The isolation class is not there.
    #[error("isolation class {0} is required and this engine does not have it")]
    NoSuchIsolation(Isolation),
    /// What was made is not what was asked for.
    #[error("the engine made something else than was asked for: {0}")]
    Differs(String),
    /// A file on the host.
    #[error("{act}: {source}")]
    Host {
        /// What was being done.
        act: &'static str,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

impl SandboxError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoEngine { .. } if gateway::ordinary::is_ordinary() => {
                "start this user's Podman (`systemctl --user start podman.socket`, or `podman system service --time 0 &`), \
                 or name the engine's socket in `runner.engine`"
                    .to_owned()
            }
            Self::NoEngine { .. } => {
                "start Docker or Podman, or name the engine's socket in `runner.engine`".to_owned()
            }
            Self::Elsewhere(elsewhere) => elsewhere.hint().to_owned(),
            Self::RootlessDocker => {
                "use rootless Podman (`systemctl --user start podman.socket`), or Docker as root".to_owned()
            }
            Self::NoSuchImage(name) => {
                format!(
                    "pull or build it with the engine first (`docker pull {name}`); runs never pull by themselves"
                )
            }
            Self::NoSuchIsolation(Isolation::Gvisor) => {
                "install runsc and register it with the engine as a runtime called `runsc`"
                    .to_owned()
            }
            Self::NoSuchIsolation(Isolation::Hardened) => {
                "the engine needs runc or crun".to_owned()
            }
            Self::Engine { .. }
            | Self::Late { .. }
            | Self::ImageRefused { .. }
            | Self::Differs(_)
            | Self::Host { .. } => {
                return None;
            }
        })
    }
}

/// The result of asking a backend.
pub type Asked<'a, T> = BoxFuture<'a, Result<T, SandboxError>>;

/// Makes and ends sandboxes.
pub trait Backend: Send + Sync + 'static {
    /// What it was and could do when it was opened.
    fn facts(&self) -> &Facts;

    /// What it is and can do now.
    fn look_again(&self) -> Asked<'_, Facts> {
        Box::pin(async { Ok(self.facts().clone()) })
    }

    /// Waits until what serves this backend has gone, to come back as itself or as something else.
    fn until_gone(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Looks an image up and refuses one that cannot be run safely.
    fn image<'a>(&'a self, name: &'a ImageName) -> Asked<'a, ImageFacts>;

    /// Makes and starts a holder without any network but `lo`.
    fn hold<'a>(&'a self, spec: &'a HolderSpec) -> Asked<'a, SandboxId>;

    /// Makes a workload and checks that it is in the holder's network namespace and in no other; starts nothing.
    fn prepare<'a>(&'a self, spec: &'a WorkloadSpec) -> Asked<'a, Prepared>;

    /// Starts a prepared workload and returns its streams; `takes` as it was prepared.
    fn start<'a>(&'a self, id: &'a SandboxId, takes: Takes) -> Asked<'a, Streams>;

    /// Waits for a started workload's end.
    fn wait<'a>(&'a self, id: &'a SandboxId) -> Asked<'a, Exit>;

    /// Asks a workload to end (SIGTERM).
    fn ask_to_end<'a>(&'a self, id: &'a SandboxId) -> Asked<'a, ()>;

    /// Ends a sandbox now (SIGKILL).
    fn kill<'a>(&'a self, id: &'a SandboxId) -> Asked<'a, ()>;

    /// Removes a sandbox, running or not, with its anonymous volumes.
    fn remove<'a>(&'a self, id: &'a SandboxId) -> Asked<'a, ()>;

    /// Every sandbox of this instance, in any state.
    fn owned(&self) -> Asked<'_, Vec<Owned>>;

    /// Makes an image called `name` of a file system archive, with `agent` as its user and the stamp of its recipe.
    fn import<'a>(
        &'a self,
        name: &'a ImageName,
        file_system: &'a std::path::Path,
        stamp: Option<&'a str>,
    ) -> Asked<'a, ()>;
}
