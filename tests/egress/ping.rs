//! `ping` from a sandbox: who answers, what is refused and how, how much passes.

use std::net::SocketAddr;

use lab::client::{SURELY, datagram};
use lab::origin::port;
use lab::raw::{self, protocol};
use lab::topology::{OTHER4, PUBLIC4, PUBLIC6, ip};
use lab::wait::eventually;
use lab::{Lab, Sandbox, policies};

/// Echoes to one name and nothing else of it.
const NAMED: &str = "\
policy: named
network: domains
allow:
  - { host: ok.sallylab.net, protocol: icmp }
";

/// Whether `ping` got all its replies, and what it said.
fn ping(sandbox: &Sandbox, arguments: &[&str]) -> (bool, String) {
    let mut argv = vec!["ping", "-n", "-W", "10", "-i", "0.2"];
    argv.extend(arguments);
    let output = sandbox.exec(&argv);
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    (said.contains(" 0% packet loss"), said)
}

fn recorded(lab: &Lab, kind: &str) -> Vec<serde_json::Value> {
    let mut all = lab.records();
    all.retain(|r| r["kind"] == kind && r.pointer("/subject/protocol") == Some(&"icmp".into()));
    all
}

#[test]
fn permitted_addresses_and_names_answer_in_both_families() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    for to in [PUBLIC4, PUBLIC6] {
        let (answered, said) = ping(&sandbox, &["-c", "3", to]);
        assert!(answered && said.contains(&format!("from {to}")), "{said}");
    }
    let opened = recorded(&lab, "open");
    assert_eq!(opened.len(), 2, "one flow for each ping");
    assert_eq!(opened[0]["subject"]["door"], "icmp");
    let named = lab.sandbox(NAMED);
    for family in ["-4", "-6"] {
        let (answered, said) = ping(&named, &[family, "-c", "2", "ok.sallylab.net"]);
        assert!(answered, "{said}");
    }
    let opened = recorded(&lab, "open");
    assert_eq!(opened[2]["subject"]["name"], "ok.sallylab.net");
    // and what is permitted for echoes is permitted for nothing else
    let to = SocketAddr::new(ip(PUBLIC4), port::UDP_ECHO);
    assert!(named.run(|| datagram(to, b"x", SURELY)).is_err());
}

#[test]
fn what_is_denied_is_told_at_once_and_nothing_is_sent() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS_ANY);
    for to in [PUBLIC4, PUBLIC6] {
        let mark = lab.capture.mark();
        let (answered, said) = ping(&sandbox, &["-c", "1", to]);
        assert!(!answered, "{said}");
        let told = ["filtered", "prohibited"];
        assert!(told.iter().any(|word| said.contains(word)), "{said}");
        lab.capture.none_to(mark, ip(to));
    }
    let denied = eventually("the denials", || {
        let denied = recorded(&lab, "denial");
        (!denied.is_empty()).then_some(denied)
    });
    assert!(denied.iter().all(|r| r["reason"] == "address_not_allowed"));
}

#[test]
fn a_payload_that_no_path_needs_goes_nowhere() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let (answered, said) = ping(&sandbox, &["-c", "1", "-s", "1472", PUBLIC4]);
    assert!(answered, "{said}");
    let mark = lab.capture.mark();
    // in fragments, which never pass
    let (answered, said) = ping(&sandbox, &["-c", "1", "-W", "1", "-s", "1473", OTHER4]);
    assert!(!answered, "{said}");
    lab.capture.none_to(mark, ip(OTHER4));
}

#[test]
fn a_flood_is_thinned_out_and_another_sandbox_pings_on() {
    let lab = Lab::builder().gateway_only().start();
    let (flooder, other) = (
        lab.sandbox(policies::INTERNET),
        lab.sandbox(policies::INTERNET),
    );
    let mark = lab.capture.mark();
    let (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) = (flooder.v4(), ip(PUBLIC4)) else {
        panic!("addresses of IPv4");
    };
    let packet = raw::ipv4(from, to, protocol::ICMP, 0, &raw::icmp4(8, b"flood"));
    let began = std::time::Instant::now();
    let sent = flooder.run(|| (0..5_000).filter(|_| raw::send4(&packet).is_ok()).count());
    assert!(sent > 1_000, "only {sent} requests were sent");
    let (answered, said) = ping(&other, &["-c", "2", OTHER4]);
    assert!(answered, "{said}");
    // requests and replies: 100 a second and a burst of 200
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("seconds") + 1;
    let most = 2 * (200 + 100 * seconds);
    let seen = lab.capture.touching(mark, ip(PUBLIC4)).len();
    assert!((1..=most).contains(&seen), "{seen} of at most {most}");
}

#[test]
fn a_sandbox_that_closed_its_udp_port_ends_the_session() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let server = lab
        .topology
        .internet
        .run(|| std::net::UdpSocket::bind(format!("{OTHER4}:9998")).expect("bind"));
    server.set_read_timeout(Some(SURELY)).expect("timeout");
    let to = SocketAddr::new(ip(OTHER4), 9998);
    let mut buffer = [0; 64];
    let peer = sandbox.run(|| {
        let client = std::net::UdpSocket::bind("0.0.0.0:0").expect("bind");
        client.send_to(b"here, for a moment", to).expect("send");
        server.recv_from(&mut buffer).expect("the session").1
    });
    // the client is gone; the next datagram meets a closed port
    eventually("the session ends", || {
        let _ = server.send_to(b"still there?", peer);
        let records = lab.records();
        let ended = |r: &serde_json::Value| r["kind"] == "close" && r["end"] == "reset";
        records.iter().any(ended).then_some(())
    });
}
