//! QUIC: a real client and server speak where the server name agrees, and no other name reaches the server.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};

use lab::client::{SURELY, at, datagram};
use lab::origin::port;
use lab::topology::{OTHER4, PUBLIC4, PUBLIC6, ip};
use lab::{Lab, policies, quic};

/// One name over UDP, on the ports of the web.
const NAMED: &str = "\
policy: quic
network: domains
allow:
  - { host: ok.sallylab.net, protocol: udp }
";

/// Everything but one name.
const BUT_EVIL: &str = "\
policy: all-but-one
network: internet
deny:
  - host: evil.sallylab.net
";

fn tls(address: &str) -> SocketAddr {
    SocketAddr::new(ip(address), port::TLS)
}

#[test]
fn a_permitted_name_is_reached_in_both_families_and_recorded() {
    let lab = Lab::builder().gateway_only().start();
    let names = quic::serve(&lab.topology.internet, tls(PUBLIC4), &lab.authority);
    quic::serve(&lab.topology.internet, tls(PUBLIC6), &lab.authority);
    let sandbox = lab.sandbox(NAMED);
    let body = vec![b'q'; 200_000];
    let said = sandbox.run(|| {
        quic::echo(
            at("ok.sallylab.net", port::TLS),
            "ok.sallylab.net",
            &lab.authority,
            &body,
        )
    });
    assert_eq!(said.expect("permitted").len(), body.len());
    assert_eq!(names.all(), [Some("ok.sallylab.net".to_owned())]);
    lab.detach(&sandbox).expect(0);
    let close = lab::wait::eventually("the close record", || {
        lab.records()
            .into_iter()
            .find(|r| r["kind"] == "close" && r["subject"]["protocol"] == "udp")
    });
    assert_eq!(
        (&close["sni"], &close["alpn"][0]),
        (&"ok.sallylab.net".into(), &"h3".into())
    );
    let internet = lab.sandbox(policies::INTERNET);
    for address in [PUBLIC4, PUBLIC6] {
        let said =
            internet.run(|| quic::echo(tls(address), "any.sallylab.net", &lab.authority, b"x"));
        assert_eq!(said.expect(address), b"x");
    }
}

#[test]
fn the_reason_of_a_refused_name_stands_in_the_record() {
    let lab = Lab::builder().gateway_only().start();
    let names = quic::serve(&lab.topology.internet, tls(PUBLIC4), &lab.authority);
    let sandbox = lab.sandbox(NAMED);
    let said = sandbox.run(|| {
        quic::echo(
            at("ok.sallylab.net", port::TLS),
            "evil.sallylab.net",
            &lab.authority,
            b"x",
        )
    });
    assert!(said.is_err());
    assert!(names.all().is_empty());
    lab.recorded("the denial", |r| {
        r["kind"] == "denial"
            && r["reason"] == "tls_name_mismatch"
            && r["heard"] == "evil.sallylab.net"
    });
    let said = sandbox.run(|| {
        quic::echo(
            at("ok.sallylab.net", port::TLS),
            "192.0.2.1",
            &lab.authority,
            b"x",
        )
    });
    assert!(said.is_err());
    lab.recorded("the denial", |r| r["reason"] == "tls_name_missing");
}

#[test]
fn a_version_that_nobody_knows_passes_by_its_lease_alone() {
    // the long header that all versions have (RFC 8999 5.1)
    let mut unknown = vec![0xc3, 0xfa, 0xce, 0xb0, 0x0c, 8];
    unknown.extend_from_slice(b"to whom!\x08from me!");
    unknown.resize(1200, b'x');
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(crate::udp::NAMED);
    let leased = sandbox.run(|| datagram(at("ok.sallylab.net", port::UDP_ECHO), &unknown, SURELY));
    assert_eq!(leased.expect("by its lease"), unknown);
    let mark = lab.origins.datagrams.mark();
    let stranger = SocketAddr::new(ip(OTHER4), port::UDP_ECHO);
    let refused = sandbox.run(|| datagram(stranger, &unknown, SURELY));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(lab.origins.datagrams.since(mark).is_empty());
}

/// A rule over UDP beside a denied name, as in README.
const BESIDE: &str = "\
policy: beside
network: domains
limits: { flows: 1000, rate: 1000 }
allow:
  - { host: ok.sallylab.net, protocol: udp, ports: any }
deny:
  - host: evil.sallylab.net
";

fn patient() -> UdpSocket {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let patience = Some(lab::client::PATIENCE);
    socket.set_read_timeout(patience).expect("timeout");
    socket
}

