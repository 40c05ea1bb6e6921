//! What a sandbox with every right inside can put on its link: raw frames. Each bad one is dropped and counted by its
//! kind; its permitted twin arrives.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use super::lab::{LIMIT, Lab, SERVICE4, SERVICE6, Sandbox, v4, v6};
use super::shapes::{FAR4, FAR6, Four, Six, segment, send, wire};
use crate::kernel::backend::Backend;
use crate::kernel::datagrams::MOST;
use crate::kernel::enforcer::Posture;
use crate::kernel::sockets::Doors;

/// Counters that differ, with by how much.
fn counted(lab: &Lab, before: &[(String, u64)]) -> Vec<(String, u64)> {
    let now = totals(lab);
    let changed = |(name, count): (String, u64)| {
        let was = before
            .iter()
            .find(|(n, _)| *n == name)
            .map_or(0, |(_, c)| *c);
        (count != was).then(|| (name, count - was))
    };
    now.into_iter().filter_map(changed).collect()
}

fn totals(lab: &Lab) -> Vec<(String, u64)> {
    lab.enforcer
        .counters()
        .unwrap()
        .into_iter()
        .map(|(name, c)| (name, c.packets))
        .collect()
}

struct Link {
    lab: Lab,
    doors: Doors,
    wire: OwnedFd,
    _sandbox: Sandbox,
    _neighbour: Sandbox,
}

impl Link {
    fn open() -> Self {
        let lab = Lab::open();
        let doors = Doors::open(lab.enforcer.ns(), lab.enforcer.config().ports).unwrap();
        lab.enforcer.apply(Posture::Enforcing).unwrap();
        let (sandbox, neighbour) = (lab.sandbox(0), lab.sandbox(1));
        let wire = wire(&sandbox);
        Self {
            lab,
            doors,
            wire,
            _sandbox: sandbox,
            _neighbour: neighbour,
        }
    }

    /// Sends a frame and demands that this counter rises and no other. veth delivers before the send returns or shortly
    /// after on another CPU, so the counter is waited for. The sandbox's own group reports, which bear a header option,
    /// may come at any time.
    fn dropped(&self, ethertype: u16, packet: &[u8], counter: &str) {
        let before = totals(&self.lab);
        send(&self.wire, ethertype, packet);
        let start = Instant::now();
        let mut seen = counted(&self.lab, &before);
        while !seen.iter().any(|(name, _)| name == counter) && start.elapsed() < LIMIT {
            std::thread::yield_now();
            seen = counted(&self.lab, &before);
        }
        seen.retain(|(name, _)| name == counter || name != "drop_options");
        let [(name, times)] = seen.as_slice() else {
            panic!("{counter}: {seen:?}")
        };
        assert_eq!(name, counter);
        assert!(
            *times == 1 || counter == "drop_options",
            "{counter} rose by {times}"
        );
    }

    fn four(&self, packet: &Four, counter: &str) {
        self.dropped(0x0800, &packet.bytes(), counter);
    }

    fn six(&self, packet: &Six, counter: &str) {
        self.dropped(0x86dd, &packet.bytes(), counter);
    }

