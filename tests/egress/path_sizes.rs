//! The sizes of paths beyond the link: a narrow stretch between two routers, both protocols, both directions and families.
//!
//! ```text
//! sandbox --- (gateway) --- uplink === internet --1300-- router --1500-- far
//! ```

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use lab::client::{SURELY, connect};
use lab::namespace::Namespace;
use lab::topology::ip;
use lab::wait::eventually;
use lab::{Lab, Sandbox, policies};

use crate::udp::socket;
use crate::udp_paths::option;

const FAR: [&str; 2] = ["5.9.91.2", "2a01:4f8:91::2"];
const PORT: u16 = 9_000;
/// More than any window that is open before the path's size matters.
const MUCH: usize = 400_000;

/// The machine at the far end, and the router before it.
struct Far {
    machine: Namespace,
    router: Namespace,
}

impl Far {
    fn new(lab: &Lab) -> Self {
        let (machine, router) = (Namespace::new("far"), Namespace::new("router"));
        let internet = &lab.topology.internet;
        let path = |n: &Namespace| n.path().display().to_string();
        let veth = |a: &str, b: &str, peer: &Namespace, mtu: u32| {
            let peer = path(peer);
            format!("link add {a} mtu {mtu} type veth peer name {b} mtu {mtu} netns {peer}")
        };
        internet.ip(&[
            veth("n0", "n1", &router, 1300),
            "addr add 5.9.90.1/30 dev n0".into(),
            "addr add 2a01:4f8:90::1/64 dev n0 nodad".into(),
            "link set n0 up".into(),
        ]);
        router.ip(&[
            veth("f0", "f1", &machine, 1500),
            "addr add 5.9.90.2/30 dev n1".into(),
            "addr add 2a01:4f8:90::2/64 dev n1 nodad".into(),
            "addr add 5.9.91.1/30 dev f0".into(),
            "addr add 2a01:4f8:91::1/64 dev f0 nodad".into(),
            "link set n1 up".into(),
            "link set f0 up".into(),
            "route add default via 5.9.90.1".into(),
            "route add default via 2a01:4f8:90::1".into(),
        ]);
        machine.ip(&[
            "addr add 5.9.91.2/30 dev f1",
            "addr add 2a01:4f8:91::2/64 dev f1 nodad",
            "link set f1 up",
            "route add default via 5.9.91.1",
            "route add default via 2a01:4f8:91::1",
        ]);
        internet.ip(&[
            "route add 5.9.91.0/30 via 5.9.90.2",
            "route add 2a01:4f8:91::/64 via 2a01:4f8:90::2",
        ]);
        for namespace in [internet, &router] {
            namespace.sysctl("net/ipv4/ip_forward", "1");
            namespace.sysctl("net/ipv6/conf/all/forwarding", "1");
            namespace.sysctl("net/ipv4/icmp_ratelimit", "0");
            namespace.sysctl("net/ipv6/icmp/ratelimit", "0");
        }
        let far = Self { machine, router };
        far.serve();
        far
    }

    /// Takes all of it, then gives as much back; and answers each datagram with 1,400 octets.
    fn serve(&self) {
        for address in FAR {
            let at = SocketAddr::new(ip(address), PORT);
            let (listener, datagrams) = self.machine.run(|| {
                let bound = TcpListener::bind(at).expect("listen far away");
                (bound, UdpSocket::bind(at).expect("bind far away"))
            });
            std::thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    let mut all = vec![0; MUCH];
                    if stream.read_exact(&mut all).is_ok() {
                        let _ = stream.write_all(&all);
                    }
                }
            });
            std::thread::spawn(move || {
                let mut buffer = [0; 2_048];
                while let Ok((_, peer)) = datagrams.recv_from(&mut buffer) {
                    let _ = datagrams.send_to(&[b'a'; 1_400], peer);
                }
            });
        }
    }

    /// Routers that tell nobody what does not fit.
    fn mute(&self, lab: &Lab) {
        let rules = "table inet mute { chain out { type filter hook output priority 0; \
                     icmp type destination-unreachable icmp code 4 drop; icmpv6 type packet-too-big drop; }; }";
        for namespace in [&lab.topology.internet, &self.router] {
            let fed = namespace.feed(&["nft", "-f", "-"], rules);
            assert!(fed.status.success(), "{fed:?}");
        }
    }
}

