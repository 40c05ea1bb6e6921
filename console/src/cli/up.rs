//! `sallyport up`: gateway, runner and console as children of one process, restarted when they fall, stopped in order.
//!
//! Processes, not threads: the runner holds the engine's socket and the gateway must never, and what answers people
//! holds neither. A console that does not come up stops nothing else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::run::services::Upkeep;
use super::{Shared, wait};
use crate::exit::{FAILED, Failure, Outcome, Verdict};
use crate::show;

const HELP: &str = "\
For a laptop or a trial; on a server run `sallyport gateway`, `sallyport runner` and `sallyport console` as services of \
their own. A role that ends is started again, at once the first time and then ever more slowly; a gateway or runner that \
refuses to start at all ends this with 3. SIGTERM and Ctrl-C stop the console and the runner first (its runs are ended \
and cleaned up), then the gateway.";

/// Between two questions whether a role that was started answers.
const STEP: Duration = Duration::from_millis(100);
/// The first pause before a restart; doubled each time up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// A role that keeps falling is tried this often: a cause that is being fixed should not wait long.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A role that lived this long was well; its next fall is a first one.
const HEALTHY: Duration = Duration::from_mins(1);
/// The runner needs up to a minute to end its runs; then it is killed and the next start reaps.
const LONGEST_STOP: Duration = Duration::from_secs(75);

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// Only check the configuration
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    open: super::gateway::OpenNetworks,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    if arguments.check {
        return super::config::check(shared);
    }
    // mistakes are told once, here, and not by three children again and again
    let config = shared.load()?;
    wait(async {
        let _upkeep = Upkeep::claim(&config).await?;
        let control = Socket::Gateway(config.gateway.control);
        let mut gateway = Role::new("gateway", Some(control), shared);
        let socket = Socket::Runner(config.runner.socket);
        let mut runner = Role::new("runner", Some(socket), shared);
        // one that does not come up stops nothing else
        let mut console = Role::new("console", None, shared);
        // unless it works for another one
        if config.runner.console.is_none() {
            runner.console = Some(format!("http://{}", near(config.console.listen)));
        }
        gateway.accepts = arguments.open.i_accept_open_networks;
        let (mut terminate, mut interrupt) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        gateway.start()?;
        runner.start()?;
        console.start()?;
        let token = token(&config.console, &config.runner.token_file);
        tokio::pin!(token);
        let mut has_token = runner.console.is_none();
        let outcome = loop {
            let refused = tokio::select! {
                refused = gateway.keep() => refused,
                refused = runner.keep() => refused,
                refused = console.keep() => refused,
                () = &mut token, if !has_token => { has_token = true; Ok(()) }
                _ = terminate.recv() => break Ok(Outcome::Good),
                _ = interrupt.recv() => break Ok(Outcome::Good),
            };
            if let Err(failure) = refused {
                break Err(failure);
            }
        };
        show::note("stopping console and runner, then the gateway");
        console.stop().await;
        runner.stop().await;
        gateway.stop().await;
        outcome
    })
}

/// Sees to it that the runner has a token of its own, as soon as the store can be had.
async fn token(console: &::console::settings::ConsoleConfig, file: &Path) {
    let mut told = false;
    while let Err(error) = ::console::runner_token(console, file).await {
        if !std::mem::replace(&mut told, true) {
            show::failure(&Failure::from_error(&error));
        }
        tokio::time::sleep(LONGEST_PAUSE).await;
    }
}

/// Where this machine reaches a listener.
fn near(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Where a role answers.
enum Socket {
    Gateway(PathBuf),
    Runner(PathBuf),
}

impl Socket {
    /// The process that answers: another one's answer says nothing about this one.
    async fn pid(&self) -> Option<u32> {
        match self {
            Self::Gateway(path) => {
                let health = gateway::control::Client::new(path).health().await;
                health.ok().map(|health| health.pid)
            }
            Self::Runner(path) => {
                let health = runner::Client::new(path).health().await;
                health.ok().map(|health| health.pid)
            }
        }
    }

    /// Waits until this process answers.
    async fn answered_by(&self, pid: Option<u32>) {
        while pid.is_none() || self.pid().await != pid {
            tokio::time::sleep(STEP).await;
        }
    }
}

async fn answered(socket: Option<&Socket>, pid: Option<u32>) {
    if let Some(socket) = socket {
        socket.answered_by(pid).await;
    }
}

/// One supervised child.
struct Role {
    name: &'static str,
    config: Option<std::path::PathBuf>,
    /// Whether it is told that open networks are accepted.
    accepts: bool,
    /// The console that a runner pulls work from.
    console: Option<String>,
    child: Option<Child>,
    /// Where it says that it is there, if a refusal of it is for good before it has.
    socket: Option<Socket>,
    /// Whether it has ever answered: before that, a refusal is for good.
    answered: bool,
    started: Instant,
    pause: Duration,
}

impl Role {
    fn new(name: &'static str, socket: Option<Socket>, shared: &Shared) -> Self {
        let config = shared.config.clone();
        Self {
            name,
            config,
            accepts: false,
            console: None,
            child: None,
            answered: socket.is_none(),
            socket,
            started: Instant::now(),
            pause: Duration::ZERO,
        }
    }

    fn start(&mut self) -> Result<(), Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(self.name).stdin(Stdio::null()).process_group(0);
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        if self.accepts {
            command.arg("--i-accept-open-networks");
        }
        if let Some(console) = &self.console {
            // its own address is never another machine's
            command.arg("--console").arg(console).arg("--plain-http");
        }
        let child = command
            .spawn()
            .map_err(|e| Failure::new(format!("starting the {}: {e}", self.name)))?;
        self.child = Some(child);
        self.started = Instant::now();
        Ok(())
    }

    /// Waits until the child ends, then until it may be started again, then starts it. An error if it refuses to start
    /// at all. Cancel-safe: a dropped wait leaves the child, or its absence, where the next call finds it.
    async fn keep(&mut self) -> Result<(), Failure> {
        if let Some(child) = &mut self.child {
            let pid = child.id();
            let status = loop {
                tokio::select! {
                    status = child.wait() => break status,
                    () = answered(self.socket.as_ref(), pid), if !self.answered => self.answered = true,
                }
            };
            self.child = None;
            let refuses = status
                .as_ref()
                .is_ok_and(|s| s.code() == Some(FAILED.into()));
            if refuses && !self.answered {
                let told = format!("the {} refuses to start; it says above why", self.name);
                return Err(Failure::new(told));
            }
            if self.started.elapsed() > HEALTHY {
                self.pause = Duration::ZERO;
            }
            let when = match self.pause {
                Duration::ZERO => "at once".to_owned(),
                pause => format!("in {pause:?}"),
            };
            let (name, status) = (self.name, text(status));
            show::note(format_args!(
                "the {name} ended ({status}), starting it again {when}"
            ));
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        if let Err(failure) = self.start() {
            show::failure(&failure);
        }
        Ok(())
    }

    async fn stop(&mut self) {
        let Some(child) = &mut self.child else { return };
        if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        if tokio::time::timeout(LONGEST_STOP, child.wait())
            .await
            .is_err()
        {
            show::note(format_args!(
                "the {} does not stop and is killed",
                self.name
            ));
            let _ = child.kill().await;
        }
    }
}

fn text(status: std::io::Result<ExitStatus>) -> String {
    status.map_or_else(|e| e.to_string(), |s| s.to_string())
}
