//! Networks that come and go at the wrong moment leave nothing behind: a detach in the middle of an attach, a gateway that
//! is killed in one. (Invariants 5 and 8.)

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use lab::client::connect;
use lab::control::ask;
use lab::namespace::Namespace;
use lab::origin::port;
use lab::topology::{PUBLIC4, ip};
use lab::wait::eventually;
use lab::{Lab, Sandbox, policies};

fn echoes(sandbox: &Sandbox) -> bool {
    sandbox.run(|| connect(SocketAddr::new(ip(PUBLIC4), port::ECHO)).is_open())
}

fn detach(control: &Path, name: &str) -> u16 {
    ask(control, "DELETE", &format!("/v1/networks/{name}"), "")
}

/// Names of the links of sandboxes in the gateway namespace.
fn links(gateway: &Namespace) -> Vec<String> {
    let out = gateway.exec(&["ip", "-o", "link", "show"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.lines()
        .filter_map(|line| line.split(": ").nth(1))
        .filter_map(|name| name.split('@').next())
        .filter(|name| name.starts_with("sp"))
        .map(str::to_owned)
        .collect()
}

fn rules(gateway: &Namespace) -> String {
    let out = gateway.exec(&["nft", "list", "ruleset"]);
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn invariant_5_a_detach_in_the_middle_of_an_attach_leaves_no_link_that_could_become_anothers() {
    let lab = Lab::builder().gateway_only().start();
    let other = lab.sandbox(policies::INTERNET);
    let (control, gateway) = (lab.gateway().control(), lab.gateway().namespace());
    let (own_links, own_rules) = (links(&gateway), rules(&gateway).len());
    for round in 0..12 {
        let (namespace, name) = (Namespace::new("raced"), format!("raced{round}"));
        let attached = AtomicBool::new(false);
        let status = std::thread::scope(|scope| {
            let detaching = scope.spawn(|| {
                loop {
                    // asked before: an attach that has been answered is there to be detached
                    let answered = attached.load(Ordering::Acquire);
                    let status = detach(&control, &name);
                    if status != 404 || answered {
                        return status;
                    }
                }
            });
            let said = lab.attach(&namespace, &name, policies::INTERNET);
            attached.store(true, Ordering::Release);
            assert_eq!(said.code, Some(0), "{said:?}");
            detaching.join().expect("join")
        });
        assert_eq!(status, 200, "a detach finds the network or waits for it");
    }
    eventually("links and elements of detached networks to go", || {
        let (left, rules) = (links(&gateway), rules(&gateway).len());
        (left == own_links && rules == own_rules).then_some(())
    });
    assert!(echoes(&other), "the permitted twin");
    let log = lab.gateway().log();
    assert!(!log.contains(" sealed "), "{log}");
}

#[test]
fn invariant_8_a_gateway_killed_in_the_middle_of_an_attach_does_not_seal_the_next_one() {
    let mut lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let gateway = lab.gateway().namespace();
    let own = links(&gateway);
    lab.gateway_mut().kill();
    // what it leaves when it dies between making a link and writing down whose it is
    let half = "ip link add sp0123456789ab type veth peer name half";
    for line in [half, "ip link set sp0123456789ab up"] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(gateway.exec(&words).status.success(), "{line}");
    }
    lab.gateway_mut().launch();
    eventually("the adopted network to work again", || {
        echoes(&sandbox).then_some(())
    });
    assert_eq!(links(&gateway), own);
    // and one that comes to be nobody's while it runs
    for line in [half, "ip link set sp0123456789ab up"] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(gateway.exec(&words).status.success(), "{line}");
    }
    eventually("the half link to be removed", || {
        (links(&gateway) == own && echoes(&sandbox)).then_some(())
    });
}
