//! Five thousand flows at once: from one sandbox, and from a hundred.

use std::fs::File;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use gateway::control::{AttachRequest, Client, PolicySource};
use lab::Lab;
use lab::client::{Connect, connect};
use nix::sched::{CloneFlags, setns, unshare};

use crate::meter;
use crate::server::{Mute, many_descriptors};

const CROWD: usize = 5000;
const POLICY: &str = "policy: crowd\nnetwork: internet\nlimits: { flows: 6000, rate: 100000 }\n";
const CONFIG: &str = "  floods: { connects: 1000000, questions: 1000000, datagrams: 1000000 }";

/// Flows that a gateway with this process's limit of descriptors carries, by `Ceilings`: four descriptors each, some kept
/// for itself.
fn carries(descriptors: usize) -> usize {
    (descriptors - 256) / 4
}

/// Opens so many; every other outcome than open or refused at once fails the test.
fn open(to: std::net::SocketAddr, count: usize) -> (Vec<TcpStream>, usize) {
    let (mut opened, mut refused) = (Vec::new(), 0);
    for _ in 0..count {
        match connect(to) {
            Connect::Open(stream) => opened.push(stream),
            Connect::Refused => refused += 1,
            other => panic!("{other:?} after {}", opened.len()),
        }
    }
    (opened, refused)
}

#[test]
fn five_thousand_flows_of_one_sandbox_are_carried_or_refused_and_its_neighbour_is_served() {
    let most = carries(many_descriptors());
    let lab = Lab::builder()
        .gateway_only()
        .names_only()
        .config(CONFIG)
        .start();
    let (greedy, other) = (lab.sandbox(POLICY), lab.sandbox(POLICY));
    let server = Mute::start(&lab, 4444);
    let before = meter::descriptors(&lab);
    let (opened, refused) = greedy.run(|| open(server.at, CROWD));
    // one alone gets half of what there is
    let expected = CROWD.min(most / 2);
    assert!(
        opened.len() + 16 >= expected,
        "{} of {expected}",
        opened.len()
    );
    assert_eq!(opened.len() + refused, CROWD);
    let (of_other, refused_other) = other.run(|| open(server.at, 100));
    assert_eq!((of_other.len(), refused_other), (100, 0));
    assert!(meter::enforces(&lab));
    let denied = lab
        .records()
        .iter()
        .any(|r| r["reason"] == "limit_flows" || r["first"]["reason"] == "limit_flows");
    assert_eq!(denied, refused > 0);
    drop((opened, of_other));
    server.reset_all();
    meter::is_back_at(&lab, before);
}

fn namespace() -> OwnedFd {
    let made = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
        File::open("/proc/thread-self/ns/net").expect("its file")
    });
    made.join().expect("no panic").into()
}

#[test]
fn five_thousand_flows_of_a_hundred_sandboxes_leave_each_its_part() {
    const SANDBOXES: usize = 100;
    let most = carries(many_descriptors());
    let lab = Lab::builder()
        .gateway_only()
        .names_only()
        .config(CONFIG)
        .start();
    let server = Mute::start(&lab, 4444);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let client = Client::new(lab.gateway().control());
    let mut sandboxes = Vec::new();
    for _ in 0..SANDBOXES {
        let (kept, sent) = {
            let ns = namespace();
            (ns.try_clone().expect("a copy"), ns)
        };
        let request = AttachRequest {
            id: None,
            run: None,
            workspace: "default".into(),
            policy: PolicySource::Document {
                file: "crowd.yml".into(),
                text: POLICY.into(),
                packages: None,
            },
            broker: None,
            member: None,
            labels: std::collections::BTreeMap::new(),
        };
        runtime
            .block_on(client.attach(&request, sent))
            .expect("attach");
        sandboxes.push(kept);
    }
    let before = meter::descriptors(&lab);
    let to = server.at;
    let results: Vec<_> = sandboxes
        .iter()
        .map(|ns| {
            let ns = ns.try_clone().expect("a copy");
            let thread = std::thread::spawn(move || {
                setns(ns, CloneFlags::CLONE_NEWNET).expect("enter");
                open(to, CROWD / SANDBOXES)
            });
            thread.join().expect("no panic")
        })
        .collect();
    let opened: usize = results.iter().map(|(opened, _)| opened.len()).sum();
    assert!(opened >= CROWD.min(most * 9 / 10), "{opened} of {most}");
    let least = results
        .iter()
        .map(|(opened, _)| opened.len())
        .min()
        .expect("some");
    assert!(least >= CROWD / SANDBOXES * 8 / 10, "{least}");
    assert!(meter::enforces(&lab));
    drop(results);
    server.reset_all();
    meter::is_back_at(&lab, before);
}
