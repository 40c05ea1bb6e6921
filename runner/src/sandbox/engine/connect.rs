//! Finds the engine, agrees on a version of its API and learns what it can do.
//!
//! Owns the choice of socket, the engine's flavour, its runtimes and the warnings that an operator should read. The
//! runner alone holds this connection. A remote engine is refused: the gateway could not reach its namespaces.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::models::SystemInfo;

use super::ask::{engine, within};
use super::elsewhere::elsewhere;
use crate::config::EngineChoice;
use crate::sandbox::{Facts, Isolation, SandboxError};

const DOCKER_SOCKETS: [&str; 2] = ["/run/docker.sock", "/var/run/docker.sock"];
const PODMAN_SOCKETS: [&str; 1] = ["/run/podman/podman.sock"];
/// Waiting for a workload is one request that lasts as long as the run; each other request has a limit of its own.
const LONGEST_REQUEST_SECONDS: u64 = 8 * 24 * 60 * 60;
/// An engine that does not say its version in this time is not there.
const GREETING: Duration = Duration::from_secs(10);
/// First runc without the container escapes of November 2025 (CVE-2025-31133, -52565, -52881).
const SAFE_RUNC: [u64; 3] = [1, 2, 8];

/// Which engine it is; they differ in small things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// Docker.
    Docker,
    /// Podman's Docker-compatible API.
    Podman,
}

/// A runtime by the engine's name for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Runtime(pub String);

/// A connected engine.
#[derive(Debug)]
pub struct Connected {
    /// The API.
    pub api: Docker,
    /// Which engine.
    pub flavour: Flavour,
    /// For people.
    pub facts: Facts,
    /// Runtime of the class hardened; `None` is the engine's default.
    pub hardened: Option<Runtime>,
    /// Runtime of the class gvisor, if there is one.
    pub gvisor: Option<Runtime>,
}

/// Connects to the chosen engine.
pub async fn connect(choice: &EngineChoice) -> Result<Connected, SandboxError> {
    let docker_host = std::env::var("DOCKER_HOST").ok();
    let own = gateway::ordinary::podman_socket();
    let candidates = candidates(choice, docker_host.as_deref(), own);
    for path in &candidates {
        if let Some(connected) = try_socket(path).await? {
            return Ok(connected);
        }
    }
    let tried: Vec<_> = candidates.iter().map(|p| p.display().to_string()).collect();
    Err(SandboxError::NoEngine {
        tried: tried.join(", "),
    })
}

/// `own` is an ordinary user's Podman, whose sandboxes are in reach of that user's gateway.
fn candidates(
    choice: &EngineChoice,
    docker_host: Option<&str>,
    own: Option<PathBuf>,
) -> Vec<PathBuf> {
    let known = |sockets: &[&str]| -> Vec<PathBuf> { sockets.iter().map(PathBuf::from).collect() };
    match choice {
        EngineChoice::Socket(path) => vec![path.clone()],
        EngineChoice::Docker => known(&DOCKER_SOCKETS),
        EngineChoice::Podman => own.into_iter().chain(known(&PODMAN_SOCKETS)).collect(),
        EngineChoice::Auto => {
            // Who set it meant it: another engine would be a surprise.
            if let Some(host) = docker_host {
                return vec![host.strip_prefix("unix://").unwrap_or(host).into()];
            }
            let usual = known(&[&DOCKER_SOCKETS[..], &PODMAN_SOCKETS[..]].concat());
            own.into_iter().chain(usual).collect()
        }
    }
}

async fn try_socket(path: &Path) -> Result<Option<Connected>, SandboxError> {
    if !path.exists() {
        return Ok(None);
    }
    let text = path.to_string_lossy();
    let api =
        Docker::connect_with_unix(&text, LONGEST_REQUEST_SECONDS, bollard::API_DEFAULT_VERSION)
            .map_err(engine("opening the engine's socket"))?;
    let Ok(Ok(api)) = tokio::time::timeout(GREETING, api.negotiate_version()).await else {
        return Ok(None);
    };
    let learnt = learn(&api).await?;
    Ok(Some(Connected {
        api,
        flavour: learnt.flavour,
        facts: learnt.facts,
        hardened: learnt.hardened,
        gvisor: learnt.gvisor,
    }))
}

/// What an engine says of itself.
pub struct Learnt {
    flavour: Flavour,
    /// For people.
    pub facts: Facts,
    hardened: Option<Runtime>,
    gvisor: Option<Runtime>,
}

/// Asks an engine what it is and can do.
pub async fn learn(api: &Docker) -> Result<Learnt, SandboxError> {
    let version = within("asking the engine's version", api.version()).await?;
    let info = within("asking what the engine can do", api.info()).await?;
    let here = (info.operating_system.as_deref(), info.name.as_deref());
    if let Some(elsewhere) = elsewhere(here.0, here.1, info.kernel_version.as_deref()) {
        return Err(SandboxError::Elsewhere(elsewhere));
    }
    let components = version.components.unwrap_or_default();
    let podman = components.iter().any(|c| c.name.contains("Podman"));
    let flavour = if podman {
        Flavour::Podman
    } else {
        Flavour::Docker
    };
    let name = if podman { "Podman" } else { "Docker" };
    let rootless = is_rootless(&info);
    if rootless && !podman {
        return Err(SandboxError::RootlessDocker);
    }
    let runtimes: Vec<String> = info
        .runtimes
        .clone()
        .unwrap_or_default()
        .into_keys()
        .collect();
    let default = info.default_runtime.clone().unwrap_or_default();
    let (hardened, has_hardened) = hardened_runtime(flavour, &runtimes, &default);
    let gvisor = gvisor_runtime(flavour, &runtimes);
    let classes = [
        (Isolation::Hardened, has_hardened),
        (Isolation::Gvisor, gvisor.is_some()),
    ];
    let runc = components
        .iter()
        .find(|c| c.name.contains("runc"))
        .map(|c| c.version.as_str());
    let facts = Facts {
        name: format!(
            "{name} {}",
            version.version.as_deref().unwrap_or("of unknown version")
        ),
        isolation: classes
            .into_iter()
            .filter_map(|(class, has)| has.then_some(class))
            .collect(),
        warnings: warnings(runc, &info),
    };
    Ok(Learnt {
        flavour,
        facts,
        hardened,
        gvisor,
    })
}

