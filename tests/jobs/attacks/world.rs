//! One lab with a gateway and a runner of its own, at a place.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use lab::cli::Said;
use lab::wait;
use lab::wait::{eventually, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::place::{self, Place};
use crate::world::Here;

pub use crate::place::docker_tool as docker;

/// The image that most jobs run in.
pub const IMAGE: &str = "sallyport/sandbox:latest";

/// A lab whose runner stays up between runs.
#[derive(Debug)]
pub struct World {
    /// Namespaces, gateway, capture, origins, engine.
    pub lab: Here,
    runner: Option<Child>,
}

impl World {
    /// On Docker, with the runner's own defaults, except that no pod is kept ready.
    pub fn start() -> Self {
        Self::with("  pool: 0\n")
    }

    /// On Docker, with these lines in the runner's section.
    pub fn with(runner: &str) -> Self {
        Self::at(place::docker().expect("always there"), runner)
    }

    /// At a place, without a pool.
    pub fn on(place: Place) -> Self {
        Self::at(place, "  pool: 0\n")
    }

    /// At a place, with these lines in the runner's section.
    pub fn at(place: Place, runner: &str) -> Self {
        let lab = Here::with(place, runner);
        let mut world = Self { lab, runner: None };
        world.launch_runner();
        world
    }

    /// Starts the runner and waits until it answers.
    pub fn launch_runner(&mut self) {
        let config = self.lab.directory().join("config.yml");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.lab.directory().join("runner.log"))
            .expect("log");
        let config = config.display().to_string();
        let mut command = self.lab.command(&["runner", "--config", &config]);
        command.stdout(Stdio::null()).stderr(log);
        let mut child = self
            .lab
            .topology
            .uplink
            .start(&mut command)
            .expect("start the runner");
        let socket = self.lab.directory().join("runner.sock");
        eventually("the runner's socket", || {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("the runner ended with {status}:\n{}", self.runner_log());
            }
            UnixStream::connect(&socket).ok()
        });
        self.runner = Some(child);
    }

    /// SIGKILL, waited for.
    pub fn kill_runner(&mut self) {
        self.end_runner(Signal::SIGKILL);
    }

    fn end_runner(&mut self, signal: Signal) {
        if let Some(mut child) = self.runner.take() {
            let _ = kill(
                Pid::from_raw(i32::try_from(child.id()).expect("pid")),
                signal,
            );
            if within(wait::LIMIT, || child.try_wait().ok().flatten()).is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    /// Memory of the runner, in MiB.
    pub fn runner_memory(&self) -> u64 {
        let pid = self.runner.as_ref().expect("a runner").id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
        let line = status
            .lines()
            .find(|l| l.starts_with("VmHWM:"))
            .expect("VmHWM");
        line.split_whitespace()
            .nth(1)
            .and_then(|n| n.parse::<u64>().ok())
            .expect("a number")
            / 1024
    }

    /// What the runner logged.
    pub fn runner_log(&self) -> String {
        std::fs::read_to_string(self.lab.directory().join("runner.log")).unwrap_or_default()
    }

    /// This installation's word in names of containers.
    pub fn instance(&self) -> String {
        self.lab.instance()
    }

    /// Containers of this installation that the engine has, by name.
    pub fn containers(&self) -> Vec<String> {
        self.lab.containers()
    }

    /// The engine's own command line.
    pub fn engine(&self, arguments: &[&str]) -> Said {
        self.lab.engine(arguments)
    }

    /// Whether a container runs.
    pub fn runs(&self, name: &str) -> bool {
        let said = self.engine(&["inspect", "-f", "{{.State.Running}}", name]);
        said.out.trim() == "true"
    }

    /// Networks that the gateway has.
    pub fn networks(&self) -> Vec<Value> {
        let said = self
            .lab
            .sallyport(&["net", "ls", "--json"])
            .expect(0)
            .json();
        said.as_array()
            .cloned()
            .unwrap_or_else(|| panic!("no list: {said}"))
    }

    /// A run of the place's class.
    pub fn run(&self, options: &[&str], command: &[&str]) -> Said {
        self.lab.sallyport(&self.arguments(options, command))
    }

    /// The same, started and not waited for.
    pub fn spawn(&self, options: &[&str], command: &[&str]) -> Child {
        let config = self
            .lab
            .directory()
            .join("config.yml")
            .display()
            .to_string();
        let mut options = options.to_vec();
        options.extend(["--config", &config]);
        let mut started = self.lab.command(&self.arguments(&options, command));
        started.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.lab
            .topology
            .uplink
            .start(&mut started)
            .expect("start a run")
    }

    fn arguments<'a>(&self, options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
        let mut all = vec!["run", "--quiet"];
        if !options.contains(&"--isolation") {
            all.extend(["--isolation", self.lab.place.class]);
        }
        all.extend(options);
        all.push("--");
        all.extend(command);
        all
    }

    /// A run of a Python program; what it printed last, as JSON.
    pub fn probe(&self, options: &[&str], program: &str) -> Value {
        let said = self.run(options, &["python3", "-c", program]).expect(0);
        let line = said
            .out
            .lines()
            .last()
            .unwrap_or_else(|| panic!("it printed nothing: {said:?}"));
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- runner log ---\n{}", self.runner_log());
        }
        self.end_runner(Signal::SIGTERM);
    }
}
