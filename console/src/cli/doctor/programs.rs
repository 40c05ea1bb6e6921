//! Programs that what is configured needs, and the packages that have them.

use gateway::source::SourceConfig;
use gateway::source::names::Transport;

use super::settings::Who;
use super::system::{Package, System};
use super::{Check, State};

/// Each program that is missing, for a user whose name may be unknown.
pub fn checks(system: &System, who: Who, sources: &[SourceConfig], user: &str) -> Vec<Check> {
    let by_ssh = |source: &SourceConfig| source.remote.transport() == Transport::Ssh;
    let git = "policies in git (`gateway.sources`)";
    let id_maps = "a rootless engine's user namespace";
    let rootless = who == Who::Ordinary;
    let wanted = [
        (!sources.is_empty(), "git", Package::Git, git),
        (sources.iter().any(by_ssh), "ssh", Package::Ssh, git),
        (
            rootless,
            "podman",
            Package::Podman,
            "an ordinary user's gateway",
        ),
        (rootless, "newuidmap", Package::IdMaps, id_maps),
        (rootless, "newgidmap", Package::IdMaps, id_maps),
    ];
    let mut checks: Vec<Check> = wanted
        .into_iter()
        .filter(|(needed, name, ..)| *needed && system.program(name).is_none())
        .map(|(_, name, package, what)| {
            let seen = format!("`{name}` is not installed, which {what} needs");
            Check::not("packages", State::Wrong, seen, system.install(package))
        })
        .collect();
    if rootless && !user.is_empty() {
        checks.extend(
            ["subuid", "subgid"]
                .iter()
                .filter_map(|file| ids(system, file, user)),
        );
    }
    if checks.is_empty() {
        checks.push(Check::ok(
            "packages",
            "nothing that is configured is missing",
        ));
    }
    checks
}

/// subuid(5): ids that the user's containers may have.
fn ids(system: &System, file: &str, user: &str) -> Option<Check> {
    let text = system.text(&format!("etc/{file}")).unwrap_or_default();
    let own = |line: &str| line.split(':').next() == Some(user);
    if text.lines().any(own) {
        return None;
    }
    let fix = format!("usermod --add-{file}s 100000-165535 {user}");
    let seen =
        format!("/etc/{file} has no line for {user}: no user namespace with more than one id");
    Some(Check::not("packages", State::Wrong, seen, fix))
}
