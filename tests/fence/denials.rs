//! Packets that no policy lets out: other protocols, fragments, spoofed sources, metadata, neighbours.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lab::client::{connect_within, datagram};
use lab::origin::port;
use lab::raw::{self, protocol};
use lab::topology::{HOST_LAN4, HOST4, LAN4, LAN6, METADATA, OTHER4, PUBLIC4, PUBLIC6, ip};
use lab::{Lab, Leak, Sandbox, denied, policies};

const SHORT: Duration = Duration::from_millis(600);

fn v4(address: IpAddr) -> std::net::Ipv4Addr {
    if let IpAddr::V4(ip) = address {
        ip
    } else {
        std::net::Ipv4Addr::UNSPECIFIED
    }
}

fn v6(address: IpAddr) -> std::net::Ipv6Addr {
    if let IpAddr::V6(ip) = address {
        ip
    } else {
        std::net::Ipv6Addr::UNSPECIFIED
    }
}

/// Sends raw payloads of a protocol to a public address and looks for them on the uplink.
fn sends4(lab: &Lab, sandbox: &Sandbox, number: u8, payload: &[u8]) -> Leak {
    let mark = lab.capture.mark();
    let packet = raw::ipv4(v4(sandbox.v4()), v4(ip(PUBLIC4)), number, 0, payload);
    sandbox.run(|| raw::send4(&packet)).expect("send");
    Leak::of(&lab.capture.touching(mark, ip(PUBLIC4)))
}

#[test]
fn other_ip_protocols_never_leave() {
    for number in [
        protocol::IPIP,
        protocol::SIT,
        protocol::GRE,
        protocol::ESP,
        protocol::SCTP,
        protocol::UDPLITE,
        protocol::EXPERIMENT,
    ] {
        denied(policies::INTERNET, |lab, sandbox| {
            sends4(lab, sandbox, number, b"odd protocol payload")
        });
    }
}

#[test]
fn icmp_other_than_echo_never_leaves() {
    for kind in [0, 3, 5, 9, 10, 11, 12, 13, 15, 17] {
        denied(policies::INTERNET, |lab, sandbox| {
            sends4(lab, sandbox, protocol::ICMP, &raw::icmp4(kind, b"odd"))
        });
    }
}

#[test]
fn echoes_never_leave_without_a_rule_for_them() {
    for policy in [policies::NONE, policies::DOMAINS_ANY] {
        denied(policy, |lab, sandbox| {
            sends4(
                lab,
                sandbox,
                protocol::ICMP,
                &raw::icmp4(8, b"carried out by ping"),
            )
        });
        denied(policy, |lab, sandbox| sends_echo6(lab, sandbox, PUBLIC6));
    }
}

#[test]
fn echoes_never_reach_private_places_and_metadata_under_internet() {
    for to in [LAN4, METADATA[0], "10.0.0.5", "192.168.1.5"] {
        denied(policies::INTERNET, |lab, sandbox| {
            let mark = lab.capture.mark();
            let message = raw::icmp4(8, b"carried out by ping");
            let packet = raw::ipv4(v4(sandbox.v4()), v4(ip(to)), protocol::ICMP, 0, &message);
            sandbox.run(|| raw::send4(&packet)).expect("send");
            Leak::of(&lab.capture.touching(mark, ip(to)))
        });
    }
    denied(policies::INTERNET, |lab, sandbox| {
        sends_echo6(lab, sandbox, LAN6)
    });
}

fn sends_echo6(lab: &Lab, sandbox: &Sandbox, to: &str) -> Leak {
    let mark = lab.capture.mark();
    let (from, to) = (v6(sandbox.v6()), ip(to));
    let packet = raw::ipv6(from, v6(to), protocol::ICMP6, &raw::echo6(from, v6(to)));
    sandbox.run(|| raw::send6(&packet)).expect("send");
    Leak::of(&lab.capture.touching(mark, to))
}

#[test]
fn fragments_never_leave() {
    denied(policies::INTERNET, |lab, sandbox| {
        let mark = lab.capture.mark();
        let (from, to) = (sandbox.v4(), ip(PUBLIC4));
        let whole = raw::udp(from, to, (4000, 7), &[b'f'; 64]);
        let first = raw::ipv4(v4(from), v4(to), protocol::UDP, 0x2000, &whole[..32]);
        let last = raw::ipv4(v4(from), v4(to), protocol::UDP, 4, &whole[32..]);
        sandbox
            .run(|| raw::send4(&first).and_then(|_| raw::send4(&last)))
            .expect("send");
        Leak::of(&lab.capture.touching(mark, to))
    });
}

