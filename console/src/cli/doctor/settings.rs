//! Kernel settings (sysctl) and limits that keep sandboxes from running, or from running well.

use super::system::System;
use super::{Check, State};

/// A flow has two descriptors, and a gateway serves thousands.
const FEW_FILES: u64 = 4096;

/// Whose gateway would run here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// Root's.
    Root,
    /// An ordinary user's, in a user namespace.
    Ordinary,
}

/// One setting that has to be otherwise.
struct Setting {
    /// As sysctl(8) writes it.
    name: &'static str,
    wrong: fn(&str) -> bool,
    state: State,
    /// What it breaks.
    what: &'static str,
    /// A value that does.
    better: &'static str,
    only: Option<Who>,
}

const SETTINGS: [Setting; 5] = [
    Setting {
        name: "user.max_net_namespaces",
        wrong: |value| value == "0",
        state: State::Wrong,
        what: "no network namespace can be made",
        better: "15000",
        only: None,
    },
    Setting {
        name: "user.max_user_namespaces",
        wrong: |value| value == "0",
        state: State::Wrong,
        what: "no user namespace can be made, and an ordinary user's gateway lives in one",
        better: "15000",
        only: Some(Who::Ordinary),
    },
    // of Debian's and Arch's hardened kernels
    Setting {
        name: "kernel.unprivileged_userns_clone",
        wrong: |value| value == "0",
        state: State::Wrong,
        what: "ordinary users may make no user namespace",
        better: "1",
        only: Some(Who::Ordinary),
    },
    // of Ubuntu since 23.10
    Setting {
        name: "kernel.apparmor_restrict_unprivileged_userns",
        wrong: |value| value == "1",
        state: State::Remark,
        what: "AppArmor takes the powers in user namespaces away from programs without a profile",
        better: "0",
        only: Some(Who::Ordinary),
    },
    // icmp(7): an empty range, which is the kernel's default
    Setting {
        name: "net.ipv4.ping_group_range",
        wrong: |value| value.split_ascii_whitespace().eq(["1", "0"]),
        state: State::Remark,
        what: "no ping of a sandbox is answered: this user may ask for no echo",
        better: "\"0 2147483647\"",
        only: Some(Who::Ordinary),
    },
];

/// Each setting that has to be otherwise.
pub fn checks(system: &System, who: Who) -> Vec<Check> {
    let mine = |setting: &&Setting| setting.only.is_none_or(|only| only == who);
    let settings = SETTINGS.iter().filter(mine);
    let mut checks: Vec<Check> = settings.filter_map(|s| check(system, s)).collect();
    checks.extend(files(system));
    if checks.is_empty() {
        checks.push(Check::ok("settings", "nothing stands in the way"));
    }
    checks
}

fn check(system: &System, setting: &Setting) -> Option<Check> {
    let name = setting.name;
    let value = system.text(&format!("proc/sys/{}", name.replace('.', "/")))?;
    if !(setting.wrong)(&value) {
        return None;
    }
    let fix = format!(
        "sysctl -w {name}={0}; a line `{name} = {0}` in /etc/sysctl.d/sallyport.conf keeps it",
        setting.better
    );
    let seen = format!("{name} is {value}: {}", setting.what);
    Some(Check::not("settings", setting.state, seen, fix))
}

/// The hard limit of this process, which a gateway raises its own to.
fn files(system: &System) -> Option<Check> {
    let limits = system.text("proc/self/limits")?;
    let line = limits.lines().find(|l| l.starts_with("Max open files"))?;
    let hard: u64 = line.split_ascii_whitespace().nth(4)?.parse().ok()?;
    if hard >= FEW_FILES {
        return None;
    }
    let fix = "`LimitNOFILE=65536` in the service, or a line in /etc/security/limits.conf";
    let seen = format!("a process may have {hard} open files: few flows at once");
    Some(Check::not("settings", State::Remark, seen, fix))
}
