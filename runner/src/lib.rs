//! The runner: turns a job into a sandbox on a gateway network and brings back what it did.
//!
//! The journey of a run: the [`api`] takes a request, [`job`] checks it, [`drive`] takes a [`pod`] from the [`pool`] (a
//! holder whose network the gateway has wired), gives it the job's policy, makes the workload in it ([`sandbox`]), passes
//! its [`output`] on until it ends, and undoes everything; [`summary`] says what the network saw. [`pull`] takes jobs from a
//! console instead, and tells it everything ([`protocol`]). [`burial`] removes what an engine takes its time for, the
//! [`reaper`] what a crash left. [`broker`] answers what a sandbox asks.
//!
//! Holds the engine's socket and no network power; refuses to own policies and decisions (the gateway's), people and
//! schedules (the console's). Failure stance: a run that cannot be had exactly as asked is refused.

pub mod api;
pub mod broker;
pub mod burial;
pub mod config;
pub mod drive;
mod fingerprint;
pub mod image;
pub mod job;
mod mask;
pub mod output;
pub mod packages;
pub mod pod;
pub mod pool;
pub mod protocol;
pub mod pull;
pub mod reaper;
pub mod records;
pub mod run;
pub mod runs;
pub mod sandbox;
pub mod sealed;
pub mod selftest;
pub mod summary;

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gateway::tasks::Tasks;
use nix::fcntl::{Flock, FlockArg};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

pub use api::client::{Client, RunnerError, Stream};
pub use config::RunnerConfig;
pub use job::{IsolationChoice, JobRequest, Takes};
pub use run::{EndReason, Event, Failure, RunId};
pub use sandbox::engine::elsewhere::{Elsewhere, elsewhere};

use crate::image::Images;
use crate::packages::Packages;
use crate::pod::Pods;
use crate::pool::Pool;
use crate::pull::line::Address;
use crate::records::Records;
use crate::runs::Runs;
use crate::sandbox::SandboxError;
use crate::sandbox::engine::Engine;

/// A stopping runner waits this long for its runs to be cleaned up; what is left then is the next start's to reap.
const LONGEST_STOP: Duration = Duration::from_mins(1);

/// Of them, for telling the console how its runs ended.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Why the runner does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error("the runner's configuration has mistakes: {}", .0.join("; "))]
    Config(Vec<String>),
    /// A folder or socket.
    #[error("{act} {path}: {source}")]
    Host {
        /// What was being done.
        act: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Another runner uses the same state.
    #[error("another runner uses {0}")]
    InUse(PathBuf),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] SandboxError),
}

impl StartError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Engine(error) => error.hint(),
            Self::InUse(_) => {
                Some("stop it, or give this one a `runner.state_dir` of its own".to_owned())
            }
            Self::Config(_) | Self::Host { .. } => None,
        }
    }
}

/// What every part of one runner shares.
pub struct Runner {
    /// As configured.
    pub config: RunnerConfig,
    /// Makes and releases pods.
    pub pods: Pods,
    /// Pods that are ready.
    pub pool: Pool,
    /// Live and ended runs.
    pub runs: Runs,
    /// Tallies of live networks.
    pub records: Arc<Records>,
    /// Builds the sandbox image.
    pub images: Images,
    /// What images said about their package managers.
    pub packages: Packages,
    /// Told when something is nobody's any more.
    pub ownerless: Notify,
    /// Held while containers are tried.
    pub probing: tokio::sync::Mutex<()>,
    /// Spawner.
    pub tasks: Tasks,
    stopping: CancellationToken,
}

impl Runner {
    /// Whether new runs are refused because the runner stops.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Runs whose network must exist at the gateway.
    pub fn wired_runs(&self) -> Vec<RunId> {
        let mut wired = self.pool.runs();
        wired.extend(self.runs.running_ids());
        wired
    }
}

