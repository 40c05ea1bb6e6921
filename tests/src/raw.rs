//! Packets that no socket would send: spoofed, fragmented, of odd protocols. Call inside [`crate::Sandbox::run`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, sendto,
    socket,
};

use crate::capture::link_addr;

/// Protocol numbers that tests name.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP.
    pub const IPIP: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 in IP.
    pub const SIT: u8 = 41;
    /// GRE.
    pub const GRE: u8 = 47;
    /// ESP.
    pub const ESP: u8 = 50;
    /// ICMPv6.
    pub const ICMP6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// UDP-Lite.
    pub const UDPLITE: u8 = 136;
    /// For experiments.
    pub const EXPERIMENT: u8 = 253;
}

/// The Internet checksum.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let bytes: Vec<u8> = parts.concat();
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([
            pair[0],
            pair.get(1).copied().unwrap_or(0),
        ]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}

/// An IPv4 packet; `fragment` is the flags-and-offset word (0x2000: more fragments follow).
pub fn ipv4(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    fragment: u16,
    payload: &[u8],
) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).unwrap_or(u16::MAX);
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&total.to_be_bytes());
    packet.extend_from_slice(&[0x5a, 0x17]);
    packet.extend_from_slice(&fragment.to_be_bytes());
    packet.extend_from_slice(&[64, protocol, 0, 0]);
    packet.extend_from_slice(&source.octets());
    packet.extend_from_slice(&destination.octets());
    let sum = checksum(&[&packet]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// The same IPv4 packet with options (whole words) in its header.
pub fn with_options(mut packet: Vec<u8>, options: &[u8]) -> Vec<u8> {
    packet.splice(20..20, options.iter().copied());
    packet[0] = 0x40 | u8::try_from(5 + options.len() / 4).unwrap_or(0xf);
    let total = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum(&[&packet[..20 + options.len()]]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// An IPv6 packet.
pub fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend_from_slice(
        &u16::try_from(payload.len())
            .unwrap_or(u16::MAX)
            .to_be_bytes(),
    );
    packet.extend_from_slice(&[protocol, 64]);
    packet.extend_from_slice(&source.octets());
    packet.extend_from_slice(&destination.octets());
    packet.extend_from_slice(payload);
    packet
}

fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> Vec<u8> {
    let mut header = Vec::new();
    for address in [source, destination] {
        match address {
            IpAddr::V4(ip) => header.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => header.extend_from_slice(&ip.octets()),
        }
    }
    header.extend_from_slice(&[0, protocol]);
    header.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    header
}

/// A UDP datagram with its checksum.
pub fn udp(source: IpAddr, destination: IpAddr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap_or(u16::MAX);
    let mut datagram = Vec::new();
    for word in [ports.0, ports.1, length, 0] {
        datagram.extend_from_slice(&word.to_be_bytes());
    }
    datagram.extend_from_slice(payload);
    let sum = checksum(&[
        &pseudo(source, destination, protocol::UDP, datagram.len()),
        &datagram,
    ]);
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    datagram
}

/// A TCP segment that opens a connection.
pub fn syn(source: IpAddr, destination: IpAddr, ports: (u16, u16)) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend_from_slice(&ports.0.to_be_bytes());
    segment.extend_from_slice(&ports.1.to_be_bytes());
    segment.extend_from_slice(&[
        0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0, 0x50, 0x02, 0x20, 0, 0, 0, 0, 0,
    ]);
    let sum = checksum(&[
        &pseudo(source, destination, protocol::TCP, segment.len()),
        &segment,
    ]);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

/// An ICMP message of this type, code 0.
pub fn icmp4(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0x5a, 0x17, 0, 1];
    message.extend_from_slice(payload);
    let sum = checksum(&[&message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// An ICMPv6 echo request.
pub fn echo6(source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![128, 0, 0, 0, 0x5a, 0x17, 0, 1];
    message.extend_from_slice(b"carried out by ping");
    let pseudo = pseudo(
        source.into(),
        destination.into(),
        protocol::ICMP6,
        message.len(),
    );
    let sum = checksum(&[&pseudo, &message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Sends a whole IPv4 packet; the kernel routes it by its destination and leaves the source alone.
pub fn send4(packet: &[u8]) -> nix::Result<usize> {
    let fd = raw(AddressFamily::Inet)?;
    let octets: [u8; 4] = packet
        .get(16..20)
        .and_then(|o| o.try_into().ok())
        .ok_or(nix::Error::EINVAL)?;
    let [a, b, c, d] = octets;
    sendto(
        fd.as_raw_fd(),
        packet,
        &SockaddrIn::new(a, b, c, d, 0),
        MsgFlags::empty(),
    )
}

/// Sends a whole IPv6 packet.
pub fn send6(packet: &[u8]) -> nix::Result<usize> {
    let fd = raw(AddressFamily::Inet6)?;
    let octets: [u8; 16] = packet
        .get(24..40)
        .and_then(|o| o.try_into().ok())
        .ok_or(nix::Error::EINVAL)?;
    let to = std::net::SocketAddrV6::new(octets.into(), 0, 0, 0);
    sendto(
        fd.as_raw_fd(),
        packet,
        &SockaddrIn6::from(to),
        MsgFlags::empty(),
    )
}

fn raw(family: AddressFamily) -> nix::Result<OwnedFd> {
    socket(
        family,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::Raw,
    )
}

/// Sends a frame on an interface to a hardware address, past the sandbox's own routing.
pub fn send_frame(
    interface: &str,
    to: [u8; 6],
    ethertype: u16,
    payload: &[u8],
) -> nix::Result<usize> {
    let fd = socket(
        AddressFamily::Packet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let index = nix::net::if_::if_nametoindex(interface)?;
    let mut hardware = [0; 8];
    hardware[..6].copy_from_slice(&to);
    let address = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).unwrap_or_default(),
        sll_protocol: ethertype.to_be(),
        sll_ifindex: i32::try_from(index).unwrap_or_default(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: hardware,
    };
    sendto(
        fd.as_raw_fd(),
        payload,
        &link_addr(&address),
        MsgFlags::empty(),
    )
}

/// The hardware address that answers for the gateway on the sandbox's link, from the neighbour table.
pub fn gateway_hardware() -> Option<[u8; 6]> {
    let table = std::fs::read_to_string("/proc/net/arp").ok()?;
    let line = table
        .lines()
        .find(|l| l.starts_with(crate::topology::SERVICE4))?;
    let mut out = [0; 6];
    for (byte, text) in out
        .iter_mut()
        .zip(line.split_whitespace().nth(3)?.split(':'))
    {
        *byte = u8::from_str_radix(text, 16).ok()?;
    }
    Some(out)
}
