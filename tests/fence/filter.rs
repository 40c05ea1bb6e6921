//! `gateway.egress_filter: off`: an operator's choice on the machine itself, with a second switch and a red label.

use std::net::SocketAddr;

use lab::client::connect;
use lab::origin::port;
use lab::topology::{HOST_LAN4, LAN4, METADATA, PUBLIC4, ip};
use lab::wait::eventually;
use lab::{Lab, cli, policies};

const OFF: &str = "egress_filter: \"off\"\nown_listeners: { ports: [9467] }";

fn turned_off() -> Lab {
    let lab = Lab::builder().gateway_only().config(OFF);
    lab.option("--i-accept-open-networks").start()
}

#[test]
fn a_filter_that_a_file_alone_turned_off_starts_nothing() {
    let directory = tempfile::tempdir().expect("a folder");
    let at = directory.path().display();
    let config = directory.path().join("config.yml");
    let text = format!(
        "gateway: {{ namespace: splab-off-{}, state_dir: {at}/state, run_dir: {at}/run, uplink: this, egress_filter: \"off\" }}\n",
        std::process::id()
    );
    std::fs::write(&config, text).expect("configuration");
    let config = config.display().to_string();
    let said = cli::sallyport(&["gateway", "--config", &config]).expect(3);
    assert!(said.err.contains("--i-accept-open-networks"), "{said:?}");
    assert!(!directory.path().join("run").exists(), "nothing was made");
}

#[test]
fn turned_off_opens_private_networks_to_internet_policies_and_nothing_else() {
    let lab = turned_off();
    let sandbox = lab.sandbox(policies::INTERNET);
    let to = |address: &str| SocketAddr::new(ip(address), port::ECHO);
    assert!(sandbox.run(|| connect(to(PUBLIC4)).is_open()));
    assert!(
        sandbox.run(|| connect(to(LAN4)).is_open()),
        "the LAN is open"
    );
    // others stay as they were
    let domains = lab.sandbox(policies::DOMAINS);
    assert!(domains.run(|| connect(to(LAN4)).is_refused()));
    let mark = lab.capture.mark();
    for address in METADATA.iter().chain(&["127.0.0.1", "198.18.0.9"]) {
        let target = SocketAddr::new(ip(address), 80);
        assert!(!sandbox.run(|| connect(target).is_open()), "{address}");
        lab.capture.none_to(mark, ip(address));
    }
    // the machine's services are reached, Sallyport's own are not
    for (number, open) in [(9443, true), (9467, false)] {
        let listener = lab
            .topology
            .uplink
            .run(|| std::net::TcpListener::bind(("0.0.0.0", number)).expect("host service"));
        let there = SocketAddr::new(ip(HOST_LAN4), number);
        assert_eq!(sandbox.run(|| connect(there).is_open()), open, "{number}");
        drop(listener);
    }
    let said = lab.sallyport(&["selftest"]).expect(0).out;
    assert!(said.contains("turned off"), "{said}");
    let verdict = said.lines().last().unwrap_or_default();
    assert!(verdict.starts_with("Turned off: "), "{said}");
    lab.recorded("what is open is recorded all the same", |entry| {
        entry.to_string().contains(LAN4)
    });
}

#[test]
fn a_kernel_part_that_can_be_had_later_is_taken_up_and_proved() {
    let lab = Lab::builder().gateway_only().without_namespaces().start();
    let posture = || {
        let report = lab.sallyport(&["doctor", "--json"]).json();
        let checks = report["checks"].as_array().expect("checks").clone();
        let posture = checks.into_iter().find(|check| check["name"] == "posture");
        posture.expect("the posture")["seen"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(posture().starts_with("Not enforced"), "{}", posture());
    assert_ne!(lab.sallyport(&["selftest"]).code, Some(0));
    lab.permit_namespaces();
    eventually("the gateway to enforce", || {
        (posture() == "Private networks blocked").then_some(())
    });
    lab.sallyport(&["selftest"]).expect(0);
}

#[test]
fn turned_off_is_said_wherever_one_looks() {
    let lab = turned_off();
    let _sandbox = lab.sandbox(policies::INTERNET);
    let report = lab.sallyport(&["doctor", "--json"]).expect(1).json();
    let checks = report["checks"].as_array().expect("checks");
    let posture = checks.iter().find(|check| check["name"] == "posture");
    let posture = posture.expect("the posture");
    assert_eq!(posture["state"], "wrong", "{report}");
    assert!(
        posture["seen"]
            .as_str()
            .is_some_and(|seen| seen.starts_with("Turned off")),
        "{report}"
    );
    let states: Vec<_> = lab.records().iter().map(ToString::to_string).collect();
    assert!(
        states.iter().any(|entry| entry.contains("Turned off")),
        "{states:?}"
    );
}