/// Whether the engine runs without root, as it says itself.
fn is_rootless(info: &SystemInfo) -> bool {
    let options = info.security_options.as_deref().unwrap_or_default();
    options.iter().any(|option| option.contains("rootless"))
}

/// The runtime to name for the class hardened, and whether the class exists at all.
fn hardened_runtime(
    flavour: Flavour,
    runtimes: &[String],
    default: &str,
) -> (Option<Runtime>, bool) {
    let ordinary = |name: &str| matches!(name, "runc" | "crun" | "io.containerd.runc.v2");
    if ordinary(default) {
        return (None, true);
    }
    if flavour == Flavour::Podman {
        return (None, false);
    }
    let named = runtimes
        .iter()
        .find(|name| ordinary(name))
        .cloned()
        .map(Runtime);
    let has = named.is_some();
    (named, has)
}

/// Docker only: Podman's compatible API takes a runtime's name and silently uses its default (tried with 4.3).
fn gvisor_runtime(flavour: Flavour, runtimes: &[String]) -> Option<Runtime> {
    let registered = runtimes
        .iter()
        .find(|name| matches!(name.as_str(), "runsc" | "gvisor"))?;
    (flavour == Flavour::Docker).then(|| Runtime(registered.clone()))
}

fn warnings(runc: Option<&str>, info: &SystemInfo) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(version) = runc
        .and_then(numbers)
        .filter(|version| *version < SAFE_RUNC)
    {
        let [major, minor, patch] = version;
        warnings.push(format!(
            "runc {major}.{minor}.{patch} is older than 1.2.8 and may have the escapes CVE-2025-31133, CVE-2025-52565 and \
             CVE-2025-52881, unless the distribution has patched it: update runc"
        ));
    }
    let options = info.security_options.clone().unwrap_or_default();
    if !options.iter().any(|option| option.contains("seccomp")) {
        warnings.push(
            "the engine does not report seccomp: system calls may not be filtered".to_owned(),
        );
    }
    warnings
}

/// The first three numbers of a version text.
fn numbers(text: &str) -> Option<[u64; 3]> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let mut parts = text
        .get(start..)?
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse);
    let mut next = || parts.next().and_then(Result::ok);
    Some([next()?, next()?, next().unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_host_decides_when_nothing_else_is_said() {
        let own = || Some(PathBuf::from("/run/user/7/podman/podman.sock"));
        let auto = candidates(&EngineChoice::Auto, None, None);
        assert_eq!(auto.len(), 3);
        assert_eq!(
            candidates(&EngineChoice::Auto, Some("unix:///x.sock"), own()),
            [PathBuf::from("/x.sock")]
        );
        assert_eq!(
            candidates(&EngineChoice::Docker, Some("unix:///x.sock"), own()).len(),
            2
        );
        for choice in [EngineChoice::Auto, EngineChoice::Podman] {
            let first = candidates(&choice, None, own()).first().cloned();
            assert_eq!(first, own(), "{choice:?}");
        }
    }

    #[test]
    fn default_runtime_that_is_no_ordinary_one_is_not_used_for_hardened() {
        let have = ["runc".to_owned(), "runsc".to_owned()];
        assert_eq!(
            hardened_runtime(Flavour::Docker, &have, "runsc"),
            (Some(Runtime("runc".to_owned())), true)
        );
        assert_eq!(
            hardened_runtime(Flavour::Docker, &have, "runc"),
            (None, true)
        );
        assert_eq!(
            hardened_runtime(Flavour::Docker, &have[1..], "runsc"),
            (None, false)
        );
        assert_eq!(
            hardened_runtime(Flavour::Podman, &have, "runsc"),
            (None, false)
        );
    }

    #[test]
    fn gvisor_is_not_claimed_where_the_engine_would_ignore_it() {
        let have = ["runc".to_owned(), "runsc".to_owned()];
        assert_eq!(
            gvisor_runtime(Flavour::Docker, &have),
            Some(Runtime("runsc".to_owned()))
        );
        assert_eq!(gvisor_runtime(Flavour::Podman, &have), None);
    }

    #[test]
    fn old_runc_is_warned_about_and_a_new_one_is_not() {
        let info = SystemInfo {
            security_options: Some(vec!["name=seccomp".to_owned()]),
            ..SystemInfo::default()
        };
        assert_eq!(warnings(Some("1.1.5+ds1"), &info).len(), 1);
        assert_eq!(warnings(Some("runc version 1.2.7"), &info).len(), 1);
        assert!(warnings(Some("1.2.8"), &info).is_empty());
        assert!(warnings(Some("1.4.0"), &info).is_empty());
        assert_eq!(warnings(None, &SystemInfo::default()).len(), 1);
    }
}
