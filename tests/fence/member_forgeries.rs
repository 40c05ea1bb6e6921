//! Members that lie: frames in a sibling's name, false neighbours, connections opened in pieces or under options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lab::capture::Capture;
use lab::raw::{self, protocol};
use lab::{Sandbox, policies};

use crate::members::{PORT, datagrams, lab, reaches, serve};

fn v4(address: IpAddr) -> Ipv4Addr {
    if let IpAddr::V4(ip) = address {
        ip
    } else {
        Ipv4Addr::UNSPECIFIED
    }
}

fn v6(address: IpAddr) -> Ipv6Addr {
    if let IpAddr::V6(ip) = address {
        ip
    } else {
        Ipv6Addr::UNSPECIFIED
    }
}

#[test]
fn forged_frames_of_a_member_reach_no_sibling() {
    let lab = lab();
    let db = lab.member("shop", "db", "", policies::NONE);
    let web = lab.member("shop", "web", "db", policies::NONE);
    let cache = lab.member("shop", "cache", "db", policies::NONE);
    serve(&db);
    let seen = Capture::start(db.namespace(), &["eth0"]);
    let mark = seen.mark();
    // another member's, another network's and a stranger's source
    for source in [
        v4(cache.v4()),
        Ipv4Addr::new(198, 18, 0, 1),
        Ipv4Addr::new(8, 8, 8, 8),
    ] {
        let datagram = raw::udp(source.into(), db.v4(), (4000, PORT), b"forged");
        web.run(|| raw::send4(&raw::ipv4(source, v4(db.v4()), protocol::UDP, 0, &datagram)))
            .expect("send");
        let segment = raw::syn(source.into(), db.v4(), (4001, PORT));
        web.run(|| raw::send4(&raw::ipv4(source, v4(db.v4()), protocol::TCP, 0, &segment)))
            .expect("send");
    }
    let datagram = raw::udp(cache.v6(), db.v6(), (4000, PORT), b"forged");
    web.run(|| {
        raw::send6(&raw::ipv6(
            v6(cache.v6()),
            v6(db.v6()),
            protocol::UDP,
            &datagram,
        ))
    })
    .expect("send");
    forge_neighbours(&web, &db, &cache);
    // a vlan tag around what would be permitted
    let inner = raw::ipv4(
        v4(web.v4()),
        v4(db.v4()),
        protocol::ICMP,
        0,
        &raw::icmp4(8, b"forged"),
    );
    let tagged = [&[0, 7, 8, 0], inner.as_slice()].concat();
    web.run(|| raw::send_frame("eth0", [0xff; 6], 0x8100, &tagged))
        .expect("send");
    assert!(datagrams(&web, db.v4()), "the permitted twin comes last");
    let frames = seen.since(mark);
    assert!(
        frames.iter().any(|f| f.source == Some(web.v4())),
        "the capture sees what is permitted"
    );
    let forged: Vec<_> = frames
        .iter()
        .filter(|f| f.holds(b"forged") || f.ethertype == 0x0806 || f.touches(cache.v4()))
        .collect();
    assert!(
        forged.is_empty(),
        "{} frames, first {:?}",
        forged.len(),
        forged.first()
    );
    assert!(
        reaches(&cache, db.v4()) && reaches(&cache, db.v6()),
        "nobody believed the forged neighbours"
    );
}

/// Claims a sibling's and the gateway's addresses, by ARP and neighbour advertisement, to everybody.
fn forge_neighbours(web: &Sandbox, db: &Sandbox, cache: &Sandbox) {
    for claimed in [cache.v4(), lab::topology::ip(lab::topology::SERVICE4)] {
        let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 9];
        arp.extend_from_slice(&v4(claimed).octets());
        arp.extend_from_slice(&[2, 0, 0, 0, 0, 8]);
        arp.extend_from_slice(&v4(db.v4()).octets());
        web.run(|| raw::send_frame("eth0", [0xff; 6], 0x0806, &arp))
            .expect("send");
    }
    let mut advertisement = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
    advertisement.extend_from_slice(&v6(cache.v6()).octets());
    advertisement.extend_from_slice(&[2, 1, 2, 0, 0, 0, 0, 9]);
    for to in [v6(db.v6()), Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)] {
        let packet = raw::ipv6(v6(cache.v6()), to, protocol::ICMP6, &advertisement);
        web.run(|| raw::send_frame("eth0", [0xff; 6], 0x86dd, &packet))
            .expect("send");
    }
}

/// A packet with four bytes of IPv4 options (no-operation).
fn under_options(from: Ipv4Addr, to: Ipv4Addr, number: u8, payload: &[u8]) -> Vec<u8> {
    let plain = raw::ipv4(from, to, number, 0, &[&[1, 1, 1, 1], payload].concat());
    let part = |range: std::ops::Range<usize>| plain.get(range).unwrap_or_default();
    let header = |sum: [u8; 2]| [&[0x46], part(1..10), &sum, part(12..24)].concat();
    let sum = raw::checksum(&[&header([0, 0])]);
    [header(sum.to_be_bytes()).as_slice(), payload].concat()
}

#[test]
fn a_needed_service_cannot_open_a_connection_in_fragments_or_under_options() {
    let lab = lab();
    let db = lab.member("shop", "db", "", policies::NONE);
    let web = lab.member("shop", "web", "db", policies::NONE);
    serve(&web);
    serve(&db);
    let seen = Capture::start(web.namespace(), &["eth0"]);
    let mark = seen.mark();
    let (from, to) = (v4(db.v4()), v4(web.v4()));
    let segment = raw::syn(db.v4(), web.v4(), (4002, PORT));
    let datagram = raw::udp(db.v4(), web.v4(), (4004, PORT), b"broken");
    let packets = [
        raw::ipv4(from, to, protocol::TCP, 0x2000, &segment[..8]),
        raw::ipv4(from, to, protocol::TCP, 1, &segment[8..]),
        raw::ipv4(from, to, protocol::TCP, 0, &segment),
        under_options(from, to, protocol::TCP, &segment),
        raw::ipv4(from, to, protocol::UDP, 0x2000, &datagram),
        under_options(from, to, protocol::UDP, &datagram),
    ];
    for packet in &packets {
        db.run(|| raw::send4(packet)).expect("send");
    }
    // the same in IPv6, behind a destination options header
    let segment6 = raw::syn(db.v6(), web.v6(), (4003, PORT));
    let hidden = [&[protocol::TCP, 0, 1, 4, 0, 0, 0, 0], segment6.as_slice()].concat();
    db.run(|| raw::send6(&raw::ipv6(v6(db.v6()), v6(web.v6()), 60, &hidden)))
        .expect("send");
    assert!(datagrams(&db, web.v4()), "the permitted twin comes last");
    let arrived: Vec<_> = seen
        .since(mark)
        .into_iter()
        .filter(|f| f.touches(db.v4()) || f.touches(db.v6()))
        .filter(|f| f.protocol != protocol::UDP || f.holds(b"broken"))
        .collect();
    assert!(
        arrived.is_empty(),
        "{} frames, first {:?}",
        arrived.len(),
        arrived.first()
    );
    assert!(reaches(&web, db.v4()), "answers still come back");
}
