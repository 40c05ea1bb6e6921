//! DNS on the wire, written by hand so that tests can also write what no library would.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// Record types that tests name.
pub mod kind {
    /// IPv4 address.
    pub const A: u16 = 1;
    /// Name server.
    pub const NS: u16 = 2;
    /// Alias.
    pub const CNAME: u16 = 5;
    /// Reverse name.
    pub const PTR: u16 = 12;
    /// Mail exchange.
    pub const MX: u16 = 15;
    /// Text.
    pub const TXT: u16 = 16;
    /// IPv6 address.
    pub const AAAA: u16 = 28;
    /// Service.
    pub const SRV: u16 = 33;
    /// HTTPS service binding.
    pub const HTTPS: u16 = 65;
    /// Zone transfer.
    pub const AXFR: u16 = 252;
    /// Everything.
    pub const ANY: u16 = 255;
}

/// Response codes that tests name.
pub mod code {
    /// Answered (perhaps with nothing).
    pub const NOERROR: u8 = 0;
    /// Malformed question.
    pub const FORMERR: u8 = 1;
    /// Upstream failed.
    pub const SERVFAIL: u8 = 2;
    /// No such name.
    pub const NXDOMAIN: u8 = 3;
    /// Not implemented.
    pub const NOTIMP: u8 = 4;
    /// Refused.
    pub const REFUSED: u8 = 5;
}

/// One resource record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Owner, dotted.
    pub name: String,
    /// Type.
    pub kind: u16,
    /// Seconds.
    pub ttl: u32,
    /// Data as on the wire.
    pub data: Vec<u8>,
}

/// A parsed message, as far as tests ask.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// Identifier.
    pub id: u16,
    /// Flags word.
    pub flags: u16,
    /// Questions: name as sent, type.
    pub questions: Vec<(String, u16)>,
    /// Answers.
    pub answers: Vec<Record>,
    /// Authority section.
    pub authority: Vec<Record>,
    /// Additional section, OPT included.
    pub additional: Vec<Record>,
}

impl Message {
    /// Response code without the extension of EDNS.
    pub fn code(&self) -> u8 {
        (self.flags & 15) as u8
    }

    /// Whether it was cut.
    pub fn truncated(&self) -> bool {
        self.flags & 0x0200 != 0
    }

    /// Addresses among the answers.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.answers
            .iter()
            .filter_map(|r| match (r.kind, r.data.as_slice()) {
                (kind::A, d) => <[u8; 4]>::try_from(d)
                    .ok()
                    .map(|d| IpAddr::V4(Ipv4Addr::from(d))),
                (kind::AAAA, d) => <[u8; 16]>::try_from(d)
                    .ok()
                    .map(|d| IpAddr::V6(Ipv6Addr::from(d))),
                _ => None,
            })
            .collect()
    }

    /// The text of Extended DNS Errors (RFC 8914), if any: where the reason code stands.
    pub fn extended_error(&self) -> Option<String> {
        let opt = self.additional.iter().find(|r| r.kind == 41)?;
        let mut rest = opt.data.as_slice();
        while let [a, b, c, d, tail @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*c, *d]));
            let body = tail.get(..length)?;
            if u16::from_be_bytes([*a, *b]) == 15 {
                return Some(String::from_utf8_lossy(body.get(2..)?).into_owned());
            }
            rest = tail.get(length..)?;
        }
        None
    }

    /// Reads a message; `None` where it is cut or loops.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let mut message = Self {
            id: word(0)?,
            flags: word(2)?,
            ..Self::default()
        };
        let mut at = 12;
        for _ in 0..word(4)? {
            let (name, next) = read_name(bytes, at)?;
            message.questions.push((name, word(next)?));
            at = next + 4;
        }
        for (count_at, section) in [
            (6, &mut message.answers),
            (8, &mut message.authority),
            (10, &mut message.additional),
        ] {
            for _ in 0..word(count_at)? {
                let (name, next) = read_name(bytes, at)?;
                let length = usize::from(word(next + 8)?);
                let ttl = u32::from(word(next + 4)?) << 16 | u32::from(word(next + 6)?);
                let data = bytes.get(next + 10..next + 10 + length)?.to_vec();
                section.push(Record {
                    name,
                    kind: word(next)?,
                    ttl,
                    data,
                });
                at = next + 10 + length;
            }
        }
        Some(message)
    }
}

fn read_name(bytes: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    let mut end = None;
    for _ in 0..128 {
        match *bytes.get(at)? {
            0 => return Some((labels.join("."), end.unwrap_or(at + 1))),
            pointer if pointer >= 0xc0 => {
                end = end.or(Some(at + 2));
                at = usize::from(u16::from_be_bytes([pointer & 0x3f, *bytes.get(at + 1)?]));
            }
            length => {
                let label = bytes.get(at + 1..at + 1 + usize::from(length))?;
                labels.push(String::from_utf8_lossy(label).into_owned());
                at += 1 + usize::from(length);
            }
        }
    }
    None
}

/// A name in wire form; labels are taken as they are, so that tests can send what is not a host name.
pub fn wire_name(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.').filter(|l| !l.is_empty()) {
        out.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out
}

/// A query with EDNS (4096 octets), so that errors can carry their reason.
pub fn query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut out = id.to_be_bytes().to_vec();
    out.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    out.extend_from_slice(&wire_name(name));
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&[0, 1]);
    out.extend_from_slice(&[0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]);
    out
}

/// A response to a query with these sections, uncompressed.
pub fn response(query: &[u8], flags: u16, answers: &[Record]) -> Vec<u8> {
    let question_end =
        read_name(query, 12).map_or(query.len(), |(_, at)| (at + 4).min(query.len()));
    let mut out = query.get(..2).unwrap_or(&[0, 0]).to_vec();
    out.extend_from_slice(&(0x8180 | flags).to_be_bytes());
    out.extend_from_slice(&[0, 1]);
    out.extend_from_slice(
        &u16::try_from(answers.len())
            .unwrap_or(u16::MAX)
            .to_be_bytes(),
    );
    out.extend_from_slice(&[0, 0, 0, 0]);
    out.extend_from_slice(query.get(12..question_end).unwrap_or_default());
    for record in answers {
        out.extend_from_slice(&wire_name(&record.name));
        out.extend_from_slice(&record.kind.to_be_bytes());
        out.extend_from_slice(&[0, 1]);
        out.extend_from_slice(&record.ttl.to_be_bytes());
        out.extend_from_slice(
            &u16::try_from(record.data.len())
                .unwrap_or(u16::MAX)
                .to_be_bytes(),
        );
        out.extend_from_slice(&record.data);
    }
    out
}

/// Sends bytes by UDP and reads one message; `None` after the limit.
pub fn ask_udp(server: SocketAddr, bytes: &[u8], limit: Duration) -> Option<Message> {
    let any = if server.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.set_read_timeout(Some(limit)).ok()?;
    socket.connect(server).ok()?;
    socket.send(bytes).ok()?;
    let mut buffer = vec![0; 65_536];
    let length = socket.recv(&mut buffer).ok()?;
    Message::read(buffer.get(..length)?)
}

/// The same over TCP.
pub fn ask_tcp(server: SocketAddr, bytes: &[u8], limit: Duration) -> Option<Message> {
    let mut stream = TcpStream::connect_timeout(&server, limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    let mut framed = u16::try_from(bytes.len()).ok()?.to_be_bytes().to_vec();
    framed.extend_from_slice(bytes);
    stream.write_all(&framed).ok()?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut body = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut body).ok()?;
    Message::read(&body)
}
