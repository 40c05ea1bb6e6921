//! What a crash or an old version left on the machine.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::{Check, State};
use crate::config::Config;
use crate::engine::Engine;

/// One thing that nobody owns any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leftover {
    /// The gateway's namespace, mounted by name.
    Namespace(PathBuf),
    /// A socket nobody listens on.
    Socket(PathBuf),
    /// A container, on the engine that has it.
    Container(Engine, crate::engine::Leftover),
}

/// Everything that is left over, if the roles that would own it do not answer.
pub fn find(config: &Config) -> Vec<Leftover> {
    let mut found = Vec::new();
    let answers = |socket: &Path| UnixStream::connect(socket).is_ok();
    let (gateway, runner) = (answers(&config.gateway.control), answers(&config.runner.socket));
    if !gateway {
        let namespace = Path::new("/run/netns").join(&config.gateway.namespace);
        found.extend(namespace.exists().then_some(Leftover::Namespace(namespace)));
    }
    for (socket, alive) in [(&config.gateway.control, gateway), (&config.runner.socket, runner)] {
        found.extend((!alive && socket.exists()).then(|| Leftover::Socket(socket.clone())));
    }
    if !runner {
        for engine in Engine::all() {
            let containers = engine.leftovers().unwrap_or_default();
            found.extend(containers.into_iter().map(|c| Leftover::Container(engine.clone(), c)));
        }
    }
    found
}

impl std::fmt::Display for Leftover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Namespace(path) => write!(f, "namespace {}", path.display()),
            Self::Socket(path) => write!(f, "socket {}", path.display()),
            Self::Container(engine, container) => {
                let id = container.id.get(..12).unwrap_or(&container.id);
                write!(f, "container {id} ({}) of {}", container.role, engine.socket().display())
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
    found.iter().map(|l| Check::not("leftovers", State::Remark, l.to_string(), fix)).collect()
}
