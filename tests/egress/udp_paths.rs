//! What a UDP session carries and tells of the path: bursts, how large a datagram may be, how many hops it has.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use lab::client::SURELY;
use lab::topology::{OTHER4, PUBLIC4, PUBLIC6, ip};
use lab::wait::eventually;
use lab::{Lab, policies};

use crate::udp::{echo, echoes, socket};

/// Sets an int option, as a program that looks for the path's packet size does.
pub fn option(socket: &UdpSocket, level: i32, name: i32, value: i32) {
    use std::os::fd::AsRawFd;
    let length = libc::socklen_t::try_from(size_of::<i32>()).expect("small");
    // SAFETY: an int and its length.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            length,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// What comes back of datagrams that are sent without waiting, on a socket that has its session.
fn echoed(socket: &UdpSocket, sent: &[Vec<u8>]) -> Vec<Vec<u8>> {
    for bytes in sent {
        socket.send(bytes).expect("send");
    }
    heard(socket, sent.len())
}

/// The next datagrams, at most so many.
fn heard(socket: &UdpSocket, most: usize) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2048];
    let mut next = || {
        let length = socket.recv(&mut buffer).ok()?;
        buffer.get(..length).map(<[u8]>::to_vec)
    };
    (0..most).map_while(|_| next()).collect()
}

#[test]
fn a_burst_arrives_datagram_by_datagram_in_order() {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    for (any, to) in [("0.0.0.0:0", PUBLIC4), ("[::]:0", PUBLIC6)] {
        sandbox.run(|| {
            let live = socket(any);
            live.connect(echo(to)).expect("connect");
            assert!(echoes(&live, echo(to), b"a session"), "{to}");
            let lengths = [
                vec![500; 12],
                vec![300, 0, 0, 7],
                vec![1400; 8],
                vec![1, 1400],
            ];
            let burst: Vec<_> = (1..)
                .zip(lengths.concat())
                .map(|(i, n)| vec![i; n])
                .collect();
            assert_eq!(echoed(&live, &burst), burst, "{to}");
            // as QUIC programs send: many of one length, given to the kernel as one
            option(&live, libc::SOL_UDP, libc::UDP_SEGMENT, 400);
            live.send(&[b'g'; 3900]).expect("send a run");
            option(&live, libc::SOL_UDP, libc::UDP_SEGMENT, 0);
            let mut run = vec![vec![b'g'; 400]; 9];
            run.push(vec![b'g'; 300]);
            assert_eq!(heard(&live, 10), run, "{to}");
        });
    }
}

#[test]
fn a_small_path_is_told_to_who_asks_and_cut_for_who_allows_it() {
    let lab = Lab::builder().gateway_only().start();
    for (namespace, link) in [
        (&lab.topology.uplink, "up0"),
        (&lab.topology.internet, "in0"),
    ] {
        let set = namespace.exec(&["ip", "link", "set", link, "mtu", "1300"]);
        assert!(set.status.success());
    }
    let sandbox = lab.sandbox(policies::INTERNET);
    for (to, level, name, probe) in [
        (
            PUBLIC4,
            libc::SOL_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        ),
        (
            PUBLIC6,
            libc::SOL_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
        ),
    ] {
        let any = if to == PUBLIC4 { "0.0.0.0:0" } else { "[::]:0" };
        let live = sandbox.run(|| {
            let live = socket(any);
            live.set_read_timeout(Some(Duration::from_millis(100)))
                .expect("timeout");
            option(&live, level, name, probe);
            live.connect(echo(to)).expect("connect");
            live
        });
        let mark = lab.origins.datagrams.mark();
        eventually("the path's size", || {
            sandbox.run(|| {
                let sent = live.send(&[b'm'; 1400]);
                let _ = live.recv(&mut [0; 2048]);
                sent.err()
                    .filter(|e| e.raw_os_error() == Some(libc::EMSGSIZE))
            })
        });
        assert!(
            lab.origins.datagrams.since(mark).is_empty(),
            "nothing was cut"
        );
        eventually("what fits", || {
            sandbox.run(|| {
                let _ = live.send(&[b'm'; 1200]);
                live.recv(&mut [0; 2048]).ok()
            })
        });
    }
    let carried = sandbox.run(|| {
        let cut = socket("0.0.0.0:0");
        option(
            &cut,
            libc::SOL_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DONT,
        );
        assert!(echoes(&cut, echo(OTHER4), &[b'c'; 1400]), "one");
        cut.connect(echo(OTHER4)).expect("connect");
        let burst = vec![vec![b'c'; 1400]; 8];
        echoed(&cut, &burst) == burst
    });
    assert!(carried, "datagrams that routers may cut arrive");
}

#[test]
fn a_datagram_forbids_to_be_cut_where_its_sender_did_and_nowhere_else() {
    // RFC 791 3.1: the flags stand in the two octets at 6, after the Ethernet header
    let forbids =
        |frame: &lab::frame::Frame| frame.bytes.get(14 + 6).map(|flags| flags & 0x40 != 0);
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    for (asked, forbidden) in [
        (libc::IP_PMTUDISC_DO, true),
        (libc::IP_PMTUDISC_DONT, false),
    ] {
        let mark = lab.capture.mark();
        sandbox.run(|| {
            let live = socket("0.0.0.0:0");
            option(&live, libc::SOL_IP, libc::IP_MTU_DISCOVER, asked);
            for body in [b"the first", b"the other"] {
                assert!(echoes(&live, echo(PUBLIC4), body));
            }
        });
        for body in [b"the first", b"the other"] {
            let left = |frame: &lab::frame::Frame| {
                frame.destination == Some(ip(PUBLIC4)) && frame.holds(body)
            };
            let frame = lab.capture.wait(mark, SURELY, left).expect("it left");
            assert_eq!(forbids(&frame), Some(forbidden), "{asked}: {frame:?}");
        }
    }
}

#[test]
fn a_datagram_without_a_hop_left_ends_at_the_gateway_and_the_next_hop_is_the_destination() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let mark = lab.capture.mark();
    let told = |hops: u32, port: u16| {
        sandbox.run(|| {
            let probe = socket("0.0.0.0:0");
            option(&probe, libc::SOL_IP, libc::IP_RECVERR, 1);
            probe.set_ttl(hops).expect("ttl");
            probe
                .connect(SocketAddr::new(ip(PUBLIC4), port))
                .expect("connect");
            probe.send(b"probe").expect("send");
            probe
                .recv(&mut [0; 64])
                .expect_err("an error")
                .raw_os_error()
        })
    };
    assert_eq!(told(1, 33_434), Some(libc::EHOSTUNREACH), "time exceeded");
    assert!(lab.capture.touching(mark, ip(PUBLIC4)).is_empty());
    assert_eq!(
        told(2, 33_435),
        Some(libc::ECONNREFUSED),
        "port unreachable"
    );
}