#[test]
fn spoofed_sources_never_leave() {
    denied(policies::INTERNET, |lab, sandbox| {
        let mark = lab.capture.mark();
        let to = ip(PUBLIC4);
        for source in ["198.18.7.7", "8.8.8.8", "10.0.0.5", HOST4] {
            let datagram = raw::udp(ip(source), to, (4000, 7), b"spoofed");
            let packet = raw::ipv4(v4(ip(source)), v4(to), protocol::UDP, 0, &datagram);
            sandbox.run(|| raw::send4(&packet)).expect("send");
            let segment = raw::syn(ip(source), to, (4001, 443));
            let packet = raw::ipv4(v4(ip(source)), v4(to), protocol::TCP, 0, &segment);
            sandbox.run(|| raw::send4(&packet)).expect("send");
        }
        Leak::of(&lab.capture.touching(mark, to))
    });
}

#[test]
fn udp_that_no_rule_names_never_leaves() {
    denied(policies::DOMAINS_ANY, |lab, sandbox| {
        let mark = lab.capture.mark();
        for to in [PUBLIC4, PUBLIC6] {
            for port in [port::UDP_ECHO, 443, 853, 123, 51820, 5353] {
                let _ = sandbox.run(|| {
                    datagram(
                        SocketAddr::new(ip(to), port),
                        b"datagram",
                        Duration::from_millis(150),
                    )
                });
            }
        }
        Leak::of(&lab.capture.touching(mark, ip(PUBLIC4)))
            .or(Leak::of(&lab.capture.touching(mark, ip(PUBLIC6))))
    });
}

#[test]
fn invariant_4_metadata_is_unreachable_under_every_setting() {
    for policy in [
        policies::NONE,
        policies::DOMAINS_ANY,
        policies::INTERNET,
        policies::INTERNET_PRIVATE,
    ] {
        denied(policy, |lab, sandbox| {
            let mark = lab.capture.mark();
            for address in METADATA {
                for port in [80, 443, port::ECHO] {
                    sandbox.run(|| drop(connect_within(SocketAddr::new(ip(address), port), SHORT)));
                }
            }
            METADATA.iter().fold(Leak::Nothing, |l, a| {
                l.or(Leak::of(&lab.capture.touching(mark, ip(a))))
            })
        });
    }
}

#[test]
fn private_networks_and_the_host_are_closed_to_internet_policies() {
    denied(policies::INTERNET, |lab, sandbox| {
        let mark = lab.capture.mark();
        let accepted = lab.origins.accepted.mark();
        let targets = [
            LAN4,
            LAN6,
            "51.15.77.10",
            "10.0.0.5",
            "172.16.0.5",
            "192.168.1.5",
            "100.64.0.5",
            "fd00:1234::5",
        ];
        for address in targets {
            sandbox.run(|| {
                drop(connect_within(
                    SocketAddr::new(ip(address), port::HTTP),
                    SHORT,
                ));
            });
        }
        let frames = targets.iter().fold(Leak::Nothing, |l, a| {
            l.or(Leak::of(&lab.capture.touching(mark, ip(a))))
        });
        frames.or(Leak::of(&lab.origins.accepted.since(accepted)))
    });
}

#[test]
fn a_service_of_the_host_is_closed_to_internet_policies() {
    denied(policies::INTERNET, |lab, sandbox| {
        let listener = lab
            .topology
            .uplink
            .run(|| std::net::TcpListener::bind("0.0.0.0:9443").expect("host service"));
        let reached = [HOST4, HOST_LAN4].iter().any(|address| {
            sandbox.run(|| connect_within(SocketAddr::new(ip(address), 9443), SHORT).is_open())
        });
        drop(listener);
        Leak::when(reached, "a service of the host answered")
    });
}

