//! The `git` program in a fixed environment, on one bare repository of ours.
//!
//! Every setting that could run something, ask somebody, follow a redirect or reach elsewhere is set here and nowhere
//! else is read: no system or user configuration, no hooks, no helpers, no prompts, no `GIT_*` of the gateway. One
//! transport is permitted, the remote's. ssh checks the host's key against the configured file and offers the configured
//! key, nothing else. Settings travel in the environment, so that a token is not on a command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::config::{Access, SourceConfig};
use super::names::Transport;
use super::program::{Limits, Printed, Program, ProgramError, Running};

/// Address space of git and its helpers: a delta bomb ends it, not the machine.
const MEMORY: u64 = 2 << 30;
/// What plumbing prints at most where nothing larger is asked for.
pub const LITTLE: u64 = 1 << 20;

/// Git on one repository.
#[derive(Clone, Debug)]
pub struct Git {
    program: Program,
    directory: String,
}

/// Settings that hold for every command.
const FIXED: [(&str, &str); 32] = [
    ("protocol.allow", "never"),
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.askPass", ""),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    // what is larger is streamed, not held
    ("core.bigFileThreshold", "1m"),
    ("core.packedGitWindowSize", "16m"),
    ("core.packedGitLimit", "256m"),
    ("core.deltaBaseCacheLimit", "64m"),
    ("credential.helper", ""),
    ("credential.interactive", "false"),
    ("safe.bareRepository", "explicit"),
    ("fetch.fsckObjects", "true"),
    ("transfer.fsckObjects", "true"),
    ("transfer.bundleURI", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("submodule.recurse", "false"),
    ("push.recurseSubmodules", "no"),
    ("push.gpgSign", "false"),
    ("commit.gpgSign", "false"),
    // one pack a fetch: nothing is unpacked into a million files
    ("fetch.unpackLimit", "1"),
    ("transfer.unpackLimit", "1"),
    ("pack.threads", "1"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("http.followRedirects", "false"),
    ("http.proxy", ""),
    ("http.sslVerify", "true"),
];

impl Git {
    /// For one source; `directory` is its bare repository, `home` an empty folder of the gateway's.
    pub fn new(config: &SourceConfig, directory: &Path, home: &Path, token: Option<&str>) -> Self {
        let mut settings: Vec<(String, String)> = FIXED
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let mut set = |key: &str, value: String| settings.push((key.to_owned(), value));
        let time = config.limits.time.as_secs().max(1);
        set("http.lowSpeedLimit", "1000".to_owned());
        set("http.lowSpeedTime", (time / 2).clamp(1, 30).to_string());
        let protocol = match config.remote.transport() {
            Transport::Local => "file",
            Transport::Https => "https",
            Transport::Ssh => "ssh",
        };
        set(&format!("protocol.{protocol}.allow"), "always".to_owned());
        if let Some(ca) = &config.access.ca {
            set("http.sslCAInfo", ca.display().to_string());
        }
        if let Some(token) = token {
            // Only to this remote; redirects are not followed.
            set(
                &format!("http.{}.extraHeader", config.remote.as_str()),
                authorization(token),
            );
        }
        let mut environment = environment(home, &config.access);
        environment.push(("GIT_CONFIG_COUNT".into(), settings.len().to_string().into()));
        for (number, (key, value)) in settings.into_iter().enumerate() {
            environment.push((format!("GIT_CONFIG_KEY_{number}").into(), key.into()));
            environment.push((format!("GIT_CONFIG_VALUE_{number}").into(), value.into()));
        }
        let limits = Limits {
            file: config.limits.fetch,
            memory: MEMORY,
            time: config.limits.time,
        };
        Self {
            program: Program {
                name: "git",
                environment,
                limits,
            },
            directory: format!("--git-dir={}", directory.display()),
        }
    }

    /// With one more variable, such as another index.
    #[must_use]
    pub fn with(&self, key: &str, value: impl Into<OsString>) -> Self {
        let mut git = self.clone();
        git.program.environment.push((key.into(), value.into()));
        git
    }

    /// Makes the repository.
    pub async fn init(&self) -> Result<(), ProgramError> {
        // An empty template: no hooks, no description, nothing of the distribution's.
        self.run(
            &[
                "init",
                "--quiet",
                "--bare",
                "--template=",
                "--object-format=sha1",
            ],
            b"",
            LITTLE,
        )
        .await?
        .good()
        .map(drop)
    }

    /// Runs a command to its end.
    pub async fn run(
        &self,
        arguments: &[&str],
        input: &[u8],
        most: u64,
    ) -> Result<Printed, ProgramError> {
        self.program.run(&self.whole(arguments), input, most).await
    }

    /// Runs a command to its end and takes one line that it prints.
    pub async fn line(&self, arguments: &[&str], input: &[u8]) -> Result<String, ProgramError> {
        let out = self.run(arguments, input, LITTLE).await?.good()?;
        Ok(String::from_utf8_lossy(&out)
            .trim_end_matches('\n')
            .to_owned())
    }

    /// Starts a command that is then spoken to.
    pub fn converse(&self, arguments: &[&str]) -> Result<Running, ProgramError> {
        self.program.converse(&self.whole(arguments))
    }

    fn whole<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        let mut whole = vec![
            "--no-pager",
            "--no-optional-locks",
            "--no-replace-objects",
            self.directory.as_str(),
        ];
        whole.extend_from_slice(arguments);
        whole
    }
}

fn environment(home: &Path, access: &Access) -> Vec<(OsString, OsString)> {
    let fixed = [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_SYSTEM", "/dev/null"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_ATTR_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_PROTOCOL_FROM_USER", "0"),
        ("GIT_NO_REPLACE_OBJECTS", "1"),
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_SSH_VARIANT", "ssh"),
    ];
    let mut all: Vec<(OsString, OsString)> = fixed
        .iter()
        .map(|(k, v)| ((*k).into(), (*v).into()))
        .collect();
    all.push(("HOME".into(), home.into()));
    all.push(("XDG_CONFIG_HOME".into(), home.into()));
    all.push(("GIT_SSH_COMMAND".into(), ssh(access).into()));
    all
}

/// The command that git hands to a shell; paths in it were checked to be plain ([`super::config`]).
fn ssh(access: &Access) -> String {
    let file = |path: &Option<PathBuf>| {
        path.as_ref()
            .map_or_else(|| "/dev/null".to_owned(), |p| p.display().to_string())
    };
    let options = [
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        "GlobalKnownHostsFile=/dev/null",
        "UpdateHostKeys=no",
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "ForwardAgent=no",
        "ForwardX11=no",
        "ClearAllForwardings=yes",
        "PermitLocalCommand=no",
        "ProxyCommand=none",
        "CanonicalizeHostname=no",
        "PasswordAuthentication=no",
        "KbdInteractiveAuthentication=no",
        "ControlMaster=no",
        "ControlPath=none",
        "ConnectTimeout=20",
        "ServerAliveInterval=10",
        "ServerAliveCountMax=3",
    ];
    let mut command = "ssh -F /dev/null".to_owned();
    for option in options {
        command = format!("{command} -o {option}");
    }
    format!(
        "{command} -o UserKnownHostsFile={} -i {}",
        file(&access.known_hosts),
        file(&access.ssh_key)
    )
}

fn authorization(token: &str) -> String {
    use base64::Engine as _;
    format!(
        "Authorization: Basic {}",
        base64::engine::general_purpose::STANDARD.encode(token)
    )
}
