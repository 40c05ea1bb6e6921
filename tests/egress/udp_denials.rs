//! Datagrams that no policy lets out or in; each is proven to leak through a plain forwarder.

/// Attacks.
mod denials {
    use std::net::{SocketAddr, UdpSocket};
    use std::time::Duration;

    use lab::client::{at, datagram};
    use lab::origin::port;
    use lab::topology::{HOST4, METADATA, OTHER4, PUBLIC4, ip};
    use lab::{Lab, Leak, Mode, denied, policies, probe};

    const SHORT: Duration = Duration::from_millis(400);

    fn listener(any: &str) -> UdpSocket {
        let socket = UdpSocket::bind(any).expect("bind");
        socket.set_read_timeout(Some(SHORT)).expect("timeout");
        socket
    }

    #[test]
    fn a_name_that_no_udp_rule_names_gets_no_datagram() {
        denied(policies::DOMAINS_ANY, |lab, sandbox| {
            let mark = lab.capture.mark();
            sandbox.run(|| {
                for port in [port::UDP_ECHO, 443, 51_820] {
                    let _ = datagram(at("four.sallylab.net", port), b"not named", SHORT);
                }
            });
            Leak::when(lab.capture.holds(mark, b"not named"), "a datagram left")
        });
    }

    #[test]
    fn an_address_without_a_lease_gets_no_datagram_under_domains() {
        denied(super::super::udp::NAMED, |lab, sandbox| {
            let mark = lab.capture.mark();
            for port in [port::UDP_ECHO, 443, 853, 123, 51_820, 5353] {
                let _ = sandbox.run(|| datagram(SocketAddr::new(ip(OTHER4), port), b"bare", SHORT));
            }
            Leak::of(&lab.capture.touching(mark, ip(OTHER4)))
        });
    }

    #[test]
    fn invariant_4_metadata_gets_no_datagram_under_every_setting() {
        for policy in [policies::INTERNET, policies::INTERNET_PRIVATE] {
            denied(policy, |lab, sandbox| {
                let mark = lab.capture.mark();
                for address in METADATA {
                    let to = SocketAddr::new(ip(address), 123);
                    let _ = sandbox.run(|| datagram(to, b"metadata", SHORT));
                }
                METADATA.iter().fold(Leak::Nothing, |l, a| {
                    l.or(Leak::of(&lab.capture.touching(mark, ip(a))))
                })
            });
        }
    }

    #[test]
    fn a_service_of_the_host_gets_no_datagram_under_internet() {
        denied(policies::INTERNET, |lab, sandbox| {
            let service = lab.topology.uplink.run(|| listener("0.0.0.0:5514"));
            let _ = sandbox.run(|| datagram(SocketAddr::new(ip(HOST4), 5514), b"log", SHORT));
            Leak::when(service.recv(&mut [0; 16]).is_ok(), "the host got it")
        });
    }

    #[test]
    fn invariant_5_another_sandbox_gets_no_datagram() {
        let lab = Lab::builder().start();
        let (a, b) = (
            lab.sandbox(policies::INTERNET_PRIVATE),
            lab.sandbox(policies::INTERNET_PRIVATE),
        );
        for (address, any) in [(b.v4(), "0.0.0.0:4600"), (b.v6(), "[::]:4600")] {
            let victim = b.run(|| listener(any));
            let _ = a.run(|| datagram(SocketAddr::new(address, 4600), b"hello", SHORT));
            let leak = Leak::when(victim.recv(&mut [0; 16]).is_ok(), "the other got it");
            probe::judge(&lab, any, &leak);
        }
    }

    /// NET-29: a third party, and the right party from a wrong port, to the port that a session uses.
    #[test]
    fn net_29_nobody_but_the_destination_answers() {
        denied(policies::INTERNET, |lab, sandbox| {
            let client = sandbox.run(|| listener("0.0.0.0:4700"));
            let to = SocketAddr::new(ip(PUBLIC4), port::UDP_ECHO);
            let mut buffer = [0; 64];
            client.send_to(b"hello", to).expect("send");
            client
                .recv_from(&mut buffer)
                .expect("the destination's own answer");
            let peer = lab.origins.datagrams.all().pop().expect("it arrived").0;
            lab.topology.internet.run(|| {
                for from in [
                    (OTHER4, port::UDP_ECHO + 1),
                    (OTHER4, 4701),
                    (PUBLIC4, 4702),
                ] {
                    let stranger = UdpSocket::bind(from).expect("bind");
                    stranger.send_to(b"forged", peer).expect("send");
                }
            });
            let got = client.recv_from(&mut buffer);
            if lab.mode() == Mode::Gateway {
                // and the session goes on
                client.send_to(b"again", to).expect("send");
                let (length, from) = client.recv_from(&mut buffer).expect("an answer");
                assert_eq!((&buffer[..length], from), (&b"again"[..], to));
            }
            Leak::when(got.is_ok(), "a stranger's datagram came in")
        });
    }
}
