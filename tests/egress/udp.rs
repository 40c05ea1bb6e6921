//! UDP sessions: who is reached, how they end, what both sides are told.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use lab::client::{SURELY, at, datagram};
use lab::origin::port;
use lab::pace::Pace;
use lab::topology::{OTHER4, PUBLIC4, PUBLIC6, ip};
use lab::wait::{eventually, promised};
use lab::{Lab, Sandbox, policies};

/// One name, over UDP on any port.
pub const NAMED: &str = "\
policy: named
network: domains
allow:
  - { host: ok.sallylab.net, protocol: udp, ports: any }
";

pub fn echo(address: &str) -> SocketAddr {
    SocketAddr::new(ip(address), port::UDP_ECHO)
}

/// A socket that waits for answers with patience.
pub fn socket(any: &str) -> UdpSocket {
    let socket = UdpSocket::bind(any).expect("bind");
    socket.set_read_timeout(Some(SURELY)).expect("timeout");
    socket
}

pub fn echoes(socket: &UdpSocket, to: SocketAddr, bytes: &[u8]) -> bool {
    let mut buffer = [0; 2048];
    socket.send_to(bytes, to).is_ok()
        && socket
            .recv_from(&mut buffer)
            .is_ok_and(|(length, from)| buffer.get(..length) == Some(bytes) && from == to)
}

/// The record's entries of one kind about UDP.
fn recorded(lab: &Lab, kind: &str) -> Vec<serde_json::Value> {
    let mut all = lab.records();
    all.retain(|r| r["kind"] == kind && r.pointer("/subject/protocol") == Some(&"udp".into()));
    all
}

/// Waits for the record of a denial of UDP.
fn denied(lab: &Lab, reason: &str) {
    eventually(reason, || {
        let all = recorded(lab, "denial");
        all.iter().any(|r| r["reason"] == reason).then_some(())
    });
}

#[test]
fn public_addresses_answer_under_internet_in_both_families() {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    for to in [PUBLIC4, PUBLIC6] {
        let answer = sandbox.run(|| datagram(echo(to), b"over and out", SURELY));
        assert_eq!(answer.expect(to), b"over and out");
    }
}

#[test]
fn a_rule_that_names_udp_opens_it_and_no_other_does() {
    let lab = Lab::builder().gateway_only().start();
    let named = lab.sandbox(NAMED);
    let answer = named.run(|| datagram(at("ok.sallylab.net", port::UDP_ECHO), b"named", SURELY));
    assert_eq!(answer.expect("permitted"), b"named");
    let opened = recorded(&lab, "open");
    assert_eq!(opened[0]["subject"]["name"], "ok.sallylab.net");
    assert_eq!(opened[0]["subject"]["door"], "udp");
    let unnamed = lab.sandbox(policies::DOMAINS_ANY);
    let mark = lab.origins.datagrams.mark();
    let (pace, began) = (Pace::watch(), Instant::now());
    let refused = unnamed.run(|| datagram(at("ok.sallylab.net", port::UDP_ECHO), b"x", SURELY));
    let took = began.elapsed();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(
        took < pace.stretches(Duration::from_secs(2)),
        "clients fall back at once: {took:?}"
    );
    assert!(lab.origins.datagrams.since(mark).is_empty());
    denied(&lab, "protocol_not_allowed");
}

#[test]
fn datagrams_of_any_size_arrive_whole_and_empty_ones_too() {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    for length in [0, 1, 512, 1400] {
        let bytes = vec![b'z'; length];
        let answer = sandbox.run(|| datagram(echo(PUBLIC4), &bytes, SURELY));
        assert_eq!(answer.expect("an echo"), bytes);
    }
    // an answer that the network cuts is put together again
    let large = lab
        .topology
        .internet
        .run(|| socket(&format!("{OTHER4}:9999")));
    let server = lab.topology.internet.spawn(move || {
        let mut buffer = [0; 64];
        if let Ok((_, peer)) = large.recv_from(&mut buffer) {
            let _ = large.send_to(&vec![b'L'; 20_000], peer);
        }
    });
    let to = SocketAddr::new(ip(OTHER4), 9999);
    let answer = sandbox.run(|| datagram(to, b"large, please", SURELY));
    assert_eq!(answer.expect("a large answer"), vec![b'L'; 20_000]);
    server.join().expect("server");
}

#[test]
fn one_socket_speaks_with_many_and_its_port_is_used_again() {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let fine = sandbox.run(|| {
        let first = socket("0.0.0.0:4500");
        let both = echoes(&first, echo(PUBLIC4), b"one") && echoes(&first, echo(OTHER4), b"two");
        drop(first);
        let second = socket("0.0.0.0:4500");
        both && echoes(&second, echo(PUBLIC4), b"three")
    });
    assert!(fine);
}

#[test]
fn a_client_that_roams_to_another_port_goes_on() {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let mark = lab.origins.datagrams.mark();
    let fine = sandbox.run(|| {
        (0..3).all(|n| {
            echoes(
                &socket("0.0.0.0:0"),
                echo(PUBLIC4),
                format!("at {n}").as_bytes(),
            )
        })
    });
    assert!(fine);
    assert_eq!(lab.origins.datagrams.since(mark).len(), 3);
}

#[test]
fn a_closed_port_far_away_is_refused_here() {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    for to in [PUBLIC4, PUBLIC6] {
        let to = SocketAddr::new(ip(to), port::CLOSED);
        let refused = sandbox.run(|| datagram(to, b"anybody?", SURELY));
        assert_eq!(
            refused.unwrap_err().kind(),
            ErrorKind::ConnectionRefused,
            "{to}"
        );
    }
}

