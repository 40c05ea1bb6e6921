//! Frames that are no IP packet for the gateway: lies about neighbours, other ethertypes, tags, other hardware addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::packet::{Ends, Packet};
use super::{List, NOBODY4, Places, ethernet};
use crate::kernel::links::OUTER_MAC;

/// Everybody on the link.
const BROADCAST: [u8; 6] = [0xff; 6];
/// Hardware address that lies claim things for.
const LIAR: [u8; 6] = [0x02, 0x53, 0x50, 0, 0, 0x77];

/// ARP and neighbour discovery about others' addresses.
pub fn neighbours(list: &mut List<'_>, places: &Places) {
    let (request, reply) = (1, 2);
    for (operation, from, to, check, what) in [
        (
            request,
            places.own.0,
            places.other.0,
            "arp_sandbox",
            "ARP for another sandbox",
        ),
        (
            request,
            places.other.0,
            places.service.0,
            "arp_forged",
            "ARP in another sandbox's name",
        ),
        (
            reply,
            places.service.0,
            places.own.0,
            "arp_service",
            "a claim by ARP to be the service",
        ),
        (
            reply,
            places.other.0,
            places.other.0,
            "arp_claim",
            "a claim by ARP to be another sandbox",
        ),
    ] {
        let mut body = arp(operation, from, to);
        body.extend(list.mark());
        let frame = ethernet(BROADCAST, 0x0806, &body);
        list.frame(check, what, frame);
    }
    discovery(list, places);
}

fn discovery(list: &mut List<'_>, places: &Places) {
    let nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    for (kind, target, to, check, what) in [
        (
            135,
            places.other.1,
            nodes,
            "nd_sandbox",
            "a solicitation for another sandbox",
        ),
        (
            136,
            places.service.1,
            nodes,
            "nd_service",
            "a claim by advertisement to be the service",
        ),
        (
            136,
            places.other.1,
            places.service.1,
            "nd_claim",
            "a claim by advertisement to be another sandbox",
        ),
        (
            137,
            places.service.1,
            places.service.1,
            "nd_redirect",
            "a redirect",
        ),
        (
            134,
            places.own.1,
            nodes,
            "router_advertisement",
            "an advertisement as a router",
        ),
    ] {
        let ends = Ends {
            from: places.own.1.into(),
            to: to.into(),
        };
        let mut body = vec![0xa0, 0, 0, 0];
        body.extend(target.octets());
        // option 2, the target's hardware address; option 14, a nonce of 22 bytes (RFC 3971 5.3.2), has room for a mark
        body.extend([2, 1]);
        body.extend(LIAR);
        body.extend([14, 3]);
        body.extend(list.mark());
        body.extend([0; 6]);
        let mut packet = Packet::icmp(ends, kind, &body);
        packet.hops = 255;
        list.packet(check, what, &packet);
    }
}

fn arp(operation: u8, from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    // RFC 826: Ethernet, IPv4
    let mut body = vec![0, 1, 8, 0, 6, 4, 0, operation];
    body.extend(LIAR);
    body.extend(from.octets());
    body.extend([0; 6]);
    body.extend(to.octets());
    body
}

/// Ethertypes without a meaning here, and a packet behind a tag.
pub fn foreign(list: &mut List<'_>, places: &Places) {
    for (ethertype, check, what) in [
        (0x88b5, "raw_ethernet", "a frame of a private ethertype"),
        (0x8847, "mpls", "MPLS"),
        (0x8863, "pppoe", "PPPoE discovery"),
        (0x888e, "eapol", "EAPOL"),
        (0x88e5, "macsec", "MACsec"),
        (0x8906, "fcoe", "Fibre Channel"),
        (0x0842, "wake_on_lan", "Wake-on-LAN"),
        (0x8035, "rarp", "RARP"),
        (0x0026, "length", "an 802.3 frame"),
    ] {
        let mut body = vec![0x42, 0x42, 3, 0];
        body.extend(list.mark());
        body.extend([0; 26]);
        let frame = ethernet(OUTER_MAC, ethertype, &body);
        list.frame(check, what, frame);
    }
    for (tags, check, what) in [
        (
            &[(0x8100_u16, 1_u16)][..],
            "vlan",
            "a packet with a VLAN tag",
        ),
        (
            &[(0x8100, 0)],
            "vlan_priority",
            "a packet with a priority tag",
        ),
        (
            &[(0x88a8, 1), (0x8100, 2)],
            "vlan_double",
            "a packet with two VLAN tags",
        ),
    ] {
        let (_, inside) = Packet::udp(straight(places), 9, &list.mark()).bytes();
        let mut body = Vec::new();
        let mut types = tags.iter();
        let first = types.next().map_or(0x0800, |(ethertype, _)| *ethertype);
        for (at, (_, id)) in tags.iter().enumerate() {
            body.extend(id.to_be_bytes());
            let next = tags.get(at + 1).map_or(0x0800, |(ethertype, _)| *ethertype);
            body.extend(next.to_be_bytes());
        }
        body.extend(inside);
        let frame = ethernet(OUTER_MAC, first, &body);
        list.frame(check, what, frame);
    }
    // a packet of one family under the other's ethertype
    let (_, inside) = Packet::udp(straight(places), 9, &list.mark()).bytes();
    let frame = ethernet(OUTER_MAC, 0x86dd, &inside);
    list.frame("wrong_ethertype", "IPv4 said to be IPv6", frame);
}

/// Packets to hardware addresses that are not the gateway's.
pub fn addressed(list: &mut List<'_>, places: &Places) {
    for (to, check, what) in [
        (
            BROADCAST,
            "mac_broadcast",
            "a packet to every hardware address",
        ),
        (
            [0x01, 0, 0x5e, 0, 0, 0xfb],
            "mac_multicast",
            "a packet to a group of hardware addresses",
        ),
        (
            [0x02, 0x53, 0x50, 0, 0, 0x99],
            "mac_stranger",
            "a packet to another hardware address",
        ),
        (
            [0x01, 0x80, 0xc2, 0, 0, 0x0e],
            "mac_bridge",
            "a packet to the bridges' own address",
        ),
    ] {
        let (_, inside) = Packet::udp(straight(places), 9, &list.mark()).bytes();
        let frame = ethernet(to, 0x0800, &inside);
        list.frame(check, what, frame);
    }
}

fn straight(places: &Places) -> Ends {
    Ends {
        from: IpAddr::V4(places.own.0),
        to: IpAddr::V4(NOBODY4),
    }
}
