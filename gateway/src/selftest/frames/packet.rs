//! Packets by hand: IP headers of both families with any field wrong, the transports in them, checksums.
//!
//! Checksums are right, so that nothing is dropped for a reason that an attacker would simply avoid.

use std::net::IpAddr;

/// ICMP for IPv6, the one number that differs between the families.
pub const ICMPV6: u8 = 58;
/// Of a flag byte of TCP (RFC 9293 3.1).
pub const FIN: u8 = 1;
/// See [`FIN`].
pub const SYN: u8 = 2;
/// See [`FIN`].
pub const RST: u8 = 4;
/// See [`FIN`].
pub const ACK: u8 = 16;

/// Where a packet claims to come from and where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// Source.
    pub from: IpAddr,
    /// Destination.
    pub to: IpAddr,
}

/// A packet of either family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Addresses of one family.
    pub ends: Ends,
    /// Protocol, or next header.
    pub protocol: u8,
    /// Time to live, or hop limit.
    pub hops: u8,
    /// Flags and fragment offset of IPv4.
    pub fragment: u16,
    /// IPv4 options, a multiple of four bytes.
    pub options: Vec<u8>,
    /// What follows the header.
    pub payload: Vec<u8>,
}

impl Packet {
    /// An ordinary one.
    pub fn new(ends: Ends, protocol: u8, payload: Vec<u8>) -> Self {
        Self {
            ends,
            protocol,
            hops: 64,
            fragment: 0,
            options: Vec::new(),
            payload,
        }
    }

    /// A datagram.
    pub fn udp(ends: Ends, port: u16, payload: &[u8]) -> Self {
        let mut datagram = vec![0x9c, 0x41];
        datagram.extend(port.to_be_bytes());
        datagram.extend(short(8 + payload.len()));
        datagram.extend([0, 0]);
        datagram.extend(payload);
        seal(ends, 17, 6, &mut datagram);
        Self::new(ends, 17, datagram)
    }

    /// A segment with these flags; it carries bytes even where a first SYN of a kernel would not.
    pub fn tcp(ends: Ends, port: u16, flags: u8, payload: &[u8]) -> Self {
        let mut segment = vec![0x9c, 0x42];
        segment.extend(port.to_be_bytes());
        segment.extend([
            0x53, 0x50, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0,
        ]);
        segment.extend(payload);
        seal(ends, 6, 16, &mut segment);
        Self::new(ends, 6, segment)
    }

    /// An ICMP message of the family of its ends.
    pub fn icmp(ends: Ends, kind: u8, body: &[u8]) -> Self {
        let mut message = vec![kind, 0, 0, 0];
        message.extend(body);
        if ends.from.is_ipv6() {
            seal(ends, ICMPV6, 2, &mut message);
            return Self::new(ends, ICMPV6, message);
        }
        let sum = checksum(&message);
        put(&mut message, 2, sum);
        Self::new(ends, 1, message)
    }

    /// A request for an echo.
    pub fn echo(ends: Ends, bytes: &[u8]) -> Self {
        let kind = if ends.from.is_ipv6() { 128 } else { 8 };
        let mut body = vec![0x53, 0x50, 0, 1];
        body.extend(bytes);
        Self::icmp(ends, kind, &body)
    }

    /// Ethertype and bytes.
    pub fn bytes(&self) -> (u16, Vec<u8>) {
        match (self.ends.from, self.ends.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let words = 5 + self.options.len() / 4;
                let mut header = vec![0x40 | u8::try_from(words).unwrap_or(5), 0];
                header.extend(short(words * 4 + self.payload.len()));
                header.extend([0x53, 0x50]);
                header.extend(self.fragment.to_be_bytes());
                header.extend([self.hops, self.protocol, 0, 0]);
                header.extend(from.octets());
                header.extend(to.octets());
                header.extend(&self.options);
                let sum = checksum(&header);
                put(&mut header, 10, sum);
                header.extend(&self.payload);
                (0x0800, header)
            }
            (from, to) => {
                let mut header = vec![0x60, 0, 0, 0];
                header.extend(short(self.payload.len()));
                header.extend([self.protocol, self.hops]);
                header.extend(sixteen(from));
                header.extend(sixteen(to));
                header.extend(&self.payload);
                (0x86dd, header)
            }
        }
    }

    /// Puts an extension header of IPv6 (RFC 8200 4) before what follows; its length must be a multiple of eight.
    #[must_use]
    pub fn extended(mut self, header: u8, body: &[u8]) -> Self {
        let mut payload = vec![self.protocol];
        payload.extend(body);
        payload.append(&mut self.payload);
        self.payload = payload;
        self.protocol = header;
        self
    }
}

fn sixteen(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn short(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}

fn put(bytes: &mut [u8], at: usize, value: [u8; 2]) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value);
    }
}

/// Writes the checksum of a transport over its pseudo header (RFC 768, RFC 8200 8.1) at a place.
fn seal(ends: Ends, protocol: u8, at: usize, segment: &mut [u8]) {
    let mut covered = Vec::new();
    match (ends.from, ends.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            covered.extend(from.octets());
            covered.extend(to.octets());
        }
        (from, to) => {
            covered.extend(sixteen(from));
            covered.extend(sixteen(to));
        }
    }
    covered.extend([0, protocol]);
    covered.extend(short(segment.len()));
    covered.extend(&*segment);
    put(segment, at, checksum(&covered));
}

/// The checksum of RFC 1071.
pub fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        let (high, low) = (pair.first().copied(), pair.get(1).copied());
        sum += u32::from(u16::from_be_bytes([high.unwrap_or(0), low.unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap_or(0)).to_be_bytes()
}
