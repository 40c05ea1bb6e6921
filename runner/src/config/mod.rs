//! The runner's configuration: one section of the one YAML file, with a reason beside each default.
//!
//! Owns the shape and the checks that need no I/O; every mistake is reported at once. Refuses to own where the file lies
//! and who may read it.

mod grammar;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use grammar::RUNNER as SHAPE;

use crate::job::{ImageName, IsolationChoice};
use crate::pull::line::Address;

/// Which engine runs sandboxes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum EngineChoice {
    /// `DOCKER_HOST` if it names a Unix socket, else Docker's socket, else Podman's.
    #[default]
    Auto,
    /// Docker at its usual socket.
    Docker,
    /// Podman at its usual socket.
    Podman,
    /// Whatever answers at this socket.
    Socket(PathBuf),
}

impl From<String> for EngineChoice {
    fn from(text: String) -> Self {
        match text.as_str() {
            "auto" => Self::Auto,
            "docker" => Self::Docker,
            "podman" => Self::Podman,
            path => Self::Socket(path.strip_prefix("unix://").unwrap_or(path).into()),
        }
    }
}

impl From<EngineChoice> for String {
    fn from(choice: EngineChoice) -> Self {
        match choice {
            EngineChoice::Auto => "auto".to_owned(),
            EngineChoice::Docker => "docker".to_owned(),
            EngineChoice::Podman => "podman".to_owned(),
            EngineChoice::Socket(path) => path.to_string_lossy().into_owned(),
        }
    }
}

/// Everything that the runner is told.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunnerConfig {
    /// `auto`, `docker`, `podman` or the path of a socket.
    pub engine: EngineChoice,
    /// Wired holders kept ready; each costs one idle process and saves about 200 ms a start.
    pub pool: usize,
    /// Runs at the same time; more wait for nothing and are refused.
    pub max_runs: usize,
    /// The gateway's control socket.
    pub control: PathBuf,
    /// The socket that this runner's API listens on.
    pub socket: PathBuf,
    /// What must survive a restart: who owns what, the helper's files. Must be the same path for the engine.
    pub state_dir: PathBuf,
    /// Sockets and per-run files; the engine mounts from here, so the same path for it, too.
    pub run_dir: PathBuf,
    /// The console that work is pulled from; `None`: from none.
    pub console: Option<String>,
    /// Authorities of the console's certificate; `None`: this system's.
    pub ca_file: Option<PathBuf>,
    /// Plain HTTP even to another machine.
    pub plain_http: bool,
    /// The file with the token for it, its owner's alone.
    pub token_file: PathBuf,
    /// Defaults and ceilings of a run.
    pub limits: Limits,
}

/// Defaults and ceilings of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Image of runs that name none.
    pub image: String,
    /// Isolation class of runs that name none.
    pub isolation: IsolationChoice,
    /// 15 minutes: long enough for an agent's task, short enough that a hanging one is noticed.
    pub timeout_seconds: u64,
    /// Longest timeout that a run may ask for.
    pub max_timeout_seconds: u64,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// Most memory that a run may ask for.
    pub max_memory_mib: u64,
    /// CPU, in thousandths.
    pub cpu_millis: u64,
    /// Most CPU that a run may ask for.
    pub max_cpu_millis: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Most processes that a run may ask for.
    pub max_pids: u64,
    /// Bytes of output that are passed on; what follows is dropped behind a marker.
    pub output_bytes: u64,
}

impl Default for RunnerConfig {
    fn default() -> Self {
        let (state, run): (PathBuf, PathBuf) = gateway::ordinary::folders().map_or_else(
            || ("/var/lib/sallyport".into(), "/run/sallyport".into()),
            |own| (own.state, own.run),
        );
        Self::under(&state, &run)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            image: "sallyport/sandbox:latest".to_owned(),
            isolation: IsolationChoice::Auto,
            timeout_seconds: 15 * 60,
            max_timeout_seconds: 24 * 60 * 60,
            memory_mib: 1024,
            max_memory_mib: 64 * 1024,
            cpu_millis: 1000,
            max_cpu_millis: 64_000,
            pids: 256,
            max_pids: 32_768,
            output_bytes: 1 << 30,
        }
    }
}

/// A holder is an idle process and a network; more than this many ready ones only cost memory.
const LARGEST_POOL: usize = 256;

impl RunnerConfig {
    /// The defaults below the folders of a gateway: one file describes one installation.
    pub fn under(state: &Path, run: &Path) -> Self {
        Self {
            engine: EngineChoice::Auto,
            pool: 1,
            max_runs: 64,
            control: run.join("control.sock"),
            socket: run.join("runner.sock"),
            state_dir: state.join("runner"),
            run_dir: run.join("runner"),
            console: None,
            ca_file: None,
            plain_http: false,
            token_file: state.join("runner/console-token"),
            limits: Limits::default(),
        }
    }

