//! What a crash or an old version left on the machine.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::{Check, State, kernel};
use crate::config::Config;
use crate::engine::Engine;

/// One thing that nobody owns any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leftover {
    /// The gateway's namespace, mounted by name.
    Namespace(PathBuf),
    /// The namespace that a doctor tried the kernel in, and was killed.
    Trial(PathBuf),
    /// A socket nobody listens on.
    Socket(PathBuf),
    /// A container, on the engine that has it.
    Container(Engine, crate::engine::Leftover),
}

/// Everything that is left over, if the roles that would own it do not answer.
pub fn find(config: &Config) -> Vec<Leftover> {
    let answers = |socket: &Path| UnixStream::connect(socket).is_ok();
    let gateway = answers(&config.gateway.control);
    find_beside(config, gateway, answers(&config.runner.socket))
}

/// Everything that there is, whoever owns it now.
pub fn find_all(config: &Config) -> Vec<Leftover> {
    find_beside(config, false, false)
}

/// What is neither a living gateway's nor a living runner's.
fn find_beside(config: &Config, gateway: bool, runner: bool) -> Vec<Leftover> {
    let mut found = Vec::new();
    if !gateway {
        let namespace = config.gateway.namespace_path();
        found.extend(namespace.exists().then_some(Leftover::Namespace(namespace)));
        let sockets = named(&config.gateway.run_dir, gateway::network::names::PROBE);
        found.extend(sockets.map(|(path, _)| Leftover::Socket(path)));
    }
    let alive = |pid: u32| Path::new("/proc").join(pid.to_string()).exists();
    found.extend(trials(&config.gateway.namespaces(), alive));
    for (socket, alive) in [
        (&config.gateway.control, gateway),
        (&config.runner.socket, runner),
    ] {
        found.extend((!alive && socket.exists()).then(|| Leftover::Socket(socket.clone())));
    }
    // containers of another installation on this machine are its own runner's business
    if let Some(instance) = instance(config).filter(|_| !runner) {
        for engine in Engine::all(&config.runner.engine) {
            let containers = engine.leftovers().unwrap_or_default();
            let own = containers.into_iter().filter(|c| c.instance == instance);
            found.extend(own.map(|c| Leftover::Container(engine.clone(), c)));
        }
    }
    found
}

/// Namespaces of doctors that do not live any more. Another doctor may be at it.
fn trials(directory: &Path, alive: impl Fn(u32) -> bool) -> impl Iterator<Item = Leftover> {
    let dead = move |rest: &str| rest.parse().is_ok_and(|pid| !alive(pid));
    named(directory, kernel::TRIAL)
        .filter(move |(_, rest)| dead(rest))
        .map(|(path, _)| Leftover::Trial(path))
}

/// What in a directory has a name that begins so, with the rest of the name.
fn named(directory: &Path, begins: &str) -> impl Iterator<Item = (PathBuf, String)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let name = entry.file_name();
        let rest = name.to_str()?.strip_prefix(begins)?.to_owned();
        Some((entry.path(), rest))
    })
}

/// The identity that this installation's runner marks its containers with; without a state there are none.
fn instance(config: &Config) -> Option<String> {
    let text = std::fs::read_to_string(config.runner.state_dir.join("instance")).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

impl std::fmt::Display for Leftover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Namespace(path) => write!(f, "namespace {}", path.display()),
            Self::Trial(path) => write!(f, "namespace {} of a killed doctor", path.display()),
            Self::Socket(path) => write!(f, "socket {}", path.display()),
            Self::Container(engine, container) => {
                let id = container.id.get(..12).unwrap_or(&container.id);
                write!(
                    f,
                    "container {id} ({}) of {}",
                    container.role,
                    engine.socket().display()
                )
            }
        }
    }
}

pub fn checks(config: &Config) -> Vec<Check> {
    let found = find(config);
    if found.is_empty() {
        return vec![Check::ok("leftovers", "none")];
    }
    let fix = "start Sallyport again, it adopts or removes them; or `sallyport uninstall`";
    found
        .iter()
        .map(|l| Check::not("leftovers", State::Remark, l.to_string(), fix))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_doctors_namespace_is_left_over_and_a_living_ones_or_anybody_elses_is_not() {
        let directory = tempfile::tempdir().unwrap();
        for name in [
            "sallyport-doctor-17",
            "sallyport-doctor-18",
            "sallyport-doctor-x",
            "sallyport",
            "other-17",
        ] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let found: Vec<Leftover> = trials(directory.path(), |pid| pid == 18).collect();
        let dead = directory.path().join("sallyport-doctor-17");
        assert_eq!(found, [Leftover::Trial(dead)]);
        let nowhere = directory.path().join("nowhere");
        assert_eq!(trials(&nowhere, |_| false).count(), 0);
    }
}
