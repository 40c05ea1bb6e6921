//! The network of a job: one way out, from the first instruction to the last, whoever changes what inside or beside.

use lab::topology::{OTHER4, PUBLIC4, ip};
use lab::wait::eventually;
use lab::{Lab, policies};

use super::world::World;
use crate::place::{Place, at};

const NETWORK: &str = include_str!("probes/network.py");

/// Sends as soon as it exists, over UDP and TCP, as often as it can.
const EAGER: &str = "\
import socket, sys
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for target in [('142.250.74.110', 53), ('142.250.74.110', 443), ('8.8.8.8', 53)]:
    try: u.sendto(b's3cr3t-eager', target)
    except OSError: pass
t = socket.socket(); t.setblocking(False)
try: t.connect(('142.250.74.110', 443))
except OSError: pass
";

fn untouched(lab: &Lab, frames: usize) {
    for address in [OTHER4, "8.8.8.8", "169.254.169.254"] {
        lab.capture.none_to(frames, ip(address));
    }
    assert!(!lab.capture.holds(frames, b"s3cr3t-"), "a secret left");
}

at!(net_49_50_13_dns_36_and_sbx_36_no_network_means_none_and_loopback_works: docker podman rootless gvisor);
fn net_49_50_13_dns_36_and_sbx_36_no_network_means_none_and_loopback_works(place: Place) {
    let world = World::on(place);
    let frames = world.lab.capture.mark();
    let probe = world.probe(&["--policy", "none"], NETWORK);
    assert_eq!(probe["links"], serde_json::json!(["eth0", "lo"]));
    assert_eq!(probe["resolved"], serde_json::json!([]));
    assert_eq!(probe["connected"], serde_json::json!([]));
    for (question, outcome) in probe["looked"].as_object().expect("looked") {
        assert!(outcome != "answers", "{question}: {outcome}");
    }
    assert_eq!(
        probe["inside"],
        serde_json::json!({ "127.0.0.1": "salute", "::1": "salute" })
    );
    // DNS-36: nothing of the machine's resolver settings came along
    let resolv = probe["resolv"].as_str().expect("text");
    assert!(
        !resolv.contains("search") && !resolv.contains("domain"),
        "{resolv}"
    );
    assert!(
        probe["servers"]
            .as_array()
            .expect("servers")
            .iter()
            .all(|s| s == "198.18.0.1" || s.as_str().is_some_and(|s| s.starts_with("fd"))),
        "{resolv}"
    );
    // NET-50: neither the run nor the helpers that it needed put a frame on the uplink
    let seen = world.lab.capture.since(frames);
    assert!(seen.is_empty(), "{seen:?}");

    // SBX-36: root may change what it likes inside, and gets no further
    let frames = world.lab.capture.mark();
    let script = "\
        for f in /etc/resolv.conf /etc/hosts; do (echo nameserver 8.8.8.8 > $f) 2>/dev/null && echo changed $f; done; \
        cp /etc/resolv.conf /tmp/r; echo 'hosts: dns' > /etc/nsswitch.conf; \
        ip route add 142.250.74.0/24 dev eth0 2>/dev/null && echo routed; ip addr add 10.9.9.9/8 dev eth0 2>/dev/null && echo addressed; \
        umount /etc/resolv.conf 2>/dev/null && echo unmounted; \
        curl -s -f -m 3 --resolve ok.sallylab.net:80:142.250.74.110 http://ok.sallylab.net/ -o /dev/null && echo reached; true";
    let policy = world
        .lab
        .file("domains.yml", policies::DOMAINS)
        .display()
        .to_string();
    let said = world
        .run(&["--root", "--policy", &policy], &["/bin/sh", "-c", script])
        .expect(0);
    assert_eq!(said.out, "", "{said:?}");
    untouched(&world.lab, frames);
    // the permitted twin, in the same lab
    let said = world.run(
        &["--policy", &policy],
        &[
            "curl",
            "-s",
            "-m",
            "10",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "http://ok.sallylab.net/",
        ],
    );
    assert_eq!(said.out, "200", "{said:?}");
}

// Sixteen starts on each engine, four at a time: an engine cannot begin earlier than the acknowledgement that the runner
// waits for (`acknowledged`), whatever its speed. The race itself is in the gateway, and run there two hundred times,
// twenty at a time, with a sender that begins before the network does: `tests/fence/races.rs`.
at!(net_01_no_packet_precedes_the_policy: docker podman rootless gvisor);
fn net_01_no_packet_precedes_the_policy(place: Place) {
    let world = World::on(place);
    let frames = world.lab.capture.mark();
    let policy = world
        .lab
        .file("domains.yml", policies::DOMAINS)
        .display()
        .to_string();
    for round in 0..4 {
        let mut together: Vec<_> = (0..4)
            .map(|_| world.spawn(&["--root", "--policy", &policy], &["python3", "-c", EAGER]))
            .collect();
        for child in &mut together {
            assert_eq!(
                child.wait().expect("the run ends").code(),
                Some(0),
                "round {round}"
            );
        }
    }
    untouched(&world.lab, frames);
    assert_eq!(world.containers(), Vec::<String>::new());
}

