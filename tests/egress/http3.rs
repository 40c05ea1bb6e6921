//! HTTP/3: a real client and server speak where a rule names UDP; elsewhere the client is refused at once and goes on by
//! TCP.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use lab::client::{PATIENCE, at, connect};
use lab::origin::port;
use lab::pace::Pace;
use lab::topology::{PUBLIC4, PUBLIC6, ip};
use lab::{Lab, h3, policies};

/// One name, as browsers ask for it: HTTP/3 and, beside it, HTTP over TCP.
const NAMED: &str = "\
policy: http3
network: domains
allow:
  - { host: ok.sallylab.net }
  - { host: ok.sallylab.net, protocol: udp, ports: [443] }
";

const NAME: &str = "ok.sallylab.net";

fn web(address: &str) -> SocketAddr {
    SocketAddr::new(ip(address), port::TLS)
}

#[test]
fn a_permitted_name_is_asked_by_http3_in_both_families() {
    let lab = Lab::builder().gateway_only().start();
    let serve = |at: &str| h3::serve(&lab.topology.internet, web(at), &lab.authority);
    let (four, six) = (serve(PUBLIC4), serve(PUBLIC6));
    let sandbox = lab.sandbox(NAMED);
    let body = vec![b'b'; 300_000];
    let answer = sandbox.run(|| h3::post(at(NAME, port::TLS), NAME, &lab.authority, &body));
    let answer = answer.expect("permitted");
    assert!(answer.starts_with(b"200 OKyou asked ok.sallylab.net/salute\n"));
    assert!(answer.ends_with(&body));
    lab.detach(&sandbox).expect(0);
    let close = lab::wait::eventually("the close record", || {
        lab.records()
            .into_iter()
            .find(|r| r["kind"] == "close" && r["subject"]["protocol"] == "udp")
    });
    assert_eq!(
        (&close["sni"], &close["alpn"][0]),
        (&NAME.into(), &"h3".into())
    );
    assert!(close["up"].as_u64() > Some(300_000), "{close:#}");
    let internet = lab.sandbox(policies::INTERNET);
    for (address, origin) in [(PUBLIC4, four), (PUBLIC6, six)] {
        let mark = origin.requests.mark();
        let said = internet.run(|| h3::post(web(address), NAME, &lab.authority, b"hello"));
        assert!(said.expect(address).ends_with(b"salute\nhello"));
        assert_eq!(origin.requests.since(mark), ["ok.sallylab.net/salute"]);
    }
}

#[test]
fn without_a_rule_over_udp_a_client_is_refused_at_once_and_goes_on_by_tcp() {
    let lab = Lab::builder().gateway_only().start();
    let origin = h3::serve(&lab.topology.internet, web(PUBLIC4), &lab.authority);
    let sandbox = lab.sandbox(policies::DOMAINS);
    sandbox.run(|| {
        let to = at(NAME, port::TLS);
        // as curl and browsers send: on a connected socket, which hears the refusal
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        socket.connect(to).expect("connect");
        let (pace, began) = (Pace::watch(), Instant::now());
        socket.send(&[0xc0; 1200]).expect("send");
        let refused = socket.recv(&mut [0; 16]).expect_err("nothing answers");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(began.elapsed() < pace.stretches(Duration::from_secs(1)));
        assert!(h3::post(to, NAME, &lab.authority, b"x").is_err());
        let answer = lab.authority.get(connect(to).expect_open(), NAME);
        let answer = answer.expect("TCP");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    });
    assert!(origin.names.all().is_empty());
    lab.recorded("the denial", |r| {
        r["subject"]["protocol"] == "udp" && r["reason"] == "protocol_not_allowed"
    });
}

/// Attacks.
mod denials {
    use lab::topology::OTHER4;
    use lab::{Leak, denied};

    use super::*;

    /// Everything but one name.
    const BUT_EVIL: &str = "\
policy: all-but-one
network: internet
deny:
  - host: evil.sallylab.net
";

    #[test]
    fn a_denied_name_is_not_asked_by_http3_at_any_address() {
        denied(BUT_EVIL, |lab, sandbox| {
            let serve = |at: &str| h3::serve(&lab.topology.internet, web(at), &lab.authority);
            let (origin, twin) = (serve(OTHER4), serve(PUBLIC4));
            let post = |to: &str, name: &str| {
                sandbox.run(|| h3::post(web(to), name, &lab.authority, b"x"))
            };
            let _ = post(OTHER4, "evil.sallylab.net");
            let leak = Leak::of(&origin.names.all());
            assert!(
                post(OTHER4, NAME).is_ok() && post(PUBLIC4, NAME).is_ok(),
                "the twins"
            );
            assert_eq!(twin.requests.all().len(), 1);
            leak
        });
    }

    #[test]
    fn nor_another_name_where_one_is_permitted() {
        denied(NAMED, |lab, sandbox| {
            let origin = h3::serve(&lab.topology.internet, web(PUBLIC4), &lab.authority);
            let post = |name: &str| {
                sandbox.run(|| h3::post(at(NAME, port::TLS), name, &lab.authority, b"x"))
            };
            let _ = post("evil.sallylab.net");
            let leak = Leak::of(&origin.names.all());
            assert!(post(NAME).is_ok(), "the twin");
            leak
        });
    }
}