#[test]
fn invariant_5_sandboxes_cannot_reach_each_other() {
    denied(policies::INTERNET_PRIVATE, |lab, sandbox| {
        let other = lab.sandbox(policies::INTERNET_PRIVATE);
        let listener = other.run(|| std::net::TcpListener::bind("[::]:7070").expect("listener"));
        listener.set_nonblocking(true).expect("non-blocking");
        for address in [other.v4(), other.v6()] {
            sandbox.run(|| drop(connect_within(SocketAddr::new(address, 7070), SHORT)));
        }
        Leak::when(
            listener.accept().is_ok(),
            "the other sandbox got a connection",
        )
    });
}

#[test]
fn invariant_2_no_network_means_no_packet() {
    denied(policies::NONE, |lab, sandbox| {
        let mark = lab.capture.mark();
        for to in [PUBLIC4, OTHER4, PUBLIC6] {
            for port in [443, 80, 53, port::ECHO] {
                sandbox.run(|| drop(connect_within(SocketAddr::new(ip(to), port), SHORT)));
            }
            let _ = sandbox.run(|| {
                datagram(
                    SocketAddr::new(ip(to), 53),
                    b"not dns",
                    Duration::from_millis(100),
                )
            });
        }
        Leak::of(&lab.capture.since(mark))
    });
}

#[test]
fn routes_and_addresses_that_root_changes_inside_open_nothing() {
    denied(policies::DOMAINS, |lab, sandbox| {
        let mark = lab.capture.mark();
        sandbox
            .namespace()
            .sysctl("net/ipv6/conf/all/disable_ipv6", "0");
        for change in [
            ["ip", "addr", "add", "10.9.9.9/24", "dev", "eth0"],
            ["ip", "addr", "add", "2001:db8:9::9/64", "dev", "eth0"],
        ] {
            sandbox.exec(&change);
        }
        sandbox.exec(&[
            "ip", "route", "add", PUBLIC4, "dev", "eth0", "src", "10.9.9.9",
        ]);
        for to in [PUBLIC4, PUBLIC6, OTHER4] {
            sandbox.run(|| drop(connect_within(SocketAddr::new(ip(to), port::ECHO), SHORT)));
        }
        Leak::of(&lab.capture.since(mark))
    });
}

#[test]
fn marks_and_service_classes_open_nothing() {
    denied(policies::DOMAINS, |lab, sandbox| {
        let capture = lab.capture.mark();
        // every bit of the mark, among them whatever the gateway itself uses, and classes that routers treat apart
        for mark in (0..32).map(|bit| 1u32 << bit).chain([u32::MAX, 0x5a17]) {
            sandbox.run(|| marked(mark, ip(PUBLIC4)));
        }
        Leak::of(&lab.capture.touching(capture, ip(PUBLIC4)))
    });
}

/// A datagram and the beginning of a connection with this mark, priority and service class.
fn marked(mark: u32, to: IpAddr) {
    for kind in [socket2::Type::DGRAM, socket2::Type::STREAM] {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None).expect("socket");
        socket.set_mark(mark).expect("mark");
        socket
            .set_tos_v4(mark.to_be_bytes()[3].into())
            .expect("service class");
        socket.set_nonblocking(true).expect("non-blocking");
        let _ = socket.connect(&SocketAddr::new(to, port::ECHO).into());
        let _ = socket.send(b"marked");
    }
}

#[test]
fn ip_options_never_leave() {
    // loose and strict source route by way of a neighbour, record route, timestamp, router alert; each padded to words
    let options: [&[u8]; 5] = [
        &[131, 7, 4, 142, 250, 74, 110, 0],
        &[137, 7, 4, 142, 250, 74, 110, 0],
        &[7, 7, 4, 0, 0, 0, 0, 0],
        &[68, 8, 5, 0, 0, 0, 0, 0],
        &[148, 4, 0, 0],
    ];
    denied(policies::INTERNET, |lab, sandbox| {
        let mark = lab.capture.mark();
        let (from, to) = (sandbox.v4(), ip(PUBLIC4));
        for option in options {
            for (protocol, payload) in [
                (
                    protocol::UDP,
                    raw::udp(from, to, (4000, 7), b"with options"),
                ),
                (protocol::TCP, raw::syn(from, to, (4001, 443))),
            ] {
                let packet =
                    raw::with_options(raw::ipv4(v4(from), v4(to), protocol, 0, &payload), option);
                // the sandbox's own kernel may refuse one; the others go
                let _ = sandbox.run(|| raw::send4(&packet));
            }
        }
        Leak::of(&lab.capture.touching(mark, to))
    });
}
