//! IP packets that nothing may let through: other protocols, straight ways out, and shapes that hide what is inside.

use std::net::{IpAddr, Ipv6Addr};

use super::packet::{ACK, Ends, FIN, ICMPV6, Packet, RST, SYN};
use super::{List, NOBODY4, NOBODY6, Places, of};
use crate::control::api::Family;

/// Protocols without a door (IANA's protocol numbers).
const PROTOCOLS: [(u8, &str, &str); 15] = [
    (2, "igmp", "IGMP"),
    (33, "dccp", "DCCP"),
    (46, "rsvp", "RSVP"),
    (47, "gre", "GRE"),
    (50, "esp", "ESP"),
    (51, "ah", "AH"),
    (89, "ospf", "OSPF"),
    (103, "pim", "PIM"),
    (108, "ipcomp", "IPComp"),
    (112, "vrrp", "VRRP"),
    (115, "l2tp", "L2TP"),
    (132, "sctp", "SCTP"),
    (136, "udplite", "UDP-Lite"),
    (137, "mpls_in_ip", "MPLS in IP"),
    (255, "protocol_255", "protocol 255"),
];

pub(super) fn nobody(family: Family) -> IpAddr {
    of(family, (NOBODY4, NOBODY6))
}

fn out(places: &Places, family: Family) -> Ends {
    Ends {
        from: of(family, places.own),
        to: nobody(family),
    }
}

/// Everything that is neither TCP, UDP nor ICMP, tunnels with a whole packet inside included.
pub fn protocols(list: &mut List<'_>, places: &Places, family: Family) {
    let ends = out(places, family);
    for (number, check, what) in PROTOCOLS {
        // AH is an extension header in IPv6, with a length of its own
        let mut payload = if number == 51 {
            vec![17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]
        } else {
            vec![0, 1, 0, 9, 0, 0, 0, 0]
        };
        payload.extend(list.mark());
        list.packet(check, what, &Packet::new(ends, number, payload));
    }
    for (number, inner, check, what) in [
        (4, Family::Ipv4, "ipv4_in_ip", "IPv4 in IP"),
        (41, Family::Ipv6, "ipv6_in_ip", "IPv6 in IP"),
    ] {
        let (_, inside) = Packet::udp(out(places, inner), 9, &list.mark()).bytes();
        list.packet(check, what, &Packet::new(ends, number, inside));
    }
    let echo = Packet::echo(ends, &list.mark());
    list.packet("icmp_echo", "an ICMP echo to nobody", &echo);
    // a timestamp, which nothing permits (RFC 792); IPv6 knows none, its number 13 is nobody's
    let mut stamp = vec![0; 4];
    stamp.extend(list.mark());
    list.packet(
        "icmp_other",
        "ICMP other than echoes",
        &Packet::icmp(ends, 13, &stamp),
    );
    let kind = if family == Family::Ipv6 { 1 } else { 3 };
    let mut error = vec![0; 4];
    error.extend(list.mark());
    list.packet(
        "icmp_error",
        "an ICMP error about no packet",
        &Packet::icmp(ends, kind, &error),
    );
}