/// Whether all of it went there and came back.
fn carries(sandbox: &Sandbox, to: &str, limit: Duration) -> bool {
    sandbox.run(|| {
        let mut stream = connect(SocketAddr::new(ip(to), PORT)).expect_open();
        round_trip(&mut stream, limit)
    })
}

fn round_trip(stream: &mut TcpStream, limit: Duration) -> bool {
    stream.set_read_timeout(Some(limit)).expect("limit");
    stream.set_write_timeout(Some(limit)).expect("limit");
    let sent = vec![b's'; MUCH];
    let mut got = vec![0; MUCH];
    stream.write_all(&sent).is_ok() && stream.read_exact(&mut got).is_ok() && got == sent
}

/// Has the gateway look at its host's routes: something public becomes near, and is private from then on.
fn look_again(lab: &Lab, near: &str) {
    lab.topology
        .uplink
        .ip(&[format!("route add {near}/32 dev lan0")]);
    let probe = lab.sandbox(policies::INTERNET);
    eventually("the new route", || {
        let tried = probe.run(|| connect(SocketAddr::new(ip(near), 80)));
        tried.is_refused().then_some(())
    });
}

#[test]
fn tcp_finds_a_narrow_path_in_both_directions() {
    let lab = Lab::builder().gateway_only().start();
    let _far = Far::new(&lab);
    let sandbox = lab.sandbox(policies::INTERNET);
    for to in FAR {
        assert!(carries(&sandbox, to, SURELY), "{to}");
    }
}

#[test]
fn tcp_outlasts_routers_that_tell_nothing_where_the_host_probes() {
    let lab = Lab::builder().gateway_only().start();
    let far = Far::new(&lab);
    far.mute(&lab);
    let sandbox = lab.sandbox(policies::INTERNET);
    // the path is a black hole: who does not probe gets nothing through
    lab.topology.uplink.sysctl("net/ipv4/tcp_mtu_probing", "0");
    assert!(!carries(&sandbox, FAR[0], Duration::from_secs(2)));
    for namespace in [&lab.topology.uplink, &far.machine] {
        // from the first segment on; with 1 a connection loses some seconds before it begins
        namespace.sysctl("net/ipv4/tcp_mtu_probing", "2");
    }
    for to in FAR {
        assert!(carries(&sandbox, to, SURELY), "{to}");
    }
}

#[test]
fn a_sandbox_with_a_smaller_link_loses_nothing_of_a_stream() {
    let lab = Lab::builder().gateway_only().start();
    let _far = Far::new(&lab);
    let sandbox = lab.sandbox(policies::INTERNET);
    sandbox.namespace().ip(&["link set eth0 mtu 1280"]);
    for to in FAR {
        assert!(carries(&sandbox, to, SURELY), "{to}");
    }
}

/// How many datagrams of a family were put together from pieces in this namespace.
fn put_together(sandbox: &Sandbox, to: &str) -> u64 {
    let counter = if ip(to).is_ipv4() {
        "IpReasmOKs"
    } else {
        "Ip6ReasmOKs"
    };
    let out = sandbox.namespace().exec(&["nstat", "-asz", counter]);
    let text = String::from_utf8(out.stdout).expect("text");
    let line = text.lines().find(|line| line.starts_with(counter));
    let count = line.and_then(|line| line.split_whitespace().nth(1));
    count.expect("the counter").parse().expect("a number")
}

