//! The permitted twins of the denials: the same lab lets through what a policy permits.

use std::net::SocketAddr;
use std::time::Duration;

use lab::client::{at, connect, exchange, http_get, reads};
use lab::origin::{BANNER, port};
use lab::pace::Pace;
use lab::topology::{HOST_LAN4, LAN4, LAN6, PUBLIC4, PUBLIC6, ip};
use lab::{Lab, policies};

#[test]
fn a_public_address_is_reached_in_both_families_under_internet() {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    for address in [PUBLIC4, PUBLIC6] {
        let mark = lab.origins.accepted.mark();
        let to = SocketAddr::new(ip(address), port::ECHO);
        let echoed = sandbox.run(|| {
            let mut stream = connect(to).expect_open();
            std::io::Write::write_all(&mut stream, b"hello out there").expect("write");
            reads(&mut stream, b"hello out there")
        });
        assert!(echoed, "{address}");
        assert_eq!(
            lab.origins
                .accepted
                .since(mark)
                .iter()
                .map(|a| a.local)
                .collect::<Vec<_>>(),
            [to]
        );
    }
}

#[test]
fn a_permitted_name_is_reached_by_http_and_tls() {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let body = sandbox.run(|| {
        http_get(
            &mut connect(at("ok.sallylab.net", 80)).expect_open(),
            "ok.sallylab.net",
            "/",
        )
    });
    assert!(body.starts_with("HTTP/1.1 200"), "{body}");
    let answer = sandbox.run(|| {
        lab.authority.get(
            connect(at("ok.sallylab.net", 443)).expect_open(),
            "ok.sallylab.net",
        )
    });
    assert!(answer.expect("TLS").starts_with("HTTP/1.1 200"));
    assert_eq!(
        lab.origins.server_names.all(),
        [Some("ok.sallylab.net".to_owned())]
    );
}

#[test]
fn a_server_that_speaks_first_is_heard_without_delay() {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policies::DOMAINS_ANY);
    let pace = Pace::watch();
    let heard = sandbox.run(|| {
        let started = std::time::Instant::now();
        let mut stream = connect(at("four.sallylab.net", port::BANNER)).expect_open();
        reads(&mut stream, BANNER.as_bytes()).then(|| started.elapsed())
    });
    let (elapsed, most) = (heard.expect("banner"), Duration::from_secs(1));
    assert!(elapsed < pace.stretches(most), "a peek delay: {elapsed:?}");
}

#[test]
fn private_networks_and_the_host_open_with_private() {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policies::INTERNET_PRIVATE);
    for address in [LAN4, LAN6, "10.0.0.5"] {
        let body = sandbox.run(|| {
            http_get(
                &mut connect(SocketAddr::new(ip(address), port::HTTP)).expect_open(),
                "lan.sallylab.net",
                "/",
            )
        });
        assert!(body.starts_with("HTTP/1.1 200"), "{address}: {body}");
    }
    let listener = lab
        .topology
        .uplink
        .run(|| std::net::TcpListener::bind("0.0.0.0:9443").expect("host service"));
    assert!(sandbox.run(|| connect(SocketAddr::new(ip(HOST_LAN4), 9443)).is_open()));
    drop(listener);
}

#[test]
fn half_closed_connections_still_deliver() {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let (echoed, end) = sandbox.run(|| {
        let mut stream = connect(SocketAddr::new(ip(PUBLIC4), port::ECHO)).expect_open();
        std::io::Write::write_all(&mut stream, b"last words").expect("write");
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("half close");
        exchange(&mut stream, b"")
    });
    assert_eq!(
        (echoed.as_slice(), end),
        (b"last words".as_slice(), lab::client::End::Closed)
    );
}

#[test]
fn an_uplink_with_small_packets_carries_large_hellos_and_bodies() {
    let lab = Lab::builder().start();
    for (namespace, link) in [
        (&lab.topology.uplink, "up0"),
        (&lab.topology.internet, "in0"),
    ] {
        assert!(
            namespace
                .exec(&["ip", "link", "set", link, "mtu", "1280"])
                .status
                .success()
        );
    }
    let sandbox = lab.sandbox(policies::DOMAINS);
    let answer = sandbox.run(|| {
        lab.authority.get(
            connect(at("ok.sallylab.net", 443)).expect_open(),
            "ok.sallylab.net",
        )
    });
    assert!(answer.expect("TLS").starts_with("HTTP/1.1 200"));
    let internet = lab.sandbox(policies::INTERNET);
    let body = vec![b'm'; 256 << 10];
    let echoed = internet.run(|| {
        let mut stream = connect(SocketAddr::new(ip(PUBLIC4), port::ECHO)).expect_open();
        let mut out = stream.try_clone().expect("clone");
        std::thread::scope(|scope| {
            scope.spawn(|| std::io::Write::write_all(&mut out, &body));
            reads(&mut stream, &body)
        })
    });
    assert!(echoed, "a body in both directions");
}