/// Straight ways out, past names and doors.
pub fn transports(list: &mut List<'_>, places: &Places, family: Family) {
    let ends = out(places, family);
    for (flags, check, what) in [
        (SYN, "tcp_syn", "a TCP SYN that carries bytes"),
        (SYN | FIN, "tcp_syn_fin", "SYN with FIN"),
        (SYN | RST, "tcp_syn_rst", "SYN with RST"),
        (SYN | ACK, "tcp_syn_ack", "an answer to no SYN"),
        (ACK, "tcp_ack", "a segment of no connection"),
        (RST, "tcp_rst", "a reset of no connection"),
        (0, "tcp_null", "a segment without flags"),
        (FIN | 8 | 32, "tcp_xmas", "a segment with odd flags"),
    ] {
        list.packet(check, what, &Packet::tcp(ends, 443, flags, &list.mark()));
    }
    for (port, check, what) in [
        (33_434, "udp", "a datagram"),
        (443, "udp_443", "a datagram to the port of QUIC"),
        (123, "udp_ntp", "a datagram to the port of NTP"),
        (4789, "vxlan", "VXLAN"),
    ] {
        list.packet(check, what, &Packet::udp(ends, port, &list.mark()));
    }
    // QUIC version 1, an Initial with two connection ids (RFC 9000 17.2.2); it cannot be decrypted
    let mut initial = vec![
        0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x40, 0x28,
    ];
    initial.extend(list.mark());
    initial.extend([0; 24]);
    list.packet(
        "quic",
        "a first packet of QUIC",
        &Packet::udp(ends, 443, &initial),
    );
    let mut question = vec![0x53, 0x50, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in [list.label().as_str(), "selftest", "example"] {
        question.push(u8::try_from(label.len()).unwrap_or(0));
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    list.packet(
        "dns_outside",
        "a question to a server outside",
        &Packet::udp(ends, 53, &question),
    );
    let mut near = Packet::udp(ends, 33_435, &list.mark());
    near.hops = 1;
    list.packet("hop_1", "a datagram for the first hop", &near);
}

/// Fragments and options of IPv4.
pub fn only_v4(list: &mut List<'_>, places: &Places) {
    let ends = out(places, Family::Ipv4);
    for (fragment, check, what) in [
        (0x2000, "fragment_first", "a first fragment"),
        (0x2004, "fragment_middle", "a fragment in the middle"),
        (0x0004, "fragment_last", "a last fragment"),
        (
            0x1fff,
            "fragment_end",
            "a fragment beyond the longest packet",
        ),
    ] {
        let mut packet = Packet::udp(ends, 9, &list.mark());
        packet.fragment = fragment;
        list.packet(check, what, &packet);
    }
    let [a, b, c, d] = NOBODY4.octets();
    for (options, check, what) in [
        (
            vec![131, 7, 4, a, b, c, d, 0],
            "source_route",
            "a loose source route",
        ),
        (
            vec![137, 7, 4, a, b, c, d, 0],
            "source_route_strict",
            "a strict source route",
        ),
        (
            vec![7, 7, 4, 0, 0, 0, 0, 0],
            "record_route",
            "a record of the route",
        ),
        (vec![148, 4, 0, 0], "router_alert", "a router alert"),
        (
            vec![68, 8, 5, 0, 0, 0, 0, 0],
            "timestamp",
            "a timestamp option",
        ),
    ] {
        let mut packet = Packet::udp(ends, 9, &list.mark());
        packet.options = options;
        list.packet(check, what, &packet);
    }
}

/// Extension headers of IPv6, which may hide what follows.
pub fn only_v6(list: &mut List<'_>, places: &Places) {
    let ends = out(places, Family::Ipv6);
    // a routing header of type 0 with one address (RFC 5095 forbids it)
    let mut routing = vec![2, 0, 1, 0, 0, 0, 0];
    routing.extend(NOBODY6.octets());
    let padding = vec![0, 1, 4, 0, 0, 0, 0];
    for (header, body, check, what) in [
        (0, padding.clone(), "hop_by_hop", "hop-by-hop options"),
        (43, routing, "routing_header", "a routing header"),
        (
            60,
            padding.clone(),
            "destination_options",
            "destination options",
        ),
        (
            135,
            vec![0, 0, 0, 0, 0, 0, 0],
            "mobility",
            "a mobility header",
        ),
        (139, padding, "hip", "a host identity header"),
        (
            44,
            vec![0, 0, 1, 0x53, 0x50, 0, 1],
            "fragment_first",
            "a first fragment",
        ),
        (
            44,
            vec![0, 0, 0x10, 0x53, 0x50, 0, 2],
            "fragment_last",
            "a last fragment",
        ),
        (
            44,
            vec![0, 0, 0, 0x53, 0x50, 0, 3],
            "fragment_atomic",
            "a packet that is its only fragment",
        ),
    ] {
        let packet = Packet::udp(ends, 9, &list.mark()).extended(header, &body);
        list.packet(check, what, &packet);
    }
    let mut hidden = Packet::udp(ends, 9, &list.mark()).extended(44, &[0, 0, 0, 0x53, 0x50, 0, 4]);
    hidden = hidden.extended(60, &[0, 1, 4, 0, 0, 0, 0]);
    list.packet(
        "fragment_hidden",
        "a fragment header behind options",
        &hidden,
    );
    let none = Packet::new(ends, 59, list.mark().to_vec());
    list.packet("no_next_header", "a packet without a next header", &none);
    // multicast listener reports and router discovery speak to the link, which has nobody to listen
    let all_routers = Ends {
        from: ends.from,
        to: Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2).into(),
    };
    for (kind, check, what) in [
        (131, "mld", "a multicast listener report"),
        (133, "router_solicitation", "a router solicitation"),
        (141, "inverse_discovery", "inverse neighbour discovery"),
    ] {
        let mut body = vec![0; 4];
        body.extend(list.mark());
        let mut packet = Packet::icmp(all_routers, kind, &body);
        packet.hops = 255;
        debug_assert_eq!(packet.protocol, ICMPV6, "of the family");
        list.packet(check, what, &packet);
    }
}