    /// What is wrong with the way to the console.
    fn add_mistakes_of_link(&self, mistakes: &mut Vec<String>) {
        if let Some(file) = self.ca_file.as_ref().filter(|file| !file.is_absolute()) {
            mistakes.push(format!(
                "runner.ca_file: {} is not an absolute path",
                file.display()
            ));
        }
        let Some(console) = &self.console else { return };
        match Address::parse(console) {
            None => mistakes.push(format!(
                "runner.console: {console:?} is not an address such as https://sallyport.example.com"
            )),
            Some(address) if !(address.is_secure() || address.is_near() || self.plain_http) => {
                mistakes.push(format!(
                    "runner.console: {console} is plain HTTP to another machine: whoever is on the way reads the token, \
                     jobs and output. Use https:// (`console.tls` there), or say `plain_http: true` where a tunnel is"
                ));
            }
            Some(_) => {}
        }
    }

    /// Every mistake, as `key: what is wrong`.
    pub fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        if self.pool > LARGEST_POOL {
            mistakes.push(format!("runner.pool: at most {LARGEST_POOL}"));
        }
        if !(1..=10_000).contains(&self.max_runs) {
            mistakes.push("runner.max_runs: between 1 and 10000".to_owned());
        }
        let paths = [
            ("control", &self.control),
            ("socket", &self.socket),
            ("state_dir", &self.state_dir),
            ("run_dir", &self.run_dir),
            ("token_file", &self.token_file),
        ];
        for (key, path) in paths {
            if !path.is_absolute() {
                mistakes.push(format!(
                    "runner.{key}: {} is not an absolute path",
                    path.display()
                ));
            }
        }
        if let EngineChoice::Socket(path) = &self.engine
            && !path.is_absolute()
        {
            mistakes.push(
                "runner.engine: `auto`, `docker`, `podman` or the absolute path of a socket"
                    .to_owned(),
            );
        }
        self.add_mistakes_of_link(&mut mistakes);
        self.limits.add_mistakes(&mut mistakes);
        mistakes
    }
}

impl Limits {
    fn add_mistakes(&self, mistakes: &mut Vec<String>) {
        if let Err(error) = ImageName::from_str(&self.image) {
            mistakes.push(format!("runner.limits.image: {error}"));
        }
        let pairs = [
            (
                "timeout_seconds",
                self.timeout_seconds,
                self.max_timeout_seconds,
            ),
            ("memory_mib", self.memory_mib, self.max_memory_mib),
            ("cpu_millis", self.cpu_millis, self.max_cpu_millis),
            ("pids", self.pids, self.max_pids),
        ];
        for (key, value, most) in pairs {
            if value == 0 || value > most {
                mistakes.push(format!(
                    "runner.limits.{key}: {value} is not between 1 and max_{key} ({most})"
                ));
            }
        }
        if self.output_bytes == 0 {
            mistakes.push("runner.limits.output_bytes: 0 would drop all output".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_have_no_mistakes_and_all_mistakes_come_at_once() {
        assert!(RunnerConfig::default().mistakes().is_empty());
        let config: RunnerConfig = serde_json::from_str(
            r#"{"engine":"relative.sock","pool":100000,"control":"x","limits":{"image":"--bad","pids":0,"output_bytes":0}}"#,
        )
        .unwrap();
        assert_eq!(config.mistakes().len(), 6, "{:?}", config.mistakes());
        assert!(serde_json::from_str::<RunnerConfig>(r#"{"poll":1}"#).is_err());
    }

    #[test]
    fn every_setting_is_in_the_grammar() {
        let keys = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().unwrap().keys().cloned().collect()
        };
        let named = |shape: &netpolicy::document::shape::Shape| -> Vec<String> {
            let mut keys: Vec<_> = shape.fields.iter().map(|f| f.key.to_owned()).collect();
            keys.sort();
            keys
        };
        let defaults = serde_json::to_value(RunnerConfig::default()).unwrap();
        assert_eq!(keys(&defaults), named(&SHAPE));
        let limits = SHAPE.fields.iter().find(|f| f.key == "limits").unwrap();
        let netpolicy::document::shape::Kind::Object(shape) = &limits.kind else {
            panic!("limits are a mapping");
        };
        assert_eq!(keys(&defaults["limits"]), named(shape));
    }

    #[test]
    fn engine_is_a_word_or_a_socket() {
        assert_eq!(
            EngineChoice::from("podman".to_owned()),
            EngineChoice::Podman
        );
        assert_eq!(
            EngineChoice::from("unix:///x/y.sock".to_owned()),
            EngineChoice::Socket("/x/y.sock".into())
        );
    }

    #[test]
    fn plain_http_to_another_machine_is_refused_unless_that_is_said() {
        let mistakes = |console: &str, plain_http: bool| {
            let config = RunnerConfig {
                console: Some(console.to_owned()),
                plain_http,
                ..RunnerConfig::default()
            };
            config.mistakes().len()
        };
        for (console, wrong) in [
            ("http://127.0.0.1:8420", 0),
            ("https://sallyport.example.com", 0),
            ("http://sallyport.example.com", 1),
            ("http://10.0.0.5:8420", 1),
            ("ftp://x", 1),
        ] {
            assert_eq!(mistakes(console, false), wrong, "{console}");
        }
        assert_eq!(mistakes("http://10.0.0.5:8420", true), 0);
    }
}
