//! A gateway and a runner for a run: those that answer, else children that end with the last run that uses them.
//!
//! Runs that share started roles hold a shared lock on `users`; whoever can take it alone afterwards is the last and
//! stops them. Starting and stopping happen under a second lock, so two runs never do either at once. A process is
//! signalled only while its start time is the one that was noted: a number alone may be somebody else's by then. Where
//! `sallyport up` starts or stops them ([`Upkeep`]) a run waits until it has: two pairs would be in each other's way.

mod process;

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;

use crate::config::Config;
use crate::exit::Failure;
use crate::show;

use process::{Noted, Traces, start_time};

/// A role that starts answers within a second; a loaded machine gets time.
const LONGEST_START: Duration = Duration::from_mins(1);
/// The runner's own limit for cleaning up, and a little more.
const LONGEST_STOP: Duration = Duration::from_secs(75);
/// Whose lock says that `sallyport up` is at work.
const UPKEEP: &str = "upkeep";
const STEP: Duration = Duration::from_millis(20);
/// Lines of a role's log that a failed start shows.
const TAIL: usize = 8;

/// The right to use gateway and runner; give it back with [`Services::release`].
pub struct Services {
    folder: PathBuf,
    /// The started gateway's namespace and the state of its networks.
    traces: Traces,
    users: Option<Flock<File>>,
    children: Vec<Child>,
}

impl Services {
    /// Finds both, or starts what does not answer and waits until it does.
    pub async fn ready(config: &Config, file: Option<&Path>, quiet: bool) -> Result<Self, Failure> {
        let traces = Traces {
            gateway: config.gateway.clone(),
            file: file.map(Path::to_owned),
        };
        if gateway_answers(config).await && runner_answers(config).await {
            // also when an earlier run started them: the lock keeps them for this one
            let folder = folder(config);
            if !folder.join("children.json").exists() {
                return Ok(Self {
                    folder,
                    traces: traces.clone(),
                    users: None,
                    children: Vec::new(),
                });
            }
        }
        refuse_closed(config)?;
        let folder = made_folder(config)?;
        if settled(config, &folder).await? {
            return Ok(Self {
                folder,
                traces,
                users: None,
                children: Vec::new(),
            });
        }
        let starting = lock(
            &folder.join("starting"),
            FlockArg::LockExclusiveNonblock,
            LONGEST_START,
        )
        .await?;
        let users = lock(
            &folder.join("users"),
            FlockArg::LockSharedNonblock,
            LONGEST_START,
        )
        .await?;
        let mut services = Self {
            folder,
            traces: traces.clone(),
            users: Some(users),
            children: Vec::new(),
        };
        let started = services.start_missing(config, file, quiet).await;
        drop(starting);
        match started {
            Ok(()) => Ok(services),
            Err(failure) => {
                services.release().await;
                Err(failure)
            }
        }
    }

    async fn start_missing(
        &mut self,
        config: &Config,
        file: Option<&Path>,
        quiet: bool,
    ) -> Result<(), Failure> {
        if !gateway_answers(config).await {
            say(quiet, "starting a gateway");
            let index = self.start("gateway", file)?;
            self.wait_for("gateway", index, async || gateway_open(config).await)
                .await?;
        }
        if !runner_answers(config).await {
            say(quiet, "starting a runner");
            let index = self.start("runner", file)?;
            self.wait_for("runner", index, async || {
                runner_answers(config).await.then_some(()).ok_or(None)
            })
            .await?;
        }
        Ok(())
    }

    fn start(&mut self, role: &str, file: Option<&Path>) -> Result<usize, Failure> {
        let failed = |e: std::io::Error| Failure::new(format!("starting a {role}: {e}"));
        let log = File::create(self.log(role)).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .arg(role)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        // a group of its own: Ctrl-C at the terminal cancels the run and must not stop what other runs use
        command.process_group(0);
        if let Some(file) = file {
            command.arg("--config").arg(file);
        }
        let child = command.spawn().map_err(failed)?;
        let pid = i32::try_from(child.id()).unwrap_or_default();
        let mut noted = self.noted();
        noted.push(Noted {
            role: role.to_owned(),
            pid,
            started: start_time(pid).unwrap_or_default(),
        });
        self.note(&noted).map_err(failed)?;
        self.children.push(child);
        Ok(self.children.len() - 1)
    }