/// Whether datagrams that begin with this octet come back.
fn comes_back(socket: &UdpSocket, to: SocketAddr, first: u8) -> bool {
    let (sent, mut buffer) = ([first, b'x', b'y'], [0; 16]);
    socket.send_to(&sent, to).is_ok()
        && matches!(socket.recv_from(&mut buffer), Ok((n, _)) if buffer.get(..n) == Some(&sent[..]))
}

#[test]
fn what_is_no_hello_passes_beside_a_denied_name_whatever_it_begins_with() {
    let lab = Lab::builder().gateway_only().start();
    let names = quic::serve(&lab.topology.internet, tls(PUBLIC4), &lab.authority);
    let sandbox = lab.sandbox(BESIDE);
    sandbox.run(|| {
        let to = at("ok.sallylab.net", port::UDP_ECHO);
        let running = patient();
        for first in 0..=u8::MAX {
            assert!(comes_back(&patient(), to, first), "{first:#x} begins");
            assert!(comes_back(&running, to, first), "{first:#x} in the middle");
        }
        let web = at("ok.sallylab.net", port::TLS);
        assert!(quic::echo(web, "evil.sallylab.net", &lab.authority, b"x").is_err());
    });
    assert!(names.all().is_empty());
}

#[test]
fn after_a_restart_only_an_adopted_network_is_doubted() {
    let mut lab = Lab::builder().gateway_only().start();
    let adopted = lab.sandbox(BESIDE);
    let to = adopted.run(|| at("ok.sallylab.net", port::UDP_ECHO));
    assert!(adopted.run(|| comes_back(&patient(), to, b'h')));
    lab.gateway_mut().kill();
    lab.gateway_mut().launch();
    lab::wait::eventually("datagrams to pass again", || {
        adopted.run(|| comes_back(&patient(), to, 0)).then_some(())
    });
    assert!(
        !adopted.run(|| comes_back(&patient(), to, b'h')),
        "it begins"
    );
    let beside = adopted.run(|| {
        let running = patient();
        comes_back(&running, to, 0) && comes_back(&running, to, b'h')
    });
    assert!(!beside, "behind something else");
    let all = lab.records();
    assert!(
        all.iter()
            .filter(|r| r["reason"] == "tls_malformed")
            .count()
            >= 2
    );
    let fresh = lab.sandbox(BESIDE);
    let said = fresh.run(|| comes_back(&patient(), at("ok.sallylab.net", port::UDP_ECHO), b'h'));
    assert!(said, "a fresh network");
}

#[test]
fn datagrams_that_are_dropped_and_hellos_without_an_end_are_recorded() {
    let lab = Lab::builder().gateway_only().start();
    quic::serve(&lab.topology.internet, tls(PUBLIC4), &lab.authority);
    let [twice, broken, half] = [(); 3].map(|()| lab.sandbox(NAMED));
    let denials = || {
        let all = lab.records();
        all.iter()
            .filter(|r| r["reason"] == "tls_malformed")
            .count()
    };
    let good = |n: u8| quic::initials(&lab.authority, "ok.sallylab.net", [n; 8], &[]).remove(0);
    let sends = |sandbox: &lab::Sandbox, datagrams: &[Vec<u8>]| {
        sandbox.run(|| {
            let (socket, to) = (patient(), at("ok.sallylab.net", port::TLS));
            for datagram in datagrams {
                // what became of an earlier one is said at the next
                let _ = socket.send_to(datagram, to);
            }
        });
    };
    // in a session that goes on: the same packet once more
    sends(&twice, &[good(1), good(1)]);
    lab::wait::eventually("a record of a packet that came twice", || {
        (denials() == 1).then_some(())
    });
    // alone: an Initial that no server can open
    let mut changed = good(2);
    changed.last_mut().map(|byte| *byte ^= 1).expect("octets");
    sends(&broken, &[changed]);
    lab::wait::eventually("a record of one that no key opens", || {
        (denials() == 2).then_some(())
    });
    let begun = quic::initials(&lab.authority, "ok.sallylab.net", [4; 8], &[90]).remove(0);
    // before a whole one, which opens the session
    sends(&half, &[begun, good(3)]);
    lab::wait::eventually("its session", || {
        let all = lab.records();
        (all.iter().filter(|r| r["kind"] == "open").count() == 2).then_some(())
    });
    lab.detach(&half).expect(0);
    lab::wait::eventually("a record of a hello without an end", || {
        (denials() == 3).then_some(())
    });
}

