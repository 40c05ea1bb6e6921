//! One captured frame, read as far as tests ask.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An Ethernet frame.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Ethernet protocol.
    pub ethertype: u16,
    /// IP source, where there is one.
    pub source: Option<IpAddr>,
    /// IP destination, where there is one.
    pub destination: Option<IpAddr>,
    /// IP protocol (after IPv6 extension headers that are not there in the lab: the first next-header value).
    pub protocol: u8,
    /// Ports of TCP and UDP.
    pub ports: Option<(u16, u16)>,
    /// TCP flags.
    pub tcp_flags: u8,
    /// The whole frame.
    pub bytes: Vec<u8>,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

impl Frame {
    /// Reads a frame; whatever is missing stays empty.
    pub fn read(bytes: &[u8]) -> Self {
        let mut frame = Self {
            ethertype: word(bytes, 12).unwrap_or_default(),
            source: None,
            destination: None,
            protocol: 0,
            ports: None,
            tcp_flags: 0,
            bytes: bytes.to_vec(),
        };
        let transport = match frame.ethertype {
            0x0800 => frame.read_v4(bytes),
            0x86dd => frame.read_v6(bytes),
            _ => None,
        };
        if let Some(at) = transport
            && (frame.protocol == 6 || frame.protocol == 17)
        {
            frame.ports = word(bytes, at).zip(word(bytes, at + 2));
            if frame.protocol == 6 {
                frame.tcp_flags = bytes.get(at + 13).copied().unwrap_or_default();
            }
        }
        frame
    }

    fn read_v4(&mut self, bytes: &[u8]) -> Option<usize> {
        let header = bytes.get(14..34)?;
        self.protocol = header[9];
        self.source = Some(Ipv4Addr::from(<[u8; 4]>::try_from(&header[12..16]).ok()?).into());
        self.destination = Some(Ipv4Addr::from(<[u8; 4]>::try_from(&header[16..20]).ok()?).into());
        Some(14 + usize::from(header[0] & 15) * 4)
    }

    fn read_v6(&mut self, bytes: &[u8]) -> Option<usize> {
        let header = bytes.get(14..54)?;
        self.protocol = header[6];
        self.source = Some(Ipv6Addr::from(<[u8; 16]>::try_from(&header[8..24]).ok()?).into());
        self.destination = Some(Ipv6Addr::from(<[u8; 16]>::try_from(&header[24..40]).ok()?).into());
        Some(54)
    }

    /// Whether either end is this address.
    pub fn touches(&self, address: IpAddr) -> bool {
        self.source == Some(address) || self.destination == Some(address)
    }

    /// Whether the bytes hold this text, in the clear.
    pub fn holds(&self, needle: &[u8]) -> bool {
        !needle.is_empty() && self.bytes.windows(needle.len()).any(|w| w.eq_ignore_ascii_case(needle))
    }

    /// Whether it opens a TCP connection.
    pub fn is_syn(&self) -> bool {
        self.protocol == 6 && self.tcp_flags & 0x12 == 0x02
    }
}
