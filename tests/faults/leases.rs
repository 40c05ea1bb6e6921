//! Ten thousand leases: each name of each sandbox has its own address, and keeps it over a kill.

use std::collections::HashSet;
use std::net::IpAddr;

use lab::client::resolve4;
use lab::topology::PUBLIC4;
use lab::wait::eventually;
use lab::{Lab, Sandbox};

use crate::meter;

const SANDBOXES: usize = 20;
const NAMES: usize = 500;
const POLICY: &str = "policy: names\nnetwork: domains\nallow:\n  - host: '*.sallylab.net'\n";

fn name(number: usize) -> String {
    format!("n{number}.sallylab.net")
}

/// Its lease; asked again where the pace of look-ups was reached.
fn lease(sandbox: &Sandbox, number: usize) -> IpAddr {
    sandbox.run(|| eventually("an address", || resolve4(&name(number)).first().copied()))
}

#[test]
fn ten_thousand_leases_are_told_apart_cost_little_and_outlive_the_gateway() {
    let mut lab = Lab::builder().gateway_only().names_only().start();
    for number in 0..NAMES {
        lab.origins.zone.addresses(&name(number), &[PUBLIC4]);
    }
    let sandboxes: Vec<Sandbox> = (0..SANDBOXES).map(|_| lab.sandbox(POLICY)).collect();
    let before = meter::resident_kib(&lab);
    let all = |sandbox| (0..NAMES).map(|number| lease(sandbox, number)).collect();
    let leases: Vec<Vec<IpAddr>> = std::thread::scope(|scope| {
        let threads: Vec<_> = sandboxes
            .iter()
            .map(|sandbox| scope.spawn(move || all(sandbox)))
            .collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|leases| leases.expect("no panic")).collect()
    });
    for of_one in &leases {
        assert_eq!(of_one.iter().collect::<HashSet<_>>().len(), NAMES);
    }
    let more = meter::resident_kib(&lab).saturating_sub(before);
    assert!(
        more < 64 << 10,
        "{more} KiB for {} leases",
        SANDBOXES * NAMES
    );
    lab.gateway_mut().kill();
    lab.gateway_mut().launch();
    for (sandbox, of_one) in sandboxes.iter().zip(&leases) {
        for number in [0, NAMES / 2, NAMES - 1] {
            assert_eq!(lease(sandbox, number), of_one[number]);
        }
    }
}
