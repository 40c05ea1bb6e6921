//! Modules of the running kernel, asked about only where the trial of a gateway's rules failed or found no queue.
//!
//! Whether a module is loaded says little while everything works: it may be built in, or come by itself.

use super::system::{Package, System};
use super::{Check, State};

/// What a gateway's rules are made of (nft's names of expressions are the modules' names).
pub const RULES: [&str; 7] = [
    "veth",
    "nf_tables",
    "nft_ct",
    "nft_limit",
    "nft_reject_inet",
    "nft_tproxy",
    "nfnetlink_queue",
];
/// What holds a first packet until it is decided.
pub const QUEUE: [&str; 2] = ["nfnetlink_queue", "nft_queue"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Running,
    Loadable,
    Absent,
    /// There is no list to look in.
    Unlisted,
}

/// Each module of a list that does not run.
pub fn checks(system: &System, wanted: &[&str]) -> Vec<Check> {
    let release = system.release();
    let listed = system.has(&format!("lib/modules/{release}/modules.dep"));
    if !listed {
        let running = |name: &&&str| find(system, name) == Found::Running;
        if wanted.iter().filter(running).count() == wanted.len() {
            return Vec::new();
        }
        let fix = format!(
            "on the machine itself: {}; after an update of the kernel, reboot",
            system.install(Package::Modules)
        );
        let seen = format!("the modules of the running kernel {release} are not installed here");
        return vec![Check::not("modules", State::Wrong, seen, fix)];
    }
    wanted
        .iter()
        .filter_map(|name| check(system, name))
        .collect()
}

fn check(system: &System, name: &str) -> Option<Check> {
    let (seen, fix) = match find(system, name) {
        Found::Running => return None,
        Found::Loadable => (
            format!("{name} is not loaded"),
            format!(
                "modprobe {name}; a line `{name}` in /etc/modules-load.d/sallyport.conf (Alpine: /etc/modules) keeps it"
            ),
        ),
        Found::Absent | Found::Unlisted => (
            format!("this kernel has no {name}"),
            system.install(Package::Modules),
        ),
    };
    Some(Check::not("modules", State::Wrong, seen, fix))
}

fn find(system: &System, name: &str) -> Found {
    let release = system.release();
    let list = |file: &str| system.text(&format!("lib/modules/{release}/{file}"));
    let in_list = |text: String| {
        text.lines().any(|line| {
            let path = line.split(':').next().unwrap_or_default();
            let file = path.rsplit('/').next().unwrap_or_default();
            let stem = file.split(".ko").next().unwrap_or_default();
            // a file may be named with dashes where the module has underscores
            stem.replace('-', "_") == name
        })
    };
    if system.has(&format!("sys/module/{name}")) || list("modules.builtin").is_some_and(in_list) {
        return Found::Running;
    }
    match list("modules.dep") {
        Some(text) if in_list(text.clone()) => Found::Loadable,
        Some(_) => Found::Absent,
        None => Found::Unlisted,
    }
}