/// Sends until the answer fits or patience is over; each datagram may be lost.
fn ends(what: &str, sandbox: &Sandbox, live: &UdpSocket) {
    let refused = promised(Duration::from_secs(2), || {
        sandbox.run(|| {
            let _ = live.send(b"still here?");
            matches!(live.recv(&mut [0; 64]), Err(e) if e.kind() == ErrorKind::ConnectionRefused)
                .then_some(())
        })
    });
    assert!(
        refused.is_some(),
        "{what}: the session went on for two seconds"
    );
}

fn connected(sandbox: &Sandbox, to: SocketAddr) -> UdpSocket {
    sandbox.run(|| {
        let live = socket("0.0.0.0:0");
        live.set_read_timeout(Some(Duration::from_millis(100)))
            .expect("timeout");
        live.connect(to).expect("connect");
        live
    })
}

#[test]
fn invariant_7_a_tightened_policy_closes_sessions_within_two_seconds() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let live = connected(&sandbox, echo(PUBLIC4));
    let answers = || {
        sandbox.run(|| {
            let _ = live.send(b"ping");
            live.recv(&mut [0; 64]).ok()
        })
    };
    eventually("an echo", answers);
    lab.replace_policy(&sandbox, policies::INTERNET_PRIVATE)
        .expect(0);
    eventually("an echo under a wider policy", answers);
    lab.replace_policy(&sandbox, policies::NONE).expect(0);
    ends("replaced", &sandbox, &live);
    let close = eventually("the close record", || recorded(&lab, "close").pop());
    assert_eq!(close["end"], "policy_superseded", "{close}");
    assert!(close["datagrams"][0].as_u64() >= Some(2), "{close}");
    assert!(
        close["up"].as_u64() >= Some(8) && close["down"].as_u64() >= Some(8),
        "{close}"
    );
    denied(&lab, "network_none");
}

#[test]
fn invariant_8_no_session_outlives_its_network() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let live = connected(&sandbox, echo(PUBLIC4));
    eventually("an echo", || {
        sandbox.run(|| {
            let _ = live.send(b"ping");
            live.recv(&mut [0; 64]).ok()
        })
    });
    let peer = lab.origins.datagrams.all().pop().expect("it arrived").0;
    lab.detach(&sandbox).expect(0);
    eventually("the close record", || recorded(&lab, "close").pop());
    // the upstream port is gone: what a server still sends is refused by the machine
    let gone =
        promised(Duration::from_secs(2), || {
            lab.topology.internet.run(|| {
            let server = UdpSocket::bind((OTHER4, 0)).expect("bind");
            server.set_read_timeout(Some(Duration::from_millis(100))).expect("timeout");
            server.connect(peer).expect("connect");
            let _ = server.send(b"late");
            matches!(server.recv(&mut [0; 8]), Err(e) if e.kind() == ErrorKind::ConnectionRefused)
                .then_some(())
        })
        });
    assert!(gone.is_some());
}

#[test]
fn at_the_limit_busy_sessions_stay_and_the_one_idle_for_longest_makes_room() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox("policy: two\nnetwork: internet\nlimits: { flows: 2 }\n");
    let mark = lab.origins.datagrams.mark();
    let (first, second) = sandbox.run(|| {
        let two = (socket("0.0.0.0:4001"), socket("0.0.0.0:4002"));
        assert!(echoes(&two.0, echo(PUBLIC4), b"first"));
        assert!(echoes(&two.1, echo(PUBLIC4), b"second"));
        two
    });
    let third = connected(&sandbox, echo(PUBLIC4));
    let refused = sandbox.run(|| {
        let _ = third.send(b"third");
        third.recv(&mut [0; 64])
    });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    denied(&lab, "limit_flows");
    // the second stays busy; the first is idle and gives its place up
    eventually("a place", || {
        sandbox.run(|| {
            assert!(echoes(&second, echo(PUBLIC4), b"second"));
            let _ = third.send(b"third");
            third.recv(&mut [0; 64]).ok()
        })
    });
    let seen = lab.origins.datagrams.since(mark);
    let ports = |what: &[u8]| {
        let mut from: Vec<_> = seen
            .iter()
            .filter(|(_, b)| b == what)
            .map(|(p, _)| p.port())
            .collect();
        from.dedup();
        from.len()
    };
    assert_eq!(
        ports(b"second"),
        1,
        "the busy session kept its upstream port"
    );
    drop(first);
}

#[test]
fn an_upload_budget_ends_the_session_that_exceeds_it() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox("policy: little\nnetwork: internet\nlimits: { upload: 64KiB }\n");
    let live = connected(&sandbox, echo(PUBLIC4));
    let mark = lab.origins.datagrams.mark();
    eventually("the end", || {
        // more than once: what comes before the session is open is held or lost
        sandbox.run(|| {
            for _ in 0..100 {
                let _ = live.send(&[b'u'; 1000]);
            }
        });
        recorded(&lab, "close")
            .pop()
            .filter(|r| r["end"] == "limit_upload")
    });
    let arrived: usize = lab
        .origins
        .datagrams
        .since(mark)
        .iter()
        .map(|(_, b)| b.len())
        .sum();
    assert!(arrived <= 64 << 10, "{arrived} bytes arrived");
    ends("over budget", &sandbox, &live);
}