/// Attacks.
mod denials {
    use lab::{Leak, Mode, denied};

    use super::*;

    /// TLS-35 and domain fronting over QUIC: another name on the same address.
    #[test]
    fn tls_35_another_name_never_reaches_the_server() {
        denied(NAMED, |lab, sandbox| {
            let names = quic::serve(&lab.topology.internet, tls(PUBLIC4), &lab.authority);
            let said = |name: &str| {
                sandbox.run(|| {
                    quic::echo(at("ok.sallylab.net", port::TLS), name, &lab.authority, b"x")
                })
            };
            let _ = said("evil.sallylab.net");
            let leak = Leak::of(&names.all());
            assert!(said("ok.sallylab.net").is_ok(), "its permitted twin");
            leak
        });
    }

    /// Halves of a denied hello between whole permitted ones: in one session, and one half in each of two.
    #[test]
    fn pieces_of_a_hello_do_not_leave_beside_another() {
        denied(NAMED, |lab, sandbox| {
            let names = quic::serve(&lab.topology.internet, tls(PUBLIC4), &lab.authority);
            let (ok, evil) = ("ok.sallylab.net", "evil.sallylab.net");
            let good = |n: u8| quic::initials(&lab.authority, ok, [n; 8], &[]).remove(0);
            sandbox.run(|| {
                let to = at(ok, port::TLS);
                let session = || {
                    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                    let socket = UdpSocket::bind(any).expect("a socket");
                    socket.connect(to).expect("connect");
                    socket
                };
                let halves = |n: u8| quic::initials(&lab.authority, evil, [n; 8], &[90]);
                // pushed out of memory by other handshakes
                let (one, pieces) = (session(), halves(100));
                let between = (1..=9).map(good);
                let sent = [good(0), pieces[0].clone()].into_iter().chain(between);
                for datagram in sent.chain([pieces[1].clone(), good(10)]) {
                    one.send(&datagram).expect("send");
                }
                // put together by the server
                let pieces = halves(101);
                for (n, piece) in (20_u8..).zip(&pieces) {
                    let socket = session();
                    for datagram in [&good(n), piece, &good(n + 10)] {
                        // what is refused is said at the next call
                        let _ = socket.send(datagram);
                    }
                }
                assert!(
                    quic::echo(to, ok, &lab.authority, b"x").is_ok(),
                    "the permitted twin"
                );
            });
            let evil: Vec<_> = names
                .all()
                .into_iter()
                .flatten()
                .filter(|name| name == evil)
                .collect();
            Leak::of(&evil)
        });
    }

    /// A live connection whose name a new policy denies does not go on as "the middle of a connection".
    #[test]
    fn a_connection_does_not_outlive_the_policy_that_let_it_in() {
        outlives(quic::Port::Same);
    }

    #[test]
    fn nor_from_another_port_of_its_client() {
        outlives(quic::Port::Another);
    }

    fn outlives(port: quic::Port) {
        denied(policies::INTERNET, |lab, sandbox| {
            quic::serve(&lab.topology.internet, tls(OTHER4), &lab.authority);
            let goes_on = sandbox.run(|| {
                let (name, halves) = ("evil.sallylab.net", (&b"first"[..], &b"second"[..]));
                quic::in_two_halves(tls(OTHER4), name, &lab.authority, halves, || {
                    if lab.mode() == Mode::Gateway {
                        lab.replace_policy(sandbox, BUT_EVIL).expect(0);
                        lab::wait::eventually("the end of the flow", || {
                            let all = lab.records();
                            all.into_iter().find(|r| r["end"] == "policy_superseded")
                        });
                    }
                    port
                })
            });
            let twin =
                sandbox.run(|| quic::echo(tls(OTHER4), "other.sallylab.net", &lab.authority, b"x"));
            assert!(twin.is_ok(), "its permitted twin");
            Leak::when(goes_on.is_ok(), "the second half of an echo")
        });
    }

    #[test]
    fn a_denied_name_is_not_reached_by_its_address() {
        denied(BUT_EVIL, |lab, sandbox| {
            let names = quic::serve(&lab.topology.internet, tls(OTHER4), &lab.authority);
            let said =
                |name: &str| sandbox.run(|| quic::echo(tls(OTHER4), name, &lab.authority, b"x"));
            let refused = said("evil.sallylab.net");
            assert_eq!(refused.is_ok(), lab.mode() == Mode::Plain);
            let leak = Leak::of(&names.all());
            assert!(said("other.sallylab.net").is_ok(), "its permitted twin");
            leak
        });
    }
}
