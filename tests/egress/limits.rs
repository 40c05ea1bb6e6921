//! Budgets: reaching one is a denial with its own reason, and starves nobody else.

use std::net::SocketAddr;

use lab::client::{connect, exchange};
use lab::origin::port;
use lab::topology::{PUBLIC4, ip};
use lab::{Lab, policies};

#[test]
fn flows_above_the_limit_are_reset_and_recorded() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox("policy: few\nnetwork: internet\nlimits: { flows: 3 }\n");
    let to = SocketAddr::new(ip(PUBLIC4), port::MUTE);
    let open: Vec<_> = sandbox.run(|| (0..3).map(|_| connect(to).expect_open()).collect());
    assert!(sandbox.run(|| connect(to)).is_refused());
    lab.recorded("the denial", |r| r["reason"] == "limit_flows");
    drop(open);
}

#[test]
fn invariant_5_one_network_at_its_limit_leaves_others_alone() {
    let lab = Lab::builder().gateway_only().start();
    let noisy = lab.sandbox("policy: few\nnetwork: internet\nlimits: { flows: 3 }\n");
    let quiet = lab.sandbox(policies::INTERNET);
    let to = SocketAddr::new(ip(PUBLIC4), port::MUTE);
    let open: Vec<_> = noisy.run(|| (0..50).map(|_| connect(to)).collect());
    assert!(quiet.run(|| connect(to)).is_open());
    drop(open);
}

#[test]
fn an_upload_budget_ends_the_flow_that_exceeds_it() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox("policy: little\nnetwork: internet\nlimits: { upload: 64KiB }\n");
    let mark = lab.origins.received.mark();
    sandbox.run(|| {
        let mut stream = connect(SocketAddr::new(ip(PUBLIC4), port::MUTE)).expect_open();
        exchange(&mut stream, &vec![b'u'; 8 << 20])
    });
    let arrived: usize = lab
        .origins
        .received
        .since(mark)
        .iter()
        .map(|(_, bytes)| bytes.len())
        .sum();
    assert!(
        arrived < 2 << 20,
        "{arrived} bytes arrived under a budget of 64 KiB"
    );
    lab.recorded("the end of the flow", |r| {
        r.to_string().contains("limit_upload")
    });
}