/// Answers of 1,400 octets come, in pieces or whole.
fn answered(sandbox: &Sandbox, to: &str, in_pieces: bool) {
    eventually("an answer in the size of the link", || {
        let before = put_together(sandbox, to);
        let length = sandbox.run(|| {
            let any = if ip(to).is_ipv4() {
                "0.0.0.0:0"
            } else {
                "[::]:0"
            };
            let client = socket(any);
            let limit = Some(Duration::from_millis(200));
            client.set_read_timeout(limit).expect("limit");
            client.send_to(b"?", SocketAddr::new(ip(to), PORT)).ok()?;
            client.recv(&mut [0; 2_048]).ok()
        })?;
        assert_eq!(length, 1_400, "{to}");
        ((put_together(sandbox, to) > before) == in_pieces).then_some(())
    });
}

#[test]
fn a_sandbox_with_a_smaller_link_gets_large_datagrams_in_pieces() {
    let lab = Lab::builder().gateway_only().start();
    let _far = Far::new(&lab);
    let sandbox = lab.sandbox(policies::INTERNET);
    let denied = lab.sandbox(policies::NONE);
    let refused = || {
        denied.run(|| {
            FAR.map(|to| {
                let any = if ip(to).is_ipv4() {
                    "0.0.0.0:0"
                } else {
                    "[::]:0"
                };
                let client = socket(any);
                client
                    .connect(SocketAddr::new(ip(to), PORT))
                    .expect("connect");
                client.send(b"?").expect("send");
                client.recv(&mut [0; 16]).map_err(|e| e.kind())
            })
        })
    };
    let refusal = [(); 2].map(|()| Err(std::io::ErrorKind::ConnectionRefused));
    for to in FAR {
        answered(&sandbox, to, false);
    }
    for namespace in [sandbox.namespace(), denied.namespace()] {
        namespace.ip(&["link set eth0 mtu 1280"]);
    }
    for to in FAR {
        answered(&sandbox, to, true);
    }
    assert_eq!(refused(), refusal, "its denied twin");
    // and whole again on a link that was widened
    sandbox.namespace().ip(&["link set eth0 mtu 1500"]);
    for to in FAR {
        answered(&sandbox, to, false);
    }
    // IPv6 does not go over such a link at all
    sandbox.namespace().ip(&["link set eth0 mtu 600"]);
    answered(&sandbox, FAR[0], true);
}

#[test]
fn a_client_that_asks_hears_the_size_of_a_path_beyond_the_link() {
    let lab = Lab::builder().gateway_only().start();
    let _far = Far::new(&lab);
    let sandbox = lab.sandbox(policies::INTERNET);
    let ask_four = (libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO);
    let ask_six = (
        libc::SOL_IPV6,
        libc::IPV6_MTU_DISCOVER,
        libc::IPV6_PMTUDISC_DO,
    );
    let [four, six] = FAR;
    let families = [
        (four, "0.0.0.0:0", "9.9.9.9", ask_four),
        (six, "[::]:0", "8.8.8.8", ask_six),
    ];
    for (to, any, near, (level, name, value)) in families {
        sandbox.run(|| {
            let client = socket(any);
            client
                .set_read_timeout(Some(Duration::from_millis(100)))
                .expect("limit");
            option(&client, level, name, value);
            client
                .connect(SocketAddr::new(ip(to), PORT))
                .expect("connect");
            eventually("the path's size", || {
                let sent = client.send(&[b'm'; 1_400]);
                let _ = client.recv(&mut [0; 2_048]);
                sent.err()
                    .filter(|e| e.raw_os_error() == Some(libc::EMSGSIZE))
            });
            look_again(&lab, near);
            // what fits goes there; the answer is too large for the path, and its sender hears that as well
            let answer = eventually("an answer", || {
                let _ = client.send(&[b'm'; 1_200]);
                let mut buffer = [0; 2_048];
                client.recv(&mut buffer).ok()
            });
            assert_eq!(answer, 1_400, "{to}");
        });
    }
}
