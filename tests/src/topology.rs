//! Who owns which address. One place, so that tests and origins agree.
//!
//! ```text
//! sandboxes --- (gateway) --- uplink ns === up0/in0 === internet ns (every address below on its loopback)
//!                              ||
//!                              lan0/ln0 === lan ns (192.168.77.10, 2a00:1450:77::10, 51.15.77.10)
//! ```

use std::net::IpAddr;

use crate::namespace::Namespace;

/// The lab's authoritative DNS and only upstream resolver.
pub const DNS: &str = "198.51.100.53";
/// A public address, IPv4.
pub const PUBLIC4: &str = "93.184.216.34";
/// A second one.
pub const OTHER4: &str = "142.250.74.110";
/// A public address, IPv6.
pub const PUBLIC6: &str = "2606:2800:21f::34";
/// A second one.
pub const OTHER6: &str = "2a00:1450:4001::66";
/// Swallows every packet (a dead host).
pub const SILENT4: &str = "93.184.216.99";
/// Answers with host unreachable.
pub const UNREACHABLE4: &str = "93.184.216.98";
/// The uplink machine's own address on the internet side.
pub const HOST4: &str = "203.0.113.1";
/// Same, IPv6.
pub const HOST6: &str = "2001:db8:77::1";
/// The uplink machine's own LAN address.
pub const HOST_LAN4: &str = "192.168.77.1";
/// Addresses of the links themselves, which find each other all the time.
pub const LINKS: &[&str] = &[
    HOST4,
    HOST6,
    HOST_LAN4,
    "203.0.113.2",
    "2001:db8:77::2",
    "51.15.77.1",
    "2a00:1450:77::1",
];
/// A machine on the LAN.
pub const LAN4: &str = "192.168.77.10";
/// The same machine by its global on-link IPv6 address: as private as the other.
pub const LAN6: &str = "2a00:1450:77::10";
/// The same machine by a public on-link IPv4 address.
pub const LAN_PUBLIC4: &str = "51.15.77.10";

/// The address inside every sandbox for DNS, broker and explicit proxy.
pub const SERVICE4: &str = "198.18.0.1";

/// Cloud metadata addresses that the internet namespace owns, so that a leak arrives.
pub const METADATA: &[&str] = &[
    "169.254.169.254",
    "169.254.170.2",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd20:ce::254",
];

/// Private and special addresses beyond the default route that it owns too.
pub const ELSEWHERE: &[&str] = &[
    "10.0.0.5",
    "172.16.0.5",
    "192.168.1.5",
    "100.64.0.5",
    "198.18.99.5",
    "192.0.2.5",
    "240.0.0.5",
    "fd00:1234::5",
    "64:ff9b::a00:5",
    "64:ff9b::a9fe:a9fe",
    "2002:a00:5::5",
    "2001:0:a00:5::5",
    "2001:db8:99::5",
];

/// Public addresses of the internet namespace.
pub const PUBLIC: &[&str] = &[
    PUBLIC4,
    OTHER4,
    PUBLIC6,
    OTHER6,
    "8.8.8.8",
    "1.1.1.1",
    "9.9.9.9",
    "5.9.77.7",
    "2001:4860:4860::8888",
    "2606:4700:4700::1111",
];

/// The four namespaces, wired.
#[derive(Debug)]
pub struct Topology {
    /// Where the gateway is started.
    pub uplink: Namespace,
    /// Every public, metadata and far private address.
    pub internet: Namespace,
    /// A machine on the local network.
    pub lan: Namespace,
}

/// Parses an address of this file.
pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn host_prefix(address: &str) -> String {
    if address.contains(':') {
        format!("{address}/128 dev lo nodad")
    } else {
        format!("{address}/32 dev lo")
    }
}

impl Topology {
    /// Makes and wires them.
    pub fn new() -> Self {
        let uplink = Namespace::new("uplink");
        let internet = Namespace::new("internet");
        let lan = Namespace::new("lan");
        let peer = |n: &Namespace| n.path().display().to_string();
        uplink.ip(&[
            format!(
                "link add up0 type veth peer name in0 netns {}",
                peer(&internet)
            ),
            format!("link add lan0 type veth peer name ln0 netns {}", peer(&lan)),
            format!("addr add {HOST4}/30 dev up0"),
            format!("addr add {HOST6}/64 dev up0 nodad"),
            format!("addr add {HOST_LAN4}/24 dev lan0"),
            "addr add 51.15.77.1/28 dev lan0".into(),
            "addr add 2a00:1450:77::1/64 dev lan0 nodad".into(),
            "link set up0 up".into(),
            "link set lan0 up".into(),
        ]);
        let mut lines = vec![
            "addr add 203.0.113.2/30 dev in0".to_owned(),
            "addr add 2001:db8:77::2/64 dev in0 nodad".into(),
            "link set in0 up".into(),
        ];
        for address in PUBLIC.iter().chain(METADATA).chain(ELSEWHERE).chain(&[DNS]) {
            lines.push(format!("addr add {}", host_prefix(address)));
        }
        lines.push(format!("route add blackhole {SILENT4}"));
        lines.push(format!("route add unreachable {UNREACHABLE4}"));
        lines.push("route add default via 203.0.113.1".into());
        lines.push("route add default via 2001:db8:77::1".into());
        internet.ip(&lines);
        // needed for the `unreachable` route to be answered with ICMP instead of silence
        internet.sysctl("net/ipv4/ip_forward", "1");
        internet.sysctl("net/ipv4/icmp_ratelimit", "0");
        lan.ip(&[
            format!("addr add {LAN4}/24 dev ln0"),
            format!("addr add {LAN_PUBLIC4}/28 dev ln0"),
            format!("addr add {LAN6}/64 dev ln0 nodad"),
            "link set ln0 up".into(),
            format!("route add default via {HOST_LAN4}"),
            "route add default via 2a00:1450:77::1".into(),
        ]);
        uplink.ip(&[
            "route add default via 203.0.113.2",
            "route add default via 2001:db8:77::2",
        ]);
        Self {
            uplink,
            internet,
            lan,
        }
    }
}

impl Default for Topology {
    fn default() -> Self {
        Self::new()
    }
}
