//! What a job can do inside: nothing that leads out. Agent and root, the class hardened.

use std::os::linux::net::SocketAddrExt as _;

use serde_json::Value;

use super::world::World;
use crate::place::{Place, at};

const POWER: &str = include_str!("probes/power.py");
const MACHINE: &str = include_str!("probes/machine.py");

/// `CapBnd` of root: the fourteen that `SECURITY.md` and the runner's list name, by their bits in capability.h.
const ROOT_CAPABILITIES: [u32; 14] = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31];

fn bits(numbers: &[u32]) -> u64 {
    numbers.iter().map(|n| 1u64 << n).sum()
}

fn set(status: &Value, key: &str) -> u64 {
    u64::from_str_radix(
        status[key]
            .as_str()
            .unwrap_or_else(|| panic!("no {key} in {status}")),
        16,
    )
    .expect("hex")
}

/// No capability that is not in this set, no way to gain one, a filter in force: in the process and in its children.
fn bounded(probe: &Value, most: u64) {
    for process in ["status", "child"] {
        let status = &probe[process];
        for key in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(set(status, key) & !most, 0, "{process} {key}: {status}");
        }
        assert_eq!(status["NoNewPrivs"], "1", "{process}");
        assert_eq!(status["Seccomp"], "2", "{process}");
    }
}

at!(sbx_01_02_03_23_24_and_net_45_an_agent_has_no_power_and_gains_none: docker podman rootless);
fn sbx_01_02_03_23_24_and_net_45_an_agent_has_no_power_and_gains_none(place: Place) {
    let world = World::on(place);
    let probe = world.probe(&[], POWER);
    assert_eq!(probe["uid"], 1000);
    bounded(&probe, 0);
    // SBX-02: there are such programs, and none of them helps
    assert!(
        !probe["elevated"].as_array().expect("a list").is_empty(),
        "the image has no set-uid program to try"
    );
    assert!(probe["su"] != "0" && probe["su_code"] != 0, "su: {probe}");
    assert_eq!(probe["copied"], "1000");
    refused_calls(&probe, &[]);
    for node in ["sda", "mem", "kmsg"] {
        assert!(probe["nodes"][node] != "ok", "{}", probe["nodes"]);
    }
    families(&probe, &["inet", "inet6", "unix", "netlink_route"]);
    assert_eq!(probe["terminals"], serde_json::json!([]));
    assert_eq!(probe["tty"], serde_json::json!([false, false, false]));
    // SBX-01: whoever the engine lets into the container afterwards has no more than the job
    let mut started = world.spawn(&[], &["sleep", "60"]);
    let name = lab::wait::eventually("the workload", || {
        world
            .containers()
            .into_iter()
            .find(|n| n.ends_with("-workload"))
    });
    let status = lab::wait::eventually("a session in the workload", || {
        let said = world.engine(&["exec", &name, "cat", "/proc/self/status"]);
        (said.code == Some(0)).then_some(said.out)
    });
    for line in [
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(status.contains(line), "{line} is not in {status}");
    }
    world.engine(&["kill", &name]);
    started.wait().expect("the run ends");
}

at!(sbx_01_03_24_and_net_45_root_has_a_known_list_and_no_way_out: docker podman rootless);
fn sbx_01_03_24_and_net_45_root_has_a_known_list_and_no_way_out(place: Place) {
    let world = World::on(place);
    let probe = world.probe(&["--root"], POWER);
    assert_eq!(probe["uid"], 0);
    bounded(&probe, bits(&ROOT_CAPABILITIES));
    assert_eq!(
        set(&probe["status"], "CapEff"),
        bits(&ROOT_CAPABILITIES),
        "{}",
        probe["status"]
    );
    refused_calls(&probe, &[]);
    for node in ["sda", "mem", "kmsg"] {
        assert!(
            probe["nodes"][node] != "ok",
            "a device of the machine opens: {}",
            probe["nodes"]
        );
    }
    families(
        &probe,
        &[
            "inet",
            "inet6",
            "unix",
            "netlink_route",
            "packet",
            "raw_icmp",
        ],
    );
    assert_eq!(probe["terminals"], serde_json::json!([]));
}

/// Every call of the probe failed because it is forbidden, not because its arguments were wrong.
fn refused_calls(probe: &Value, except: &[&str]) {
    let calls = probe["calls"].as_object().expect("calls");
    assert!(calls.len() > 20);
    for (name, outcome) in calls {
        let refused = outcome == "EPERM" || outcome == "ENOSYS";
        assert!(
            refused || except.contains(&name.as_str()),
            "{name}: {outcome}"
        );
    }
}

fn families(probe: &Value, open: &[&str]) {
    for (name, outcome) in probe["families"].as_object().expect("families") {
        if open.contains(&name.as_str()) {
            assert_eq!(outcome, "ok", "{name}");
        } else {
            assert!(outcome != "ok", "a socket of the family {name} opens");
        }
    }
}