/// Runs the runner until `shutdown` fires: every folder, socket and connection first, then the reaper, then the rest.
pub async fn run(config: RunnerConfig, shutdown: CancellationToken) -> Result<(), StartError> {
    let mistakes = config.mistakes();
    if !mistakes.is_empty() {
        return Err(StartError::Config(mistakes));
    }
    for folder in [&config.state_dir, &config.run_dir] {
        make_private(folder).map_err(host("making", folder))?;
    }
    let _lock = lock(&config.state_dir)?;
    let instance = instance(&config.state_dir).map_err(host("reading", &config.state_dir))?;
    let backend = Arc::new(Engine::open(&config.engine, &instance, &config.state_dir).await?);
    let broker_socket = config.run_dir.join("broker.sock");
    let broker = broker::listen(&broker_socket).map_err(host("listening at", &broker_socket))?;
    let records = Arc::new(Records::default());
    let gateway = gateway::control::Client::new(&config.control);
    let pods = Pods {
        backend,
        gateway: gateway.clone(),
        records: records.clone(),
        instance,
        folder: config.run_dir.join("pods"),
        broker: broker_socket.clone(),
    };
    let tasks = Tasks::default();
    let runner = Arc::new(Runner {
        pool: Pool::new(config.pool),
        runs: Runs::new(config.max_runs),
        images: Images::new(config.state_dir.join("image")),
        packages: Packages::default(),
        pods,
        records: records.clone(),
        ownerless: Notify::new(),
        probing: tokio::sync::Mutex::default(),
        tasks: tasks.clone(),
        stopping: shutdown.clone(),
        config,
    });
    reaper::first_round(&runner).await;
    let following = gateway.clone();
    tasks.spawn("records", async move { records.follow(&following).await });
    tasks.spawn("broker", broker::serve(broker, gateway, tasks.clone()));
    let before = fingerprint::at_start(&runner).await;
    let api = api::bind_private(&runner.config.socket)
        .map_err(host("listening at", &runner.config.socket))?;
    let address = runner.config.console.as_deref().and_then(Address::parse);
    let trust = match &address {
        Some(address) if address.is_secure() => {
            let file = pull::trust::file(&runner.config);
            let trust = pull::trust::client(&file);
            Some(trust.map_err(host("reading certificate authorities from", &file))?)
        }
        _ => None,
    };
    tasks.spawn("api", api::serve(api, runner.clone()));
    let reaping = runner.clone();
    tasks.spawn("reaper", async move { reaper::reap(&reaping).await });
    let watching = runner.clone();
    tasks.spawn("engine watch", async move {
        fingerprint::watch(&watching, before).await;
    });
    let filling = runner.clone();
    // Stops by itself at the wish to stop, so that no pod is dropped half made.
    tasks.spawn("pool", async move {
        filling
            .pool
            .fill(&filling.pods, &filling.runs, &filling.stopping)
            .await;
    });
    let (live, pulled) = watch::channel(0);
    if let Some(address) = address {
        tasks.spawn("console", pull::pull(runner.clone(), address, trust, live));
    }
    tracing::info!(engine = runner.pods.backend.facts().name, socket = %runner.config.socket.display(), "the runner is ready");
    shutdown.cancelled().await;
    stop(&runner, pulled, &broker_socket).await;
    Ok(())
}

async fn stop(runner: &Runner, mut pulled: watch::Receiver<usize>, broker_socket: &Path) {
    let wind_down = async {
        runner.runs.end_all(EndReason::RunnerStopped).await;
        // a console that is away learns by its lease what it was not told
        let told = pulled.wait_for(|live| *live == 0);
        let _ = tokio::time::timeout(LAST_WORDS, told).await;
        for pod in runner.pool.close().await {
            let leftovers = runner.pods.discard(pod).await;
            if !leftovers.is_empty() {
                tracing::warn!(?leftovers, "releasing a pooled pod");
            }
        }
    };
    if tokio::time::timeout(LONGEST_STOP, wind_down).await.is_err() {
        tracing::warn!(
            "stopping before everything was cleaned up; the next start removes the rest"
        );
    }
    runner.tasks.shut_down().await;
    for socket in [runner.config.socket.as_path(), broker_socket] {
        if let Err(error) = std::fs::remove_file(socket) {
            tracing::debug!(%error, socket = %socket.display(), "removing a socket");
        }
    }
}

fn host(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StartError {
    let path = path.to_owned();
    move |source| StartError::Host { act, path, source }
}

/// The engine is root and reads everything; nobody else has business here.
fn make_private(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

/// Two runners with one identity would reap each other's runs.
fn lock(state_dir: &Path) -> Result<Flock<std::fs::File>, StartError> {
    let path = state_dir.join("lock");
    let options = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let file = options.map_err(host("opening", &path))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|_| StartError::InUse(state_dir.to_owned()))
}

/// This installation's identity: made once, so that a restarted runner finds what it left.
fn instance(state_dir: &Path) -> io::Result<String> {
    let path = state_dir.join("instance");
    match std::fs::read_to_string(&path) {
        Ok(text) if text.parse::<RunId>().is_ok() => Ok(text),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file `instance` is damaged",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let fresh = RunId::allot().to_string();
            std::fs::write(&path, &fresh)?;
            Ok(fresh)
        }
        Err(error) => Err(error),
    }
}