    async fn wait_for(
        &mut self,
        role: &str,
        index: usize,
        ready: impl AsyncFn() -> Result<(), Option<String>>,
    ) -> Result<(), Failure> {
        let end = Instant::now() + LONGEST_START;
        loop {
            let cause = match ready().await {
                Ok(()) => return Ok(()),
                Err(cause) => cause,
            };
            let ended = self
                .children
                .get_mut(index)
                .and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(self.told(role, format!("the {role} ended at once ({status})")));
            }
            if Instant::now() > end {
                let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
                return Err(self.told(
                    role,
                    format!("the {role} is not ready after {LONGEST_START:?}{cause}"),
                ));
            }
            tokio::time::sleep(STEP).await;
        }
    }

    /// A failure with the end of the role's log.
    fn told(&self, role: &str, message: String) -> Failure {
        let log = std::fs::read_to_string(self.log(role)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines
            .iter()
            .rev()
            .take(TAIL)
            .rev()
            .map(|line| (*line).to_owned())
            .collect();
        Failure {
            details: tail,
            ..Failure::new(message).hint("`sallyport doctor` looks for the cause")
        }
    }

    fn log(&self, role: &str) -> PathBuf {
        self.folder.join(format!("{role}.log"))
    }

    fn noted(&self) -> Vec<Noted> {
        let text = std::fs::read(self.folder.join("children.json")).unwrap_or_default();
        let all: Vec<Noted> = serde_json::from_slice(&text).unwrap_or_default();
        all.into_iter().filter(Noted::lives).collect()
    }

    fn note(&self, noted: &[Noted]) -> std::io::Result<()> {
        let path = self.folder.join("children.json");
        if noted.is_empty() {
            return match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        std::fs::write(path, serde_json::to_vec(noted)?)
    }

    /// Gives the right back; stops what was started if nobody else uses it. Problems are told, the run's outcome stays.
    pub async fn release(mut self) {
        let Some(users) = self.users.take() else {
            return;
        };
        let Ok(_stopping) = lock(
            &self.folder.join("starting"),
            FlockArg::LockExclusiveNonblock,
            LONGEST_STOP,
        )
        .await
        else {
            return;
        };
        drop(users);
        let Ok(alone) = lock(
            &self.folder.join("users"),
            FlockArg::LockExclusiveNonblock,
            Duration::ZERO,
        )
        .await
        else {
            return;
        };
        // the runner first: its runs and holders leave through the gateway
        let noted = self.noted();
        for role in ["runner", "gateway"] {
            for noted in noted.iter().filter(|n| n.role == role) {
                self.stop(noted).await;
            }
        }
        if noted.iter().any(|n| n.role == "gateway") {
            self.traces.remove();
        }
        if let Err(error) = self.note(&self.noted()) {
            show::note(format_args!("sallyport: noting what still runs: {error}"));
        }
        drop(alone);
    }

    async fn stop(&mut self, noted: &Noted) {
        noted.signal(Signal::SIGTERM);
        let end = Instant::now() + LONGEST_STOP;
        while noted.lives() {
            for child in &mut self.children {
                // an own child stays in the process table until it is waited for
                let _ = child.try_wait();
            }
            if Instant::now() > end {
                show::note(format_args!(
                    "sallyport: the {} does not stop and is killed",
                    noted.role
                ));
                noted.signal(Signal::SIGKILL);
                return;
            }
            tokio::time::sleep(STEP).await;
        }
    }
}

/// Held by `sallyport up`: it starts both roles, and stops them.
#[derive(Debug)]
pub struct Upkeep(
    #[expect(dead_code, reason = "a lock lives as long as what holds it")] Flock<File>,
);

impl Upkeep {
    /// Says that both roles are this process's.
    pub async fn claim(config: &Config) -> Result<Self, Failure> {
        let path = made_folder(config)?.join(UPKEEP);
        let lock = lock(&path, FlockArg::LockSharedNonblock, Duration::ZERO);
        Ok(Self(lock.await?))
    }
}

/// Whoever may not open a runner's socket cannot start one in its place.
fn refuse_closed(config: &Config) -> Result<(), Failure> {
    let socket = &config.runner.socket;
    match std::os::unix::net::UnixStream::connect(socket) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let told = format!("the runner at {} is not this user's", socket.display());
            Err(Failure::new(told).hint(
                "only its own user and root start runs there; name a configuration of your own with --config",
            ))
        }
        _ => Ok(()),
    }
}

