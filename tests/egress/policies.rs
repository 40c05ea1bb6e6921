//! Policies of live networks: replaced, refused, composed. (Invariants 1, 7, 11, 12.)

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lab::client::{connect, resolve4};
use lab::namespace::Namespace;
use lab::origin::port;
use lab::pace::Pace;
use lab::topology::{PUBLIC4, ip};
use lab::wait::promised;
use lab::{Lab, policies};

#[test]
fn invariant_7_a_tightened_policy_closes_what_it_no_longer_permits_within_two_seconds() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let to = SocketAddr::new(ip(PUBLIC4), port::MUTE);
    let mut stream = sandbox.run(|| connect(to).expect_open());
    std::io::Write::write_all(&mut stream, b"alive").expect("write");
    let mark = lab.origins.ended.mark();
    lab.replace_policy(&sandbox, policies::DOMAINS).expect(0);
    let (pace, began) = (Pace::watch(), Instant::now());
    let tried = sandbox.run(|| connect(to));
    assert!(tried.is_refused(), "new flows at once");
    assert!(began.elapsed() < pace.stretches(Duration::from_secs(2)));
    let ended = promised(Duration::from_secs(2), || {
        lab.origins.ended.since(mark).first().copied()
    });
    assert!(ended.is_some(), "the live flow outlived its permission");
    assert!(
        !sandbox.run(|| resolve4("ok.sallylab.net")).is_empty(),
        "the new policy permits what it says"
    );
}

#[test]
fn invariant_11_a_broken_policy_changes_nothing() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let said = lab.replace_policy(&sandbox, "policy: broken\nnetwork: domain\n");
    assert_ne!(said.code, Some(0));
    assert!(
        said.err.contains(":2:"),
        "the mistake has its place: {}",
        said.err
    );
    assert!(
        sandbox
            .run(|| connect(SocketAddr::new(ip(PUBLIC4), port::ECHO)))
            .is_open(),
        "the old policy still decides"
    );
}

#[test]
fn what_is_not_enforced_yet_is_refused_and_said() {
    let lab = Lab::builder().gateway_only().start();
    let policy =
        "policy: asks\nnetwork: domains\nunknown: ask\nallow:\n  - host: ok.sallylab.net\n";
    let said = lab.attach(&Namespace::new("refused"), "refused", policy);
    assert_ne!(said.code, Some(0));
    assert!(said.err.contains("not enforced yet"), "{}", said.err);
}

#[test]
fn invariant_2_only_a_bare_namespace_of_its_own_is_attached() {
    let lab = Lab::builder().gateway_only().start();
    let dirty = Namespace::new("dirty");
    dirty.ip(&[
        "link add d0 type veth peer name d1",
        "addr add 10.1.1.1/24 dev d0",
        "link set d0 up",
    ]);
    for (what, namespace) in [
        ("with another interface", dirty),
        ("the gateway's", lab.gateway().namespace()),
        ("the uplink's", lab.topology.uplink.clone()),
    ] {
        let said = lab.attach(&namespace, "refused", policies::NONE);
        assert_ne!(said.code, Some(0), "{what} was attached: {}", said.out);
    }
    lab.attach(&Namespace::new("fresh"), "fresh", policies::NONE)
        .expect(0);
}

#[test]
fn invariant_1_attach_acknowledges_the_exact_policy() {
    let lab = Lab::builder().gateway_only().start();
    let checked = lab.sallyport(&[
        "policy",
        "check",
        &lab.file("p.yml", policies::DOMAINS).display().to_string(),
        "--json",
    ]);
    let hash = checked.expect(0).json()["files"][0]["hash"].clone();
    let attached = lab
        .attach(&Namespace::new("one"), "one", policies::DOMAINS)
        .expect(0)
        .json();
    assert_eq!(attached["job_policy"], hash);
    assert_eq!(attached["generation"], 1);
}

#[test]
fn invariant_12_the_instance_floor_narrows_every_policy() {
    let directory = tempfile::tempdir().expect("directory");
    let floor = directory.path().join("floor.yml");
    std::fs::write(
        &floor,
        "policy: floor\nnetwork: internet\ndeny:\n  - cidr: 93.184.216.0/24\n    reason: floor\n",
    )
    .expect("floor");
    let lab = Lab::builder()
        .gateway_only()
        .config(&format!("instance_floor: {}", floor.display()))
        .start();
    let sandbox = lab.sandbox(policies::INTERNET);
    assert!(
        sandbox
            .run(|| connect(SocketAddr::new(ip(PUBLIC4), port::ECHO)))
            .is_refused()
    );
    assert!(
        sandbox
            .run(|| connect(SocketAddr::new(ip("5.9.77.7"), port::ECHO)))
            .is_open()
    );
}