    /// The permitted twin: the same door hears a good question.
    fn arrives(&self, door: usize, ethertype: u16, packet: &[u8]) {
        send(&self.wire, ethertype, packet);
        let mut buffer = [0; 64];
        let start = Instant::now();
        loop {
            let mut questions = [None; MOST];
            let buffers = std::iter::once(&mut buffer[..]);
            match self.doors.dns_udp[door].receive_many(buffers, &mut questions) {
                Ok(_) => {
                    let length = questions[0].unwrap().length;
                    return assert_eq!(&buffer[..length], b"question");
                }
                Err(_) if start.elapsed() < LIMIT => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn nothing_arrived(&self) {
        for door in &self.doors.dns_udp {
            assert_eq!(
                door.receive_many(std::iter::once(&mut [0; 64][..]), &mut [None; MOST])
                    .unwrap_err()
                    .kind(),
                io::ErrorKind::WouldBlock
            );
        }
    }
}

#[test]
fn spoofed_sources_are_dropped() {
    let link = Link::open();
    let good4 = Four::question();
    for from in [
        v4(1),
        SERVICE4,
        [127, 0, 0, 1].into(),
        [0; 4].into(),
        [255; 4].into(),
        [8; 4].into(),
    ] {
        link.four(
            &Four {
                from,
                ..good4.clone()
            },
            "drop_spoofed",
        );
    }
    let good6 = Six::question();
    for from in [
        v6(1),
        SERVICE6,
        Ipv6Addr::UNSPECIFIED,
        "fe80::1".parse().unwrap(),
    ] {
        link.six(
            &Six {
                from,
                ..good6.clone()
            },
            "drop_spoofed",
        );
    }
    // The kernel itself drops this one before any rule sees it.
    let loopback = Six {
        from: Ipv6Addr::LOCALHOST,
        ..good6.clone()
    };
    send(&link.wire, 0x86dd, &loopback.bytes());
    link.nothing_arrived();
    link.arrives(0, 0x0800, &good4.bytes());
    link.arrives(1, 0x86dd, &good6.bytes());
}

#[test]
fn fragments_and_hidden_headers_are_dropped() {
    let link = Link::open();
    let good4 = Four::question();
    // First fragment, middle, last; alone in their row or not, none reaches reassembly.
    for fragment in [0x2000, 0x2001, 0x0001, 0x1fff] {
        link.four(
            &Four {
                fragment,
                ..good4.clone()
            },
            "drop_fragment",
        );
    }
    let router_alert: &[u8] = &[0x94, 4, 0, 0];
    let loose_source_route: &[u8] = &[0x83, 7, 4, 10, 0, 0, 1, 0];
    for options in [router_alert, loose_source_route] {
        link.four(
            &Four {
                options,
                ..good4.clone()
            },
            "drop_options",
        );
    }
    let good6 = Six::question();
    // An atomic fragment is whole, and still a fragment header.
    let atomic = good6.behind(44, [0; 7]);
    for fragment in [
        good6.behind(44, [0, 0, 1, 0, 0, 0, 7]),
        atomic.clone(),
        atomic.behind(60, [0, 1, 4, 0, 0, 0, 0]),
    ] {
        match link.lab.enforcer.backend() {
            Backend::Nftables => link.six(&fragment, "drop_fragment"),
            // thrown away before the tables, and not counted there
            Backend::Iptables => send(&link.wire, 0x86dd, &fragment.bytes()),
        }
    }
    for header in [0, 43, 60] {
        link.six(&good6.behind(header, [0, 1, 4, 0, 0, 0, 0]), "drop_options");
    }
    link.six(&good6.behind(51, [0; 7]), "drop_options");
    link.nothing_arrived();
    // Don't-fragment alone is no fragment.
    link.arrives(
        0,
        0x0800,
        &Four {
            fragment: 0x4000,
            ..good4
        }
        .bytes(),
    );
    link.arrives(1, 0x86dd, &good6.bytes());
}

#[test]
fn other_protocols_and_icmp_are_dropped() {
    let link = Link::open();
    let (good4, good6) = (Four::question(), Six::question());
    for protocol in [4, 41, 47, 50, 132, 33, 136, 253, 2, 58] {
        link.four(
            &Four {
                protocol,
                ..good4.clone()
            },
            "drop_protocol",
        );
    }
    for next in [4, 41, 47, 50, 132, 136, 253, 59, 1] {
        link.six(
            &Six {
                next,
                ..good6.clone()
            },
            "drop_protocol",
        );
    }
    // Echo reply, timestamp, address mask, router advertisement, redirect, forged errors.
    for (to, kind) in [
        (FAR4, 0),
        (SERVICE4, 13),
        (FAR4, 13),
        (SERVICE4, 17),
        (SERVICE4, 9),
        (SERVICE4, 10),
        (SERVICE4, 5),
        (SERVICE4, 3),
        (FAR4, 11),
    ] {
        let payload = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        link.four(
            &Four {
                to,
                protocol: 1,
                payload,
                ..good4.clone()
            },
            "drop_icmp",
        );
    }
    // Echo reply, router solicitation and advertisement, redirect, packet too big; a neighbour solicitation for a stranger.
    for (to, kind) in [
        (FAR6, 129),
        (SERVICE6, 1),
        (SERVICE6, 133),
        (SERVICE6, 134),
        (SERVICE6, 137),
        (SERVICE6, 2),
        (FAR6, 135),
    ] {
        let payload = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        link.six(
            &Six {
                to,
                next: 58,
                payload,
                ..good6.clone()
            },
            "drop_icmp",
        );
    }
    link.nothing_arrived();
    link.arrives(0, 0x0800, &good4.bytes());
    link.arrives(1, 0x86dd, &good6.bytes());
}

/// An error of ICMP that quotes the beginning of a packet.
fn quoting(kind: u8, code: u8, quote: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    message.extend(quote);
    message
}

#[test]
fn only_a_closed_udp_port_may_be_told_and_echoes_go_nowhere_else() {
    let link = Link::open();
    let (good4, good6) = (Four::question(), Six::question());
    let (quote4, quote6) = (good4.bytes(), good6.bytes());
    let mut options = quote4.clone();
    options[0] = 0x46;
    let mut of_tcp = quote4.clone();
    of_tcp[9] = 6;
    for payload in [
        quoting(3, 3, &of_tcp),
        quoting(3, 3, &options),
        quoting(3, 1, &quote4),
        quoting(3, 4, &quote4),
        quoting(11, 0, &quote4),
        quoting(12, 0, &quote4),
    ] {
        let protocol = 1;
        let packet = Four {
            to: FAR4,
            protocol,
            payload,
            ..good4.clone()
        };
        link.four(&packet, "drop_icmp");
    }
    let mut of_tcp = quote6.clone();
    of_tcp[6] = 6;
    for payload in [
        quoting(1, 4, &of_tcp),
        quoting(1, 3, &quote6),
        quoting(2, 0, &quote6),
        quoting(3, 0, &quote6),
    ] {
        let packet = Six {
            to: FAR6,
            next: 58,
            payload,
            ..good6.clone()
        };
        link.six(&packet, "drop_icmp");
    }
    // where no decision is asked about, no echo is either
    let echo = |kind: u8| vec![kind, 0, 0, 0, 0, 0, 0, 0];
    for to in [[224, 0, 0, 1], [255; 4]] {
        let packet = Four {
            to: to.into(),
            protocol: 1,
            payload: echo(8),
            ..good4.clone()
        };
        link.four(&packet, "drop_multicast");
    }
    let group = Six {
        to: "ff02::1".parse().unwrap(),
        next: 58,
        payload: echo(128),
        ..good6.clone()
    };
    link.six(&group, "drop_multicast");
    link.nothing_arrived();
}

#[test]
fn multicast_broadcast_and_link_local_are_dropped() {
    let link = Link::open();
    for to in [[224, 0, 0, 1], [239, 1, 1, 1], [255; 4]] {
        link.four(
            &Four {
                to: to.into(),
                ..Four::question()
            },
            "drop_multicast",
        );
    }
    for to in ["ff02::1", "ff02::2", "ff05::1:3", "ff0e::1"] {
        link.six(
            &Six {
                to: to.parse().unwrap(),
                ..Six::question()
            },
            "drop_multicast",
        );
    }
    for to in ["fe80::1", "fe80::a9fe:a9fe", "febf::1"] {
        link.six(
            &Six {
                to: to.parse().unwrap(),
                ..Six::question()
            },
            "drop_link_local",
        );
    }
    link.nothing_arrived();
}

#[test]
fn impossible_flags_are_dropped_and_stray_segments_open_nothing() {
    let link = Link::open();
    let tcp = |flags| Four {
        protocol: 6,
        payload: segment(flags),
        ..Four::question()
    };
    for flags in [0x03, 0x06, 0x17, 0x2b, 0xc3] {
        link.four(&tcp(flags), "drop_flags");
    }
    for flags in [0x00, 0x10, 0x11, 0x12, 0x29, 0x38] {
        send(&link.wire, 0x0800, &tcp(flags).bytes());
    }
    link.arrives(0, 0x0800, &Four::question().bytes());
    for listener in &link.doors.tcp {
        assert_eq!(
            listener.accept().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
    }
}

#[test]
fn a_flood_of_one_sandbox_is_cut_and_counted() {
    let link = Link::open();
    let burst = u64::from(link.lab.enforcer.config().limits.connects) * 2;
    let bytes = Four {
        protocol: 6,
        payload: segment(2),
        ..Four::question()
    }
    .bytes();
    for _ in 0..burst * 3 {
        send(&link.wire, 0x0800, &bytes);
    }
    assert!(link.lab.count("drop_rate") > burst / 2);
}

#[test]
fn frames_of_other_kinds_reach_nothing() {
    let link = Link::open();
    let before = totals(&link.lab);
    for ethertype in [0x8100, 0x8847, 0x8863, 0x88b5, 0x88cc, 0x0042] {
        send(&link.wire, ethertype, &Four::question().bytes());
    }
    link.arrives(0, 0x0800, &Four::question().bytes());
    let others = counted(&link.lab, &before)
        .into_iter()
        .filter(|(name, _)| name != "drop_options");
    assert_eq!(others.collect::<Vec<_>>(), []);
    link.nothing_arrived();
}