at!(sbx_04_06_07_37_and_net_46_nothing_of_the_machine_is_there: docker podman rootless);
fn sbx_04_06_07_37_and_net_46_nothing_of_the_machine_is_there(place: Place) {
    let world = World::on(place);
    let abstract_name = format!("sallyport-test-abstract-{}", std::process::id());
    let address =
        std::os::unix::net::SocketAddr::from_abstract_name(&abstract_name).expect("a name");
    let _listener =
        std::os::unix::net::UnixListener::bind_addr(&address).expect("an abstract socket");
    let program = MACHINE.replace("sallyport-test-abstract", &abstract_name);
    for options in [&[][..], &["--root"]] {
        let probe = world.probe(options, &program);
        for (path, outcome) in probe["writes"].as_object().expect("writes") {
            assert!(outcome != "ok", "{path} can be written ({options:?})");
        }
        for (path, outcome) in probe["reads"].as_object().expect("reads") {
            assert!(outcome != "ok", "{path} can be read ({options:?})");
        }
        for (path, names) in probe["listed"].as_object().expect("listed") {
            assert!(
                names.is_null() || names == &serde_json::json!([]),
                "{path} holds {names}"
            );
        }
        for key in ["groups", "sockets", "blocks", "reached"] {
            assert_eq!(probe[key], serde_json::json!([]), "{key} ({options:?})");
        }
        assert!(
            !probe["abstract"].to_string().contains(&abstract_name),
            "{}",
            probe["abstract"]
        );
        // our own process 1 and the probe; nobody else's
        assert_eq!(probe["processes"], 2, "{probe}");
        mounts(&probe, place);
        // SBX-07: process 1 is not the job's to read, whoever the job is
        for name in ["mem", "root", "cwd", "exe", "fd/0", "ptrace", "environ"] {
            let outcome = probe["first"][name].as_str().unwrap_or_default();
            assert!(
                matches!(outcome, "EACCES" | "EPERM" | "ENOENT" | "EIO"),
                "/proc/1/{name}: {outcome} ({options:?})"
            );
        }
        assert_eq!(probe["core"], serde_json::json!([0, 0]));
        assert!(probe["files"].as_u64().expect("a number") <= 16_384);
        for (name, _) in probe["environment"].as_object().expect("environment") {
            assert!(
                [
                    "PATH",
                    "HOME",
                    "HOSTNAME",
                    "PWD",
                    "LC_CTYPE",
                    "TERM",
                    "container"
                ]
                .contains(&name.as_str()),
                "{name}"
            );
        }
        let odd = probe["fds"]
            .as_array()
            .expect("fds")
            .iter()
            .filter_map(Value::as_str);
        for fd in odd {
            assert!(
                fd == "/dev/null" || fd.starts_with("pipe:") || fd.starts_with("/proc/"),
                "inherited {fd}"
            );
        }
    }
}

/// Only the engine's own file systems and single read-only files.
fn mounts(probe: &Value, place: Place) {
    let files = [
        "/usr/local/bin/sally",
        "/etc/resolv.conf",
        "/etc/hosts",
        "/etc/hostname",
        "/run/.containerenv",
    ];
    for mount in probe["mounts"].as_array().expect("mounts") {
        let (at, kind) = (
            mount["at"].as_str().unwrap_or_default(),
            mount["type"].as_str().unwrap_or_default(),
        );
        if files.contains(&at) || at.starts_with("/.sally-") {
            assert!(
                mount["options"]
                    .as_str()
                    .unwrap_or_default()
                    .starts_with("ro"),
                "{mount}"
            );
            continue;
        }
        let own = [
            "overlay",
            "proc",
            "tmpfs",
            "devpts",
            "sysfs",
            "cgroup",
            "cgroup2",
            "mqueue",
            "vfs",
            "btrfs",
            "fuse.fuse-overlayfs",
        ];
        // without root no device can be made, so the few that everybody has are the machine's own
        let everybodys = [
            "/dev/null",
            "/dev/zero",
            "/dev/full",
            "/dev/tty",
            "/dev/random",
            "/dev/urandom",
        ];
        // and what engines hide lies behind the first of them
        let hidden = mount["root"] == "/null";
        let device = place.rootless && kind == "devtmpfs" && (hidden || everybodys.contains(&at));
        assert!(device || own.contains(&kind), "{mount}");
        if ["sysfs", "cgroup", "cgroup2"].contains(&kind) {
            assert!(
                mount["options"]
                    .as_str()
                    .unwrap_or_default()
                    .starts_with("ro"),
                "{mount}"
            );
        }
    }
}

#[test]
fn sbx_37_a_crash_leaves_no_core_and_says_so_by_its_code() {
    let world = World::start();
    let said = world.run(
        &[],
        &[
            "python3",
            "-c",
            "import os; held = b's3cr3t' * 1000; os.abort()",
        ],
    );
    assert_eq!(said.code, Some(134), "{said:?}");
    let said = world.run(
        &[],
        &[
            "/bin/sh",
            "-c",
            "cd /tmp; python3 -c 'import os; os.abort()'; ls -A",
        ],
    );
    assert!(!said.out.contains("core"), "{said:?}");
}
