//! Which frames: a few words that all must hold, such as `tcp and host 198.18.0.5 and port 443`.
//!
//! Reads only headers that are there: a frame that cannot be read holds for no word but `not`. Never panics on what a
//! sandbox sends.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// More words than anybody needs.
const MOST: usize = 32;
/// Bits of the fragment offset, the lowest of their word.
const OFFSET_BITS: u32 = 13;
/// Extension headers of IPv6 that are walked.
const MOST_HEADERS: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Protocol(u8),
    EtherType(u16),
    Host(IpAddr),
    Port(u16),
}

/// All of its words must hold; none: every frame.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    words: Vec<(bool, Word)>,
    text: String,
}

/// A word that is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} cannot stand here: a filter is `[not] tcp|udp|icmp|arp|ip|ip6|host ADDRESS|port NUMBER`, joined by `and`"
)]
pub struct FilterError(String);

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut words = Vec::new();
        let mut parts = text.split_ascii_whitespace();
        while let Some(part) = parts.next() {
            if part == "and" && !words.is_empty() {
                continue;
            }
            let (holds, part) = if part == "not" {
                (false, parts.next().unwrap_or_default())
            } else {
                (true, part)
            };
            let no = || FilterError(part.chars().take(64).collect());
            let word = match part {
                "tcp" => Word::Protocol(6),
                "udp" => Word::Protocol(17),
                "icmp" => Word::Protocol(1),
                "icmp6" => Word::Protocol(58),
                "arp" => Word::EtherType(0x0806),
                "ip" => Word::EtherType(0x0800),
                "ip6" => Word::EtherType(0x86dd),
                "host" => Word::Host(parts.next().and_then(|a| a.parse().ok()).ok_or_else(no)?),
                "port" => Word::Port(parts.next().and_then(|p| p.parse().ok()).ok_or_else(no)?),
                _ => return Err(no()),
            };
            words.push((holds, word));
            if words.len() > MOST {
                return Err(FilterError("so many words".to_owned()));
            }
        }
        let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        Ok(Self { words, text })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Filter {
    /// Whether a frame is wanted.
    pub fn takes(&self, frame: &[u8]) -> bool {
        if self.words.is_empty() {
            return true;
        }
        let read = Headers::read(frame);
        self.words.iter().all(|(wanted, word)| {
            let holds = match word {
                Word::Protocol(number) => read.protocol == Some(*number),
                Word::EtherType(number) => read.kind == Some(*number),
                Word::Host(address) => read.hosts.contains(&Some(*address)),
                Word::Port(port) => read.ports.contains(&Some(*port)),
            };
            holds == *wanted
        })
    }
}

/// What of the headers could be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Headers {
    kind: Option<u16>,
    protocol: Option<u8>,
    hosts: [Option<IpAddr>; 2],
    ports: [Option<u16>; 2],
}

impl Headers {
    fn read(frame: &[u8]) -> Self {
        let kind = number(frame, 12);
        let mut headers = Self {
            kind,
            ..Self::default()
        };
        let packet = frame.get(14..).unwrap_or_default();
        match kind {
            Some(0x0800) => headers.v4(packet),
            Some(0x86dd) => headers.v6(packet),
            _ => None,
        };
        headers
    }

    fn v4(&mut self, packet: &[u8]) -> Option<()> {
        let length = usize::from(packet.first()? & 15) * 4;
        self.protocol = packet.get(9).copied();
        let address = |at: usize| {
            let octets: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
            Some(IpAddr::from(Ipv4Addr::from(octets)))
        };
        self.hosts = [address(12), address(16)];
        // a later fragment begins with anything
        if number(packet, 6)?.trailing_zeros() >= OFFSET_BITS && length >= 20 {
            self.ports(packet.get(length..)?);
        }
        Some(())
    }

    fn v6(&mut self, packet: &[u8]) -> Option<()> {
        let address = |at: usize| {
            let octets: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
            Some(IpAddr::from(Ipv6Addr::from(octets)))
        };
        self.hosts = [address(8), address(24)];
        let (mut next, mut at) = (*packet.get(6)?, 40);
        for _ in 0..MOST_HEADERS {
            match next {
                // hop-by-hop, routing, destination options: length in units of eight bytes after the first
                0 | 43 | 60 => {
                    next = *packet.get(at)?;
                    at += (usize::from(*packet.get(at + 1)?) + 1) * 8;
                }
                // a fragment
                44 => {
                    let first = number(packet, at + 2)? >> 3 == 0;
                    next = *packet.get(at)?;
                    at += 8;
                    if !first {
                        self.protocol = Some(next);
                        return Some(());
                    }
                }
                _ => break,
            }
        }
        self.protocol = Some(next);
        self.ports(packet.get(at..)?);
        Some(())
    }

    fn ports(&mut self, segment: &[u8]) {
        if matches!(self.protocol, Some(6 | 17)) {
            self.ports = [number(segment, 0), number(segment, 2)];
        }
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    let two: [u8; 2] = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_be_bytes(two))
}
