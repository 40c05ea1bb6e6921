//! The arguments of `sallyport run`, and the job that they ask for.

use ::console::jobs::spec::{IsolationWord, JobSpec, LimitsSpec, NetworkMode, NetworkSpec};
use clap::Args;
use gateway::config::GatewayConfig;
use gateway::control::PolicySource;
use netpolicy::document;
use runner::{IsolationChoice, JobRequest};

use super::input::Brought;
use crate::cli::policy::source;
use crate::cli::remote::Door;
use crate::exit::{Failure, NOT_RUN};

const HELP: &str = "\
Examples:
  sallyport run -- curl https://example.com/    # denied: no policy, no network
  sallyport run --policy research.yml --copy agent.py -- python3 agent.py
  sallyport run --policy research.yml --copy ./project/ -- ./build
  git diff | sallyport run --copy review.py -- python3 review.py
  sallyport run --policy internet --image debian:12 --root -- apt-get update
  sallyport run --timeout 2m --memory 512m --copy tool.py -- python3 tool.py

A run sees its image and what --copy brings, and nothing else of this machine. A copy belongs to the run's user and lies \
in the working folder under its own name (a folder with a slash behind it: its content), or at PATH. What is piped to \
`sallyport run` the command reads as standard input; without a pipe or a file there it reads nothing.

The exit code is the command's; 124 after the timeout, 125 when Sallyport could not run it, 126 when the command cannot \
be executed, 127 when it does not exist, 130 after Ctrl-C. Without a running gateway and runner both are started for \
the run and stopped when the last run ends.

Who is signed in at a console (`sallyport auth login`), or names one with SALLYPORT_URL, submits the run there: it is \
printed from there until it ends, and Ctrl-C cancels it. --direct runs it on this machine all the same.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    #[command(flatten)]
    what: What,
    /// File or folder that the command finds a copy of; repeat for several. At most 1 GiB together; links stay links
    #[arg(long, value_name = "FOLDER-OR-FILE[:PATH]")]
    copy: Vec<std::ffi::OsString>,
    /// Workspace: the console's, or that which chooses the workspace floor here
    #[arg(long)]
    workspace: Option<String>,
    /// Run it on this machine, also when you are signed in at a console
    #[arg(long)]
    pub direct: bool,
    /// No progress and no summary of flows
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub door: Door,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

/// What is run and what it may use.
#[derive(Debug, Args)]
pub struct What {
    /// Policy file, the name of a preset (`sallyport policy presets`), or a policy in git (`sallyport policy source`)
    #[arg(long, value_name = "FILE|PRESET|NAME", default_value = "none")]
    policy: String,
    /// Image that the engine has [default: the shipped sandbox image]
    #[arg(long)]
    image: Option<String>,
    /// Isolation class: auto, hardened or gvisor [default: the strongest that the host has]
    #[arg(long, value_parser = isolation)]
    isolation: Option<IsolationChoice>,
    /// Run as root instead of the user `agent`
    #[arg(long)]
    root: bool,
    /// End it after this time, such as 90s, 15m or 2h [default: 15m]
    #[arg(long, value_parser = seconds)]
    timeout: Option<u64>,
    /// Memory without swap, such as 512m or 2g [default: 1024m]
    #[arg(long, value_parser = mebibytes)]
    memory: Option<u64>,
    /// CPUs, such as 0.5 or 2 [default: 1]
    #[arg(long, value_parser = thousandths)]
    cpus: Option<u64>,
    /// Processes and threads [default: 256]
    #[arg(long)]
    pids: Option<u64>,
    /// Variable of the command's environment; repeat for several
    #[arg(long, value_name = "K=V", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Working directory in the sandbox
    #[arg(long, value_name = "DIR")]
    workdir: Option<String>,
}

impl Arguments {
    /// The job that they ask for. Mistakes of the policy are told before anything is started.
    pub fn job(self, config: &GatewayConfig) -> Result<(JobRequest, Brought), Failure> {
        let brought = Brought::of(&self.copy)?;
        let what = self.what;
        let policy = source(&what.policy, config).map_err(|failure| failure.code(NOT_RUN))?;
        let mut job = JobRequest::new(policy, self.command);
        job.image = what.image;
        job.isolation = what.isolation;
        job.root = what.root;
        job.timeout_seconds = what.timeout;
        job.memory_mib = what.memory;
        job.cpu_millis = what.cpus;
        job.pids = what.pids;
        job.env = what.env;
        job.workdir = what.workdir;
        job.workspace = self
            .workspace
            .unwrap_or_else(gateway::control::api::default_workspace);
        job.takes = brought.takes();
        Ok((job, brought))
    }

    /// The same for a console, with the workspace that was named.
    pub fn submission(&self, config: &GatewayConfig) -> Result<(JobSpec, Option<&str>), Failure> {
        if !self.copy.is_empty() {
            return Err(Failure::new(
                "a run of a console takes no copies of files of this machine",
            )
            .hint("put them into an image, or run it here with --direct")
            .code(NOT_RUN));
        }
        let spec = self
            .what
            .spec(&self.command, config)
            .map_err(|failure| failure.code(NOT_RUN))?;
        Ok((spec, self.workspace.as_deref()))
    }
}

