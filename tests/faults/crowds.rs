//! Five thousand flows at once: from one sandbox at its ceiling, and from a hundred.

use std::net::{SocketAddr, TcpStream};

use gateway::limits::Descriptors;
use lab::client::{Connect, connect};
use lab::{Lab, Sandbox};

use crate::meter;
use crate::server::{Mute, many_descriptors};

const CROWD: usize = 5000;
const SANDBOXES: usize = 100;
const CONFIG: &str = "floods: { connects: 1000000, questions: 1000000, datagrams: 1000000 }";
/// Resident memory that one idle flow may cost, KiB: its task, its place in the tables, and no buffer.
const A_FLOW_KIB: u64 = 16;

/// A lab, and what its gateway carries of the crowd: all of it, unless the machine gives it too few descriptors.
fn lab(share: fn(usize) -> usize) -> (Lab, usize) {
    let most = share(Descriptors::of(many_descriptors()).flows);
    if most < CROWD {
        eprintln!("NOT AT FULL SIZE: the limit of open files here is good for {most} flows");
    }
    let lab = Lab::builder().gateway_only().names_only();
    (lab.config(CONFIG).start(), CROWD.min(most))
}

fn at_ceiling(flows: usize) -> String {
    format!("policy: crowd\nnetwork: internet\nlimits: {{ flows: {flows}, rate: 100000 }}\n")
}

/// Opens so many; every other outcome than open or refused at once fails the test.
fn open(sandbox: &Sandbox, to: SocketAddr, count: usize) -> (Vec<TcpStream>, usize) {
    let (mut opened, mut refused) = (Vec::new(), 0);
    sandbox.run(|| {
        for _ in 0..count {
            match connect(to) {
                Connect::Refused | Connect::Reset => refused += 1,
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
    // one network alone has half of what there is
    let (lab, crowd) = lab(|flows| flows / 2);
    let policy = at_ceiling(crowd);
    let (greedy, other) = (lab.sandbox(&policy), lab.sandbox(&policy));
    let server = Mute::start(&lab, 24_444);
    let before = (meter::descriptors(&lab), meter::resident_kib(&lab));
    let (opened, refused) = open(&greedy, server.at, crowd + 10);
    assert_eq!((opened.len(), refused), (crowd, 10));
    costs(&lab, before.1, crowd);
    let (of_other, refused) = open(&other, server.at, 100);
    assert_eq!((of_other.len(), refused), (100, 0));
    assert!(meter::enforces(&lab));
    lab.recorded("the reason of who was refused", |r| {
        let reasons = [r.pointer("/reason"), r.pointer("/first/reason")];
        reasons.contains(&Some(&"limit_flows".into()))
    });
    drop((opened, of_other));
    server.reset_all();
    meter::is_back_at(&lab, before.0);
    // and its places are its own again
    assert_eq!(open(&greedy, server.at, 100).1, 0);
}

#[test]
fn five_thousand_flows_of_a_hundred_sandboxes_are_carried_and_one_more_sandbox_is_served() {
    // the last of many has room as well
    let (lab, crowd) = lab(|flows| flows / 10 * 9);
    let (each, policy) = (crowd / SANDBOXES, at_ceiling(crowd));
    let server = Mute::start(&lab, 24_444);
    let sandboxes: Vec<Sandbox> = (0..SANDBOXES).map(|_| lab.sandbox(&policy)).collect();
    let before = (meter::descriptors(&lab), meter::resident_kib(&lab));
    let all: Vec<_> = (sandboxes.iter())
        .map(|sandbox| open(sandbox, server.at, each))
        .collect();
    for (opened, refused) in &all {
        assert_eq!((opened.len(), *refused), (each, 0));
    }
    costs(&lab, before.1, each * SANDBOXES);
    let other = lab.sandbox(&policy);
    assert_eq!(open(&other, server.at, 10).1, 0);
    assert!(meter::enforces(&lab));
    drop(all);
    server.reset_all();
    meter::is_back_at(&lab, before.0);
}
