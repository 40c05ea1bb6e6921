//! Five thousand flows at once: from one sandbox at its ceiling, and from a hundred.

use std::net::{SocketAddr, TcpStream};

use gateway::limits::Descriptors;
use lab::client::{Connect, connect};
use lab::{Lab, Sandbox};

use crate::meter;
use crate::server::{Mute, many_descriptors};

const CROWD: usize = 5000;
const SANDBOXES: usize = 100;
const AT_CEILING: &str =
    "policy: crowd\nnetwork: internet\nlimits: { flows: 5000, rate: 100000 }\n";
const CONFIG: &str = "floods: { connects: 1000000, questions: 1000000, datagrams: 1000000 }";
/// Resident memory that one idle flow may cost, KiB: its task, its place in the tables, and no buffer.
const A_FLOW_KIB: u64 = 16;

/// A lab whose gateway has descriptors for so many flows of one network.
fn lab(flows: usize) -> Lab {
    let most = Descriptors::of(many_descriptors()).flows;
    assert!(most / 2 >= flows, "this machine permits {most} flows");
    let lab = Lab::builder().gateway_only().names_only();
    lab.config(CONFIG).start()
}

/// Opens so many; every other outcome than open or refused at once fails the test.
fn open(sandbox: &Sandbox, to: SocketAddr, count: usize) -> (Vec<TcpStream>, usize) {
    let (mut opened, mut refused) = (Vec::new(), 0);
    sandbox.run(|| {
        for _ in 0..count {
            match connect(to) {
                Connect::Refused => refused += 1,
                other => opened.push(other.expect_open()),
            }
        }
    });
    (opened, refused)
}

/// Says what so many flows cost, and fails where that is too much.
fn costs(lab: &Lab, before: u64, flows: usize) {
    let more = meter::resident_kib(lab).saturating_sub(before);
    println!("{flows} flows: {more} KiB of resident memory more");
    let most = A_FLOW_KIB * u64::try_from(flows).expect("few");
    assert!(more < most, "{more} KiB for {flows} flows");
}

#[test]
fn five_thousand_flows_of_one_sandbox_are_its_ceiling_and_its_neighbour_is_served() {
    let lab = lab(CROWD);
    let (greedy, other) = (lab.sandbox(AT_CEILING), lab.sandbox(AT_CEILING));
    let server = Mute::start(&lab, 4444);
    let before = (meter::descriptors(&lab), meter::resident_kib(&lab));
    let (opened, refused) = open(&greedy, server.at, CROWD + 10);
    assert_eq!((opened.len(), refused), (CROWD, 10));
    costs(&lab, before.1, CROWD);
    let (of_other, refused) = open(&other, server.at, 100);
    assert_eq!((of_other.len(), refused), (100, 0));
    assert!(meter::enforces(&lab));
    lab.recorded("the reason of who was refused", |r| {
        r["reason"] == "limit_flows" || r["first"]["reason"] == "limit_flows"
    });
    drop((opened, of_other));
    server.reset_all();
    meter::is_back_at(&lab, before.0);
    // and its places are its own again
    assert_eq!(open(&greedy, server.at, 100).1, 0);
}

#[test]
fn five_thousand_flows_of_a_hundred_sandboxes_are_carried_and_one_more_sandbox_is_served() {
    let lab = lab(CROWD);
    let server = Mute::start(&lab, 4444);
    let sandboxes: Vec<Sandbox> = (0..SANDBOXES).map(|_| lab.sandbox(AT_CEILING)).collect();
    let before = (meter::descriptors(&lab), meter::resident_kib(&lab));
    let each = |sandbox: &Sandbox| open(sandbox, server.at, CROWD / SANDBOXES);
    let all: Vec<_> = sandboxes.iter().map(each).collect();
    for (opened, refused) in &all {
        assert_eq!((opened.len(), *refused), (CROWD / SANDBOXES, 0));
    }
    costs(&lab, before.1, CROWD);
    let other = lab.sandbox(AT_CEILING);
    assert_eq!(open(&other, server.at, 10).1, 0);
    assert!(meter::enforces(&lab));
    drop(all);
    server.reset_all();
    meter::is_back_at(&lab, before.0);
}