impl What {
    /// The definition of a job of a console.
    pub fn spec(&self, command: &[String], config: &GatewayConfig) -> Result<JobSpec, Failure> {
        Ok(JobSpec {
            command: command.to_vec(),
            image: self.image.clone(),
            isolation: self.isolation.map(|choice| match choice {
                IsolationChoice::Auto => IsolationWord::Auto,
                IsolationChoice::Hardened => IsolationWord::Hardened,
                IsolationChoice::Gvisor => IsolationWord::Gvisor,
            }),
            network: network(source(&self.policy, config)?)?,
            root: self.root,
            limits: LimitsSpec {
                timeout_seconds: self.timeout,
                memory_mib: self.memory,
                cpu_millis: self.cpus,
                pids: self.pids,
            },
            env: self.env.iter().cloned().collect(),
            workdir: self.workdir.clone(),
            ..JobSpec::default()
        })
    }
}

/// The network setting that a policy means; its text goes along.
fn network(policy: PolicySource) -> Result<NetworkSpec, Failure> {
    let text = match policy {
        PolicySource::Git { policy, .. } => {
            return Ok(NetworkSpec {
                policy_name: Some(policy),
                ..NetworkSpec::default()
            });
        }
        // the settings of a job's page say the same
        PolicySource::Preset(name)
            if matches!(name.as_str(), "none" | "internet" | "internet-private") =>
        {
            return Ok(NetworkSpec {
                mode: if name == "none" {
                    NetworkMode::None
                } else {
                    NetworkMode::Internet
                },
                allow_private: name == "internet-private",
                ..NetworkSpec::default()
            });
        }
        PolicySource::Preset(name) => document::preset_text(&name)
            .map(str::to_owned)
            .ok_or_else(|| Failure::new(format!("there is no preset {name}")))?,
        PolicySource::Document { text, .. } => text,
    };
    let policy = document::parse("policy", &text, None).map_err(|_| {
        Failure::new("the policy has mistakes").hint("`sallyport policy check` shows them")
    })?;
    Ok(NetworkSpec {
        mode: NetworkMode::of(policy.network),
        allow_private: policy.private,
        policy: Some(text),
        ..NetworkSpec::default()
    })
}

fn isolation(text: &str) -> Result<IsolationChoice, String> {
    match text {
        "auto" => Ok(IsolationChoice::Auto),
        "hardened" | "runc" => Ok(IsolationChoice::Hardened),
        "gvisor" | "runsc" => Ok(IsolationChoice::Gvisor),
        _ => Err("write auto, hardened or gvisor".to_owned()),
    }
}

/// A whole number followed by a unit of some list, the first of which may be left out.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let factor = match (unit, units.first()) {
        ("", Some((_, factor))) => *factor,
        _ => {
            units
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(unit))?
                .1
        }
    };
    number
        .parse::<u64>()
        .ok()?
        .checked_mul(factor)
        .filter(|n| *n > 0)
}

fn seconds(text: &str) -> Result<u64, String> {
    scaled(text, &[("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)])
        .ok_or_else(|| "write a time like 90s, 15m or 2h".to_owned())
}

fn mebibytes(text: &str) -> Result<u64, String> {
    let units = [("m", 1), ("MiB", 1), ("g", 1024), ("GiB", 1024)];
    scaled(text, &units).ok_or_else(|| "write a size like 512m or 2g".to_owned())
}

fn thousandths(text: &str) -> Result<u64, String> {
    let wrong = || "write a number of CPUs like 0.5 or 2".to_owned();
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return Err(wrong());
    }
    let thousandths: u64 = format!("{part:0<3}").parse().map_err(|_| wrong())?;
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    whole
        .checked_mul(1000)
        .and_then(|n| n.checked_add(thousandths))
        .filter(|n| *n > 0)
        .ok_or_else(wrong)
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_cpus_are_read_with_their_units_and_nothing_else_is() {
        assert_eq!(
            [seconds("90"), seconds("15m"), seconds("2h")],
            [Ok(90), Ok(900), Ok(7200)]
        );
        assert_eq!(
            [mebibytes("1024m"), mebibytes("2g"), mebibytes("512")],
            [Ok(1024), Ok(2048), Ok(512)]
        );
        assert_eq!(
            [thousandths("1"), thousandths("0.5"), thousandths("2.25")],
            [Ok(1000), Ok(500), Ok(2250)]
        );
        for wrong in [
            "",
            "0",
            "-1",
            "1x",
            "m",
            "1.5m",
            "99999999999999999999",
            "1 m",
        ] {
            assert!(
                seconds(wrong).is_err() && mebibytes(wrong).is_err(),
                "{wrong:?}"
            );
        }
        for wrong in [
            "",
            "0",
            "0.0",
            "-1",
            ".5",
            "1.",
            "1.2345",
            "1e3",
            "99999999999999999999",
        ] {
            assert!(thousandths(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn variables_need_a_key() {
        assert_eq!(variable("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert!(variable("=b").is_err() && variable("A").is_err());
    }
}
