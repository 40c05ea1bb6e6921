//! Names are leases: an address means a name, for one network, for as long as it lives.

use std::net::SocketAddr;
use std::time::Duration;

use lab::client::{self, connect, connect_within, resolve4};
use lab::origin::port;
use lab::topology::ip;
use lab::wait::eventually;
use lab::{Lab, policies};

fn lab() -> Lab {
    Lab::builder().gateway_only().start()
}

#[test]
fn two_names_of_one_address_are_two_destinations() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let (a, b) = sandbox.run(|| (resolve4("a.ok.sallylab.net"), resolve4("b.ok.sallylab.net")));
    assert!(!a.is_empty() && a != b, "{a:?} {b:?}");
}

#[test]
fn the_same_name_has_the_same_address_for_its_whole_life() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let first = sandbox.run(|| resolve4("ok.sallylab.net"));
    lab.origins.zone.addresses("ok.sallylab.net", &["5.9.77.7"]);
    assert_eq!(sandbox.run(|| resolve4("ok.sallylab.net")), first);
}

#[test]
fn a_pool_address_without_a_lease_is_reset() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::INTERNET);
    let outcome = sandbox.run(|| connect(SocketAddr::new(ip("198.19.200.7"), 443)));
    assert!(outcome.is_refused(), "{outcome:?}");
    lab.recorded("the denial", |r| r["reason"] == "lease_unknown");
}

#[test]
fn leases_survive_a_restart_of_the_gateway() {
    let mut lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS_ANY);
    let lease = sandbox.run(|| client::at("four.sallylab.net", port::ECHO));
    lab.gateway_mut().kill();
    lab.gateway_mut().launch();
    eventually("the leased address to lead there again", || {
        sandbox
            .run(|| connect_within(lease, Duration::from_secs(1)))
            .is_open()
            .then_some(())
    });
    assert_eq!(
        sandbox.run(|| client::at("four.sallylab.net", port::ECHO)),
        lease
    );
}