// Each way to stop once: the runner removes a network only when the engine says that the workload is gone, which does
// not depend on how often it is asked. The loop, with a sender that outlives its network: `tests/fence/races.rs`.
#[test]
fn net_02_nothing_passes_while_a_run_is_being_stopped() {
    let world = World::start();
    let policy = world
        .lab
        .file("domains.yml", policies::DOMAINS)
        .display()
        .to_string();
    let frames = world.lab.capture.mark();
    let program = format!(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n{}    time.sleep(0.001)\n",
        indented(EAGER)
    );
    let mut children: Vec<_> = (0..3)
        .map(|_| {
            world.spawn(
                &["--root", "--policy", &policy, "--timeout", "3s"],
                &["python3", "-c", &program],
            )
        })
        .collect();
    // pausing and waking one, killing another behind the runner's back, the third is left to its timeout
    let workloads = eventually("three workloads", || {
        let names: Vec<_> = world
            .containers()
            .into_iter()
            .filter(|n| n.ends_with("-workload"))
            .collect();
        let live = names.iter().all(|n| world.runs(n));
        (names.len() == 3 && live).then_some(names)
    });
    world.engine(&["pause", &workloads[0]]);
    world.engine(&["unpause", &workloads[0]]);
    world.engine(&["kill", &workloads[1]]);
    for child in &mut children {
        child.wait().expect("the run ends");
    }
    untouched(&world.lab, frames);
    assert_eq!(world.containers(), Vec::<String>::new());
    assert_eq!(world.networks(), Vec::<serde_json::Value>::new());
}

#[test]
fn invariant_1_nothing_passes_while_the_posture_flaps_under_starting_runs() {
    let world = World::start();
    let frames = world.lab.capture.mark();
    let policy = world
        .lab
        .file("domains.yml", policies::DOMAINS)
        .display()
        .to_string();
    let mut together: Vec<_> = (0..5)
        .map(|_| world.spawn(&["--root", "--policy", &policy], &["python3", "-c", EAGER]))
        .collect();
    let gateway = world.lab.gateway().namespace();
    let rules = || {
        let said = gateway.exec(&["nft", "list", "ruleset"]);
        String::from_utf8_lossy(&said.stdout).contains("tproxy")
    };
    let mut flaps = 0;
    while together
        .iter_mut()
        .any(|run| run.try_wait().expect("wait").is_none())
    {
        gateway.exec(&["nft", "flush", "ruleset"]);
        flaps += 1;
        eventually("the rules to come back", || rules().then_some(()));
    }
    assert!(flaps > 1, "the runs were over before the posture flapped");
    for child in &mut together {
        // had as asked, or refused; nothing between
        let code = child.wait().expect("the run ends").code();
        assert!(matches!(code, Some(0 | 125)), "{code:?}");
    }
    untouched(&world.lab, frames);
    assert_eq!(world.containers(), Vec::<String>::new());
    // and the twin, once it is quiet
    let answer = eventually("a run that is not refused", || {
        let command = [
            "curl",
            "-s",
            "-m",
            "10",
            "-o",
            "/dev/null",
            "http://ok.sallylab.net/",
        ];
        let said = world.run(&["--policy", &policy], &command);
        (said.code != Some(125)).then_some(said)
    });
    answer.expect(0);
}

fn indented(text: &str) -> String {
    text.lines().flat_map(|line| ["    ", line, "\n"]).collect()
}

at!(net_03_and_35_the_engine_gives_a_sandbox_no_second_network_and_never_starts_it_again: docker podman rootless gvisor);
fn net_03_and_35_the_engine_gives_a_sandbox_no_second_network_and_never_starts_it_again(
    place: Place,
) {
    let world = World::on(place);
    let policy = world
        .lab
        .file("domains.yml", policies::DOMAINS)
        .display()
        .to_string();
    let frames = world.lab.capture.mark();
    let mut started = world.spawn(&["--policy", &policy, "--timeout", "2m"], &["sleep", "100"]);
    let names = eventually("holder and workload", || {
        let names = world.containers();
        (names.len() == 2).then_some(names)
    });
    let workload = names
        .iter()
        .find(|n| n.ends_with("-workload"))
        .expect("a workload")
        .clone();
    eventually("a running workload", || {
        (world.runs(&workload)).then_some(())
    });
    for name in &names {
        let restart = world.engine(&[
            "inspect",
            "-f",
            "{{.HostConfig.RestartPolicy.Name}} {{.HostConfig.AutoRemove}}",
            name,
        ]);
        assert_eq!(restart.out.trim(), "no false", "{name}");
        // an operator's mistake: an engine with a bridge refuses, one without has nothing to give; the links below tell
        world.engine(&["network", "connect", "bridge", name]);
    }
    let links = world.engine(&["exec", &workload, "cat", "/proc/net/dev"]);
    let mut names: Vec<_> = (links.out.lines())
        .filter_map(|line| Some(line.split_once(':')?.0.trim()))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["eth0", "lo"], "{links:?}");
    // restarted behind the runner's back: the run ends, and what was restarted is gone with it
    world.engine(&["restart", "-t", "0", &workload]);
    started.wait().expect("the run ends");
    eventually("an engine without our containers", || {
        world.containers().is_empty().then_some(())
    });
    untouched(&world.lab, frames);
    world.lab.capture.none_to(frames, ip(PUBLIC4));
    assert!(world.networks().is_empty());
}