/// Waits for whoever starts or stops both roles. True if both answer then and are theirs; false if they are to be
/// started.
async fn settled(config: &Config, folder: &Path) -> Result<bool, Failure> {
    let end = Instant::now() + LONGEST_STOP;
    let path = folder.join(UPKEEP);
    let mut kept = false;
    loop {
        let upkeep = lock(&path, FlockArg::LockExclusiveNonblock, Duration::ZERO);
        let free = upkeep.await.is_ok();
        kept |= !free;
        if kept && gateway_answers(config).await && runner_answers(config).await {
            return Ok(true);
        }
        if free && !runner_stops(config).await {
            return Ok(false);
        }
        if Instant::now() > end {
            let told = "gateway and runner neither answer nor stop";
            return Err(Failure::new(told).hint("`sallyport doctor` names the cause"));
        }
        tokio::time::sleep(STEP).await;
    }
}

fn made_folder(config: &Config) -> Result<PathBuf, Failure> {
    let folder = folder(config);
    std::fs::create_dir_all(&folder).map_err(|e| {
        Failure::new(format!("making {}: {e}", folder.display()))
            .hint("start a gateway and a runner, or run this as root")
    })?;
    Ok(folder)
}

fn say(quiet: bool, what: &str) {
    if !quiet {
        show::note(format_args!("sallyport: {what}"));
    }
}

/// Beside the gateway's own files: one configuration, one pair of roles.
fn folder(config: &Config) -> PathBuf {
    config.gateway.run_dir.join("on-demand")
}

async fn gateway_answers(config: &Config) -> bool {
    gateway::control::Client::new(&config.gateway.control)
        .health()
        .await
        .is_ok()
}

/// Whether a gateway that was just started is ready to attach; sealed ones say why they are not.
async fn gateway_open(config: &Config) -> Result<(), Option<String>> {
    let client = gateway::control::Client::new(&config.gateway.control);
    match client.health().await {
        Ok(health) if health.open => Ok(()),
        Ok(_) => Err(client
            .posture()
            .await
            .ok()
            .and_then(|posture| posture.cause)),
        Err(_) => Err(None),
    }
}

/// Whether a runner answers and takes runs.
async fn runner_answers(config: &Config) -> bool {
    let health = runner::Client::new(&config.runner.socket).health().await;
    health.is_ok_and(|health| !health.stopping)
}

async fn runner_stops(config: &Config) -> bool {
    let health = runner::Client::new(&config.runner.socket).health().await;
    health.is_ok_and(|health| health.stopping)
}

async fn lock(path: &Path, how: FlockArg, patience: Duration) -> Result<Flock<File>, Failure> {
    let failed = |e: std::io::Error| Failure::new(format!("locking {}: {e}", path.display()));
    let end = Instant::now() + patience;
    loop {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(failed)?;
        match Flock::lock(file, how) {
            Ok(lock) => return Ok(lock),
            Err((_, Errno::EWOULDBLOCK | Errno::EINTR)) if Instant::now() < end => {
                tokio::time::sleep(STEP).await;
            }
            Err((_, error)) => return Err(failed(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_user_stops_what_was_started_and_an_earlier_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().to_owned();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let noted = Noted {
            role: "gateway".to_owned(),
            pid,
            started: start_time(pid).unwrap(),
        };
        crate::cli::wait(async {
            // its namespace is not there, so nothing of the machine is touched
            let gateway = gateway::config::GatewayConfig {
                namespace: format!("spx-none-{}", std::process::id()),
                run_dir: folder.clone(),
                ..gateway::config::GatewayConfig::default()
            };
            let user = async || Services {
                folder: folder.clone(),
                traces: Traces {
                    gateway: gateway.clone(),
                    file: None,
                },
                users: Some(
                    lock(
                        &folder.join("users"),
                        FlockArg::LockSharedNonblock,
                        Duration::ZERO,
                    )
                    .await
                    .unwrap(),
                ),
                children: Vec::new(),
            };
            let (first, last) = (user().await, user().await);
            first.note(std::slice::from_ref(&noted)).unwrap();
            first.release().await;
            assert!(noted.lives(), "the other run still uses it");
            last.release().await;
            assert!(!noted.lives());
            assert!(!folder.join("children.json").exists());
            Ok(())
        })
        .unwrap();
        child.wait().unwrap();
    }
}
