//! Packets to places that are nobody's business, and from sources that are not the sandbox's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::inet::nobody;
use super::packet::{Ends, Packet, SYN};
use super::{List, Places, of};
use crate::control::api::Family;

/// Places that are nobody's business, each by a datagram, a SYN and an echo.
pub fn destinations(list: &mut List<'_>, places: &Places, family: Family) {
    let host = match family {
        Family::Ipv6 => places.host.1.map(IpAddr::V6),
        Family::Ipv4 | Family::Ethernet | Family::Both => places.host.0.map(IpAddr::V4),
    };
    let mut table = vec![
        ("to_sandbox", "another sandbox", of(family, places.other)),
        (
            "to_service",
            "what the service address does not offer",
            of(family, places.service),
        ),
    ];
    table.extend(host.map(|host| ("to_host", "an address of the machine", host)));
    if family == Family::Ipv6 {
        table.extend(special6());
    } else {
        table.extend(special4());
    }
    for (check, what, to) in table {
        let ends = Ends {
            from: of(family, places.own),
            to,
        };
        list.packet(check, what, &Packet::udp(ends, 9040, &list.mark()));
        list.packet(check, what, &Packet::tcp(ends, 9040, SYN, &list.mark()));
        list.packet(check, what, &Packet::echo(ends, &list.mark()));
    }
}

type Place = (&'static str, &'static str, IpAddr);

fn special6() -> [Place; 8] {
    let v6 = |segments: [u16; 8]| IpAddr::V6(segments.into());
    [
        (
            "to_metadata",
            "the metadata service",
            v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]),
        ),
        ("to_loopback", "loopback", Ipv6Addr::LOCALHOST.into()),
        (
            "to_link_local",
            "a link-local address",
            v6([0xfe80, 0, 0, 0, 0, 0, 0, 1]),
        ),
        (
            "to_multicast",
            "multicast of the link",
            v6([0xff02, 0, 0, 0, 0, 0, 0, 0xfb]),
        ),
        (
            "to_multicast_far",
            "multicast beyond the link",
            v6([0xff0e, 0, 0, 0, 0, 0, 0, 0x101]),
        ),
        (
            "to_private",
            "a private network",
            v6([0xfd12, 0x3456, 0, 0, 0, 0, 0, 1]),
        ),
        (
            "to_site_local",
            "a site-local address",
            v6([0xfec0, 0, 0, 0, 0, 0, 0, 1]),
        ),
        (
            "to_unspecified",
            "the unspecified address",
            Ipv6Addr::UNSPECIFIED.into(),
        ),
    ]
}

fn special4() -> [Place; 9] {
    let v4 = |a, b, c, d| IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    [
        (
            "to_metadata",
            "the metadata service",
            v4(169, 254, 169, 254),
        ),
        ("to_loopback", "loopback", v4(127, 0, 0, 1)),
        ("to_link_local", "a link-local address", v4(169, 254, 1, 1)),
        ("to_multicast", "multicast of the link", v4(224, 0, 0, 251)),
        (
            "to_multicast_far",
            "multicast beyond the link",
            v4(239, 1, 2, 3),
        ),
        ("to_broadcast", "broadcast", v4(255, 255, 255, 255)),
        ("to_private", "a private network", v4(10, 255, 255, 1)),
        ("to_reserved", "a reserved address", v4(240, 0, 0, 1)),
        ("to_unspecified", "the unspecified address", v4(0, 0, 0, 0)),
    ]
}

/// Sources that are not the sandbox's own.
pub fn sources(list: &mut List<'_>, places: &Places, family: Family) {
    let host = match family {
        Family::Ipv6 => places.host.1.map(IpAddr::V6),
        Family::Ipv4 | Family::Ethernet | Family::Both => places.host.0.map(IpAddr::V4),
    };
    let mut table = vec![
        (
            "from_sandbox",
            "another sandbox's source",
            of(family, places.other),
        ),
        (
            "from_service",
            "the service address as source",
            of(family, places.service),
        ),
        (
            "from_nobody",
            "a source that is nobody's",
            of(
                family,
                (
                    Ipv4Addr::new(203, 0, 113, 9),
                    Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 9),
                ),
            ),
        ),
        (
            "from_loopback",
            "loopback as source",
            of(family, (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST)),
        ),
        (
            "from_unspecified",
            "no source",
            of(family, (Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED)),
        ),
    ];
    table.extend(host.map(|host| ("from_host", "the machine's source", host)));
    for (check, what, from) in table {
        let ends = Ends {
            from,
            to: nobody(family),
        };
        list.packet(check, what, &Packet::udp(ends, 33_436, &list.mark()));
        let ends = Ends {
            from,
            to: of(family, places.service),
        };
        list.packet(check, what, &Packet::tcp(ends, 80, SYN, &list.mark()));
    }
}

/// IPv4 addresses in IPv6 clothes: of the metadata service, which a translator on the way would reach.
pub fn embedded(list: &mut List<'_>, places: &Places) {
    let (high, low) = (0xa9fe, 0xa9fe);
    for (segments, check, what) in [
        (
            [0, 0, 0, 0, 0, 0xffff, high, low],
            "mapped",
            "an IPv4-mapped address",
        ),
        (
            [0, 0, 0, 0, 0xffff, 0, high, low],
            "translated",
            "an IPv4-translated address",
        ),
        (
            [0, 0, 0, 0, 0, 0, high, low],
            "compatible",
            "an IPv4-compatible address",
        ),
        (
            [0x64, 0xff9b, 0, 0, 0, 0, high, low],
            "nat64",
            "a NAT64 address",
        ),
        (
            [0x64, 0xff9b, 1, 0, 0, 0, high, low],
            "nat64_local",
            "a local NAT64 address",
        ),
        (
            [0x2002, high, low, 0, 0, 0, 0, 1],
            "six_to_four",
            "a 6to4 address",
        ),
        (
            [0x2001, 0, 0xc000, 0x201, 0, 0xffff, !high, !low],
            "teredo",
            "a Teredo address",
        ),
        (
            [0x2001, 0xdb8, 0, 0, 0, 0x5efe, high, low],
            "isatap",
            "an ISATAP address",
        ),
    ] {
        let ends = Ends {
            from: places.own.1.into(),
            to: Ipv6Addr::from(segments).into(),
        };
        list.packet(check, what, &Packet::udp(ends, 80, &list.mark()));
        list.packet(check, what, &Packet::tcp(ends, 80, SYN, &list.mark()));
    }
}
