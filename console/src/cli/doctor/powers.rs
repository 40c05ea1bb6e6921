//! Powers (capabilities) of this process, each with what it is for.

use super::system::System;
use super::{Check, State};

/// Numbers and names of linux/capability.h.
const WANTED: [(u32, &str, &str); 4] = [
    (
        10,
        "NET_BIND_SERVICE",
        "to serve DNS and the broker on their ports",
    ),
    (12, "NET_ADMIN", "to make links and rules"),
    (13, "NET_RAW", "to answer pings and watch its own selftest"),
    (21, "SYS_ADMIN", "to enter network namespaces"),
];

/// Each power that is missing.
pub fn checks(system: &System) -> Vec<Check> {
    let status = system.text("proc/self/status").unwrap_or_default();
    let of = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key));
        u64::from_str_radix(line.map(str::trim).unwrap_or_default(), 16).unwrap_or_default()
    };
    let (effective, bounding) = (of("CapEff:"), of("CapBnd:"));
    let missing: Vec<Check> = WANTED
        .iter()
        .filter(|(bit, _, _)| effective & (1 << bit) == 0)
        .map(|(bit, name, what)| {
            // what is not in the bounding set no root of this container gets either
            let fix = if bounding & (1 << bit) == 0 {
                format!("start this container with `--cap-add {name}` (and `--network host`)")
            } else {
                format!("run the gateway as root, or with `AmbientCapabilities=CAP_{name}`")
            };
            let seen = format!("this process lacks {name}, which a gateway needs {what}");
            Check::not("powers", State::Remark, seen, fix)
        })
        .collect();
    if missing.is_empty() {
        let seen = "NET_ADMIN, NET_RAW, NET_BIND_SERVICE and SYS_ADMIN";
        return vec![Check::ok("powers", seen)];
    }
    missing
}
