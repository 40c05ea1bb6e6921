//! `sallyport up`: gateway, runner and console as children of one process, restarted when they fall, stopped in order.
//!
//! Processes, not threads: the runner holds the engine's socket and the gateway must never, and what answers people
//! holds neither. A console that does not come up stops nothing else.

use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show;

const HELP: &str = "\
For a laptop or a trial; on a server run `sallyport gateway`, `sallyport runner` and `sallyport console` as services of
their own. A role that ends is started again, at once the first time and then ever more slowly. SIGTERM and Ctrl-C stop
the console and the runner first (its runs are ended and cleaned up), then the gateway.";

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
    shared.load()?;
    wait(async {
        let [mut gateway, mut runner, mut console] =
            ["gateway", "runner", "console"].map(|name| Role::new(name, shared));
        gateway.accepts = arguments.open.i_accept_open_networks;
        let (mut terminate, mut interrupt) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        gateway.start()?;
        runner.start()?;
        console.start()?;
        loop {
            tokio::select! {
                () = gateway.keep() => {}
                () = runner.keep() => {}
                () = console.keep() => {}
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
        }
        show::note("stopping console and runner, then the gateway");
        console.stop().await;
        runner.stop().await;
        gateway.stop().await;
        Ok(Outcome::Good)
    })
}

/// One supervised child.
struct Role {
    name: &'static str,
    config: Option<std::path::PathBuf>,
    /// Whether it is told that open networks are accepted.
    accepts: bool,
    child: Option<Child>,
    started: Instant,
    pause: Duration,
}

impl Role {
    fn new(name: &'static str, shared: &Shared) -> Self {
        let config = shared.config.clone();
        Self {
            name,
            config,
            accepts: false,
            child: None,
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
        let child = command
            .spawn()
            .map_err(|e| Failure::new(format!("starting the {}: {e}", self.name)))?;
        self.child = Some(child);
        self.started = Instant::now();
        Ok(())
    }

    /// Waits until the child ends, then until it may be started again, then starts it. Cancel-safe: a dropped wait
    /// leaves the child, or its absence, where the next call finds it.
    async fn keep(&mut self) {
        if let Some(child) = &mut self.child {
            let status = child.wait().await;
            self.child = None;
            if self.started.elapsed() > HEALTHY {
                self.pause = Duration::ZERO;
            }
            show::note(format_args!(
                "the {} ended ({}), starting it again in {:?}",
                self.name,
                text(status),
                self.pause
            ));
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        if let Err(failure) = self.start() {
            show::failure(&failure);
        }
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
