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
            0x0806 => frame.read_arp(bytes),
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

    /// Who asks for whom: asking for the hardware address of a destination tells as much as a packet to it.
    fn read_arp(&mut self, bytes: &[u8]) -> Option<usize> {
        let body = bytes.get(14..42)?;
        self.source = Some(Ipv4Addr::from(<[u8; 4]>::try_from(&body[14..18]).ok()?).into());
        self.destination = Some(Ipv4Addr::from(<[u8; 4]>::try_from(&body[24..28]).ok()?).into());
        None
    }

    /// The type of an ICMPv6 message.
    fn icmp6(&self) -> Option<u8> {
        (self.ethertype == 0x86dd && self.protocol == 58)
            .then(|| self.bytes.get(54).copied())
            .flatten()
    }

    /// What the lab's own links need to stay up: multicast reports, router solicitations, and neighbour discovery for
    /// their own addresses. Asking for anybody else's is not upkeep.
    pub fn is_upkeep(&self, links: &[IpAddr]) -> bool {
        // hop-by-hop options come with multicast listener reports only
        let report = self.ethertype == 0x86dd && (self.protocol == 0 || self.icmp6() == Some(133));
        let about = match self.icmp6() {
            Some(135 | 136) => self.destination,
            _ => self.destination.filter(|_| self.ethertype == 0x0806),
        };
        let link_local = |a: IpAddr| matches!(a, IpAddr::V6(v6) if v6.is_unicast_link_local());
        report || about.is_some_and(|a| link_local(a) || links.contains(&a))
    }

    /// The gateway's own question which NAT64 prefix the uplink has (RFC 7050), or its answer: asked when it starts and
    /// now and then, whatever sandboxes do. No sandbox's question has these words: the name is permitted to none.
    pub fn is_nat64_question(&self) -> bool {
        let dns =
            self.protocol == 17 && self.ports.is_some_and(|(from, to)| from == 53 || to == 53);
        dns && self.holds(b"\x08ipv4only\x04arpa\x00")
    }

    fn read_v6(&mut self, bytes: &[u8]) -> Option<usize> {
        let header = bytes.get(14..54)?;
        self.protocol = header[6];
        self.source = Some(Ipv6Addr::from(<[u8; 16]>::try_from(&header[8..24]).ok()?).into());
        self.destination = Some(Ipv6Addr::from(<[u8; 16]>::try_from(&header[24..40]).ok()?).into());
        if let (58, Some(135 | 136), Some(target)) =
            (self.protocol, bytes.get(54), bytes.get(62..78))
        {
            // neighbour discovery is about its target, wherever it is sent
            self.destination = Some(Ipv6Addr::from(<[u8; 16]>::try_from(target).ok()?).into());
        }
        Some(54)
    }

    /// Whether either end is this address.
    pub fn touches(&self, address: IpAddr) -> bool {
        self.source == Some(address) || self.destination == Some(address)
    }

    /// Whether the bytes hold this text, in the clear.
    pub fn holds(&self, needle: &[u8]) -> bool {
        !needle.is_empty()
            && self
                .bytes
                .windows(needle.len())
                .any(|w| w.eq_ignore_ascii_case(needle))
    }

    /// Whether it opens a TCP connection.
    pub fn is_syn(&self) -> bool {
        self.protocol == 6 && self.tcp_flags & 0x12 == 0x02
    }
}
