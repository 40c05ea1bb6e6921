//! Run start to first byte of output, beside the engine alone.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Row, Table, in_turn};
use crate::Options;

const IMAGE: &str = "sallyport/sandbox:latest";
/// Sandboxes kept ready.
const POOL: usize = 4;

/// The row on run starts.
pub fn runs(options: &Options, table: &mut Table) -> Result<()> {
    if !options.wants(&["run start"]) {
        return Ok(());
    }
    let files = tempfile::tempdir()?;
    let dir = files.path().display();
    let config = files.path().join("config.yml");
    std::fs::write(
        &config,
        format!(
            "gateway:\n  namespace: spb{pid}-run\n  control: {dir}/control.sock\n  state_dir: {dir}/state\n  run_dir: {dir}/run\n\
             runner:\n  socket: {dir}/runner.sock\n  state_dir: {dir}/runner\n  pool: {POOL}\n  limits: {{ isolation: hardened }}\n",
            pid = std::process::id()
        ),
    )?;
    let _up = Up(Command::new(&options.binary)
        .args(["up", "--config"])
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?);
    let ours = || {
        first_byte(
            Command::new(&options.binary)
                .arg("--config")
                .arg(&config)
                .args(["run", "--quiet", "--policy", "none", "--", "echo", "hi"]),
        )
    };
    let runner = runner::Client::new(files.path().join("runner.sock"));
    let figures = in_turn(
        options.reps * 2,
        vec![
            (
                "sallyport run, warm pool",
                Box::new(|| warm(&runner).and_then(|()| ours())),
            ),
            (
                "docker run --network none",
                Box::new(|| {
                    warm(&runner)?;
                    first_byte(Command::new("docker").args([
                        "run",
                        "--rm",
                        "--network",
                        "none",
                        IMAGE,
                        "echo",
                        "hi",
                    ]))
                }),
            ),
        ],
    )?;
    table.add(Row {
        title: "run start, first byte of output",
        unit: "ms",
        aim: "at most half of docker run",
        figures,
    });
    Ok(())
}

struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(pid),
                nix::sys::signal::Signal::SIGTERM,
            );
        }
        let _ = self.0.wait();
    }
}

/// Waits until the runner is there and its pool is full: a run starts from a warm one, and neither pays for filling it.
/// (A run that is asked for earlier than that would start a runner of its own.)
#[expect(
    clippy::disallowed_methods,
    reason = "asking without a pause would take the CPU that filling needs"
)]
fn warm(runner: &runner::Client) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let start = Instant::now();
    loop {
        let health = runtime.block_on(runner.health());
        if health.as_ref().is_ok_and(|health| health.pooled >= POOL) {
            return Ok(());
        }
        if start.elapsed() > Duration::from_mins(1) {
            health.context("the runner is not there after a minute")?;
            bail!("the pool is not full after a minute");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Milliseconds from start of the command to its first byte of output.
fn first_byte(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut byte = [0; 1];
    let got = child
        .stdout
        .take()
        .context("no standard output")?
        .read(&mut byte)?;
    let took = start.elapsed().as_secs_f64() * 1e3;
    let status = child.wait()?;
    if got == 0 || !status.success() {
        bail!("{command:?} ended with {status} and {got} bytes");
    }
    Ok(took)
}
