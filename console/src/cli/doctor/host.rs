//! What the machine itself must offer: powers, kernel features, an engine, room.

use std::path::Path;

use gateway::kernel::Enforcement;
use gateway::ordinary::{self, EnterError};

use super::system::{Package, System};
use super::{Check, State, powers};
use crate::config::Config;
use crate::engine::{self, Engine};

pub fn checks(
    system: &System,
    entered: &Result<(), EnterError>,
    enforcement: Enforcement,
) -> Vec<Check> {
    let mut checks = match entered {
        Err(error) => vec![Check::not(
            "user namespace",
            State::Wrong,
            crate::exit::Failure::from_error(error).message,
            error.hint(),
        )],
        Ok(()) if ordinary::is_ordinary() => vec![Check::ok(
            "user namespace",
            "rootless Podman's: this user needs no root",
        )],
        Ok(()) => Vec::new(),
    };
    if entered.is_ok() {
        checks.extend(powers::checks(system));
    }
    checks.extend(super::kernel::checks(system, enforcement));
    checks.push(ipv6());
    checks
}

fn ipv6() -> Check {
    if Path::new("/proc/net/if_inet6").exists() {
        Check::ok("IPv6", "present")
    } else {
        Check::not(
            "IPv6",
            State::Wrong,
            "this kernel runs without IPv6",
            "boot without `ipv6.disable=1`",
        )
    }
}

/// The engine that the runner would use.
pub fn engine(config: &Config, system: &System) -> Check {
    let choice = &config.runner.engine;
    let engines = Engine::usable(choice);
    let list: Vec<String> = engines
        .iter()
        .map(|e| {
            format!(
                "{} at {}",
                e.version().unwrap_or_default(),
                e.socket().display()
            )
        })
        .collect();
    if let (true, Some(socket)) = (list.is_empty(), engine::named(choice)) {
        Check::not(
            "engine",
            State::Remark,
            format!("no container engine answers at {}", socket.display()),
            "start it, or correct `runner.engine`; `sallyport net attach` works without an engine",
        )
    } else if list.is_empty() {
        let fix = format!(
            "start Docker (`systemctl start docker`) or Podman's socket (`systemctl start podman.socket`), or install \
             one: {} or {}; `sallyport net attach` works without an engine",
            system.install(Package::Docker),
            system.install(Package::Podman)
        );
        Check::not(
            "engine",
            State::Remark,
            "no container engine answers at its usual socket",
            fix,
        )
    } else if let Some(elsewhere) = engines.iter().find_map(Engine::elsewhere) {
        Check::not(
            "engine",
            State::Remark,
            elsewhere.to_string(),
            elsewhere.hint(),
        )
    } else {
        Check::ok("engine", list.join(", "))
    }
}

/// Below this the journal soon refuses new flows.
const LITTLE_BYTES: u64 = 1 << 30;

/// What is free where the record is kept.
pub fn room(state_dir: &Path) -> Check {
    // where it will be made, if it is not there yet
    let there = state_dir.ancestors().find(|path| path.exists());
    let path = there.unwrap_or(Path::new("/")).display();
    let Ok(stat) = nix::sys::statvfs::statvfs(there.unwrap_or(Path::new("/"))) else {
        return Check::not(
            "room",
            State::Unknown,
            format!("{path} cannot be asked"),
            "look with `df`",
        );
    };
    let free = stat.blocks_available().saturating_mul(stat.fragment_size());
    let seen = format!("{} free at {path}", crate::show::bytes(free));
    if free < LITTLE_BYTES {
        Check::not(
            "room",
            State::Remark,
            seen,
            "free some: a record that cannot be written refuses new flows",
        )
    } else {
        Check::ok("room", seen)
    }
}
