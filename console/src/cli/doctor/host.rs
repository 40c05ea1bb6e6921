//! What the machine itself must offer: powers, kernel features, an engine, room.

use std::path::Path;

use super::{Check, State};
use crate::engine::Engine;

/// Kernel parts that enforcement needs, by module name, and what each is for.
const NEEDED: [(&str, &str); 4] = [
    ("nf_tables", "the kernel rules"),
    ("nft_tproxy", "delivering flows to the gateway"),
    ("veth", "the links of sandboxes"),
    ("nf_reject_ipv4", "telling a denied flow so"),
];

/// Kernel parts of which one makes connects honest.
const QUEUE: [&str; 2] = ["nft_queue", "xt_NFQUEUE"];

pub fn checks() -> Vec<Check> {
    let mut checks = vec![powers()];
    let kernel = Kernel::look();
    checks.extend(
        NEEDED
            .iter()
            .map(|(module, purpose)| needed(&kernel, module, purpose)),
    );
    checks.push(queue(&kernel));
    checks.extend([ipv6(), engine(), room()]);
    checks
}

fn powers() -> Check {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .map(str::trim)
        .unwrap_or_default();
    let bits = u64::from_str_radix(effective, 16).unwrap_or_default();
    // linux/capability.h
    let wanted = [
        (10, "NET_BIND_SERVICE"),
        (12, "NET_ADMIN"),
        (13, "NET_RAW"),
        (21, "SYS_ADMIN"),
    ];
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|(bit, _)| bits & (1 << bit) == 0)
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        Check::ok(
            "powers",
            "NET_ADMIN, NET_RAW, NET_BIND_SERVICE and SYS_ADMIN",
        )
    } else {
        let seen = format!("this process lacks {}", missing.join(", "));
        Check::not(
            "powers",
            State::Remark,
            seen,
            "run the gateway as root or with these capabilities",
        )
    }
}

/// What the running kernel has, loaded, built in or loadable.
struct Kernel {
    loaded: String,
    lists: String,
}

impl Kernel {
    fn look() -> Self {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let folder = Path::new("/lib/modules").join(release.trim());
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        Self {
            loaded: std::fs::read_to_string("/proc/modules").unwrap_or_default(),
            lists: read("modules.builtin") + &read("modules.dep"),
        }
    }

    fn has(&self, module: &str) -> Option<&'static str> {
        let file = |line: &str| {
            let path = line.split(':').next().unwrap_or_default();
            let name = path.rsplit('/').next().unwrap_or_default();
            name.split(".ko")
                .next()
                .is_some_and(|n| n.replace('-', "_") == module)
        };
        if self
            .loaded
            .lines()
            .any(|l| l.split(' ').next() == Some(module))
            || Path::new("/sys/module").join(module).exists()
        {
            Some("present")
        } else {
            self.lists.lines().any(file).then_some("available")
        }
    }

    /// Whether absence can be concluded from the lists: a container or a kernel without them tells nothing.
    fn is_told(&self) -> bool {
        !self.lists.is_empty()
    }
}

fn needed(kernel: &Kernel, module: &'static str, purpose: &str) -> Check {
    match kernel.has(module) {
        Some(how) => Check::ok(module, format!("{how}: {purpose}")),
        None if kernel.is_told() => Check::not(
            module,
            State::Wrong,
            format!("this kernel lacks it: {purpose}"),
            format!("install the distribution's full kernel, or `modprobe {module}`"),
        ),
        None => Check::not(
            module,
            State::Unknown,
            format!("cannot be told here: {purpose}"),
            "`sallyport selftest` proves it",
        ),
    }
}

fn queue(kernel: &Kernel) -> Check {
    match QUEUE.iter().find_map(|m| kernel.has(m).map(|how| (m, how))) {
        Some((module, how)) => Check::ok(
            "SYN queue",
            format!("{module} {how}: a connect tells the truth"),
        ),
        None if kernel.is_told() => Check::not(
            "SYN queue",
            State::Remark,
            "neither nft_queue nor xt_NFQUEUE: connects are accepted first and reset on failure",
            "`modprobe nft_queue`, or a kernel that has it",
        ),
        None => Check::not(
            "SYN queue",
            State::Unknown,
            "cannot be told here",
            "`sallyport gateway rules` shows which is used",
        ),
    }
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

fn engine() -> Check {
    let engines = Engine::all();
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
    if list.is_empty() {
        let fix = "start Docker (`systemctl start docker`) or Podman's socket (`systemctl start podman.socket`); \
                   `sallyport net attach` works without an engine";
        Check::not(
            "engine",
            State::Remark,
            "no container engine answers at its usual socket",
            fix,
        )
    } else {
        Check::ok("engine", list.join(", "))
    }
}

/// Below this the journal soon refuses new flows.
const LITTLE_BYTES: u64 = 1 << 30;

fn room() -> Check {
    let path = ["/var/lib/sallyport", "/var/lib", "/"]
        .iter()
        .find(|p| Path::new(p).exists())
        .copied()
        .unwrap_or("/");
    let Ok(stat) = nix::sys::statvfs::statvfs(path) else {
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
