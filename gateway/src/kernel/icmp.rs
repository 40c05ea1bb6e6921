//! ICMP to a sandbox: errors about what it sent, which its kernel tells to the socket that sent it, and echo replies.
//!
//! Owns: the shape of both in both families and the two send-only raw sockets of the gateway namespace. Refuses to own:
//! when to say something. Each error quotes what it is about, and goes only to whoever sent that.
//!
//! The sockets take whole packets (`IP_HDRINCL`) and receive nothing.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::error::{Act, KernelError};
use super::netns::Ns;

pub(super) const ICMP: u8 = 1;
const UDP: u8 = 17;
pub(super) const ICMP6: u8 = 58;
/// `IPPROTO_RAW`: send-only, headers included.
const RAW: i32 = 255;
/// Octets of the datagram that are quoted behind its headers; with all headers far below the smallest packet that every
/// path carries.
const QUOTE: usize = 256;

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// Nobody listens there, or it is denied.
    PortUnreachable,
    /// No such host.
    HostUnreachable,
    /// No route.
    NoRoute,
    /// Somebody on the way prohibits it.
    Prohibited,
    /// It does not fit the path: packets of this size do, headers included.
    TooBig(u32),
    /// It had no hop left.
    TimeExceeded,
    /// An error that a client cannot use.
    Nothing,
}

impl Trouble {
    /// From an errno of the kernel, with what it said beside it (the packet size that fits).
    pub fn of_errno(errno: i32, info: u32) -> Option<Self> {
        match errno {
            libc::ECONNREFUSED => Some(Self::PortUnreachable),
            libc::EHOSTUNREACH | libc::EHOSTDOWN => Some(Self::HostUnreachable),
            libc::ENETUNREACH => Some(Self::NoRoute),
            libc::EACCES | libc::EPERM => Some(Self::Prohibited),
            libc::EMSGSIZE if info > 0 => Some(Self::TooBig(info)),
            _ => None,
        }
    }

    /// Type, code and the second word, IPv4 (RFC 792, RFC 1191).
    pub(super) fn four(self) -> Option<(u8, u8, u32)> {
        match self {
            Self::PortUnreachable => Some((3, 3, 0)),
            Self::HostUnreachable => Some((3, 1, 0)),
            Self::NoRoute => Some((3, 0, 0)),
            Self::Prohibited => Some((3, 13, 0)),
            Self::TooBig(mtu) => Some((3, 4, mtu.min(0xffff))),
            Self::TimeExceeded => Some((11, 0, 0)),
            Self::Nothing => None,
        }
    }

    /// The same, IPv6 (RFC 4443).
    pub(super) fn six(self) -> Option<(u8, u8, u32)> {
        match self {
            Self::PortUnreachable => Some((1, 4, 0)),
            Self::HostUnreachable => Some((1, 3, 0)),
            Self::NoRoute => Some((1, 0, 0)),
            Self::Prohibited => Some((1, 1, 0)),
            Self::TooBig(mtu) => Some((2, 0, mtu)),
            Self::TimeExceeded => Some((3, 0, 0)),
            Self::Nothing => None,
        }
    }
}

/// A datagram or an echo request that an error is about.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Who sent it; the port of an echo request is its identifier.
    pub from: SocketAddr,
    /// Where to; an echo request has no port.
    pub to: SocketAddr,
    /// What it is.
    pub sent: Sent,
    /// What it said, or its beginning.
    pub bytes: &'a [u8],
}

/// What an error can be about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// A datagram.
    Udp,
    /// An echo request with this sequence number.
    Echo(u16),
}

/// Says ICMP errors inside the gateway namespace.
#[derive(Debug)]
pub struct Errors {
    four: Socket,
    six: Socket,
    service: (Ipv4Addr, Ipv6Addr),
}

impl Errors {
    /// Opens the sockets inside the namespace; errors of the way come from the service addresses, as from a router.
    pub fn open(ns: &Ns, service: (Ipv4Addr, Ipv6Addr)) -> Result<Self, KernelError> {
        ns.run(move || {
            let open = |domain| {
                let kind = Type::RAW.nonblocking().cloexec();
                Socket::new(domain, kind, Some(Protocol::from(RAW)))
                    .act("opening the socket for ICMP errors")
            };
            Ok(Self {
                four: open(Domain::IPV4)?,
                six: open(Domain::IPV6)?,
                service,
            })
        })
    }

    /// Tells the sender of a datagram. A lost error is like any lost packet.
    pub fn tell(&self, about: About<'_>, trouble: Trouble) {
        if let Err(error) = self.send(about, trouble) {
            tracing::trace!(%error, "an ICMP error was lost");
        }
    }

    /// Answers an echo request as whoever was asked. A lost reply is like any lost packet.
    pub fn reply(&self, request: About<'_>, payload: &[u8]) {
        let Sent::Echo(sequence) = request.sent else {
            return;
        };
        let to = request.from.ip();
        let six = to.is_ipv6();
        let kind = if six { 129 } else { 0 };
        let message = echo(kind, request.from.port(), sequence, payload);
        let sent = envelope((request.to.ip(), to), message).map(|whole| self.put(&whole, to));
        if let Some(Err(error)) = sent {
            tracing::trace!(%error, "an echo reply was lost");
        }
    }

    fn send(&self, about: About<'_>, trouble: Trouble) -> io::Result<()> {
        match packet(about, trouble, self.service) {
            Some(packet) => self.put(&packet, about.from.ip()),
            None => Ok(()),
        }
    }

    /// The service addresses.
    pub(super) const fn service(&self) -> (Ipv4Addr, Ipv6Addr) {
        self.service
    }

    /// Sends a whole packet to the sandbox that it is for.
    pub(super) fn put(&self, packet: &[u8], to: IpAddr) -> io::Result<()> {
        let socket = if to.is_ipv4() { &self.four } else { &self.six };
        // a raw socket takes no port
        let to = SocketAddr::new(to, 0);
        socket.send_to(packet, &to.into()).map(drop)
    }
}

/// The whole packet; `None` where there is nothing to say or the addresses are of two families.
fn packet(about: About<'_>, trouble: Trouble, service: (Ipv4Addr, Ipv6Addr)) -> Option<Vec<u8>> {
    let quoted = about.bytes.get(..about.bytes.len().min(QUOTE))?;
    let length = 8 + about.bytes.len();
    let (mut quote, by, what) = match (about.from.ip(), about.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let protocol = about.sent.protocol(ICMP);
            let header = header4((from, to), protocol, length);
            (header, IpAddr::V4(service.0), trouble.four()?)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let protocol = about.sent.protocol(ICMP6);
            let header = header6((from, to), protocol, length);
            (header, IpAddr::V6(service.1), trouble.six()?)
        }
        _ => return None,
    };
    quote.extend(match about.sent {
        Sent::Udp => udp_header(about),
        Sent::Echo(sequence) => {
            let kind = if about.from.is_ipv4() { 8 } else { 128 };
            echo(kind, about.from.port(), sequence, &[])
        }
    });
    quote.extend(quoted);
    let by = if trouble == Trouble::PortUnreachable {
        about.to.ip()
    } else {
        by
    };
    let (kind, code, word) = what;
    envelope((by, about.from.ip()), message(kind, code, word, &quote))
}

impl Sent {
    fn protocol(self, icmp: u8) -> u8 {
        match self {
            Self::Udp => UDP,
            Self::Echo(_) => icmp,
        }
    }
}

/// An ICMP message with its sum and its IP header; `None` where the addresses are of two families.
pub(super) fn envelope(way: (IpAddr, IpAddr), mut message: Vec<u8>) -> Option<Vec<u8>> {
    match way {
        (IpAddr::V4(by), IpAddr::V4(to)) => {
            let sum = checksum(&[&message]);
            message.get_mut(2..4)?.copy_from_slice(&sum);
            let mut whole = header4((by, to), ICMP, message.len());
            whole.extend(message);
            Some(whole)
        }
        (IpAddr::V6(by), IpAddr::V6(to)) => {
            let length = u32::try_from(message.len()).ok()?.to_be_bytes();
            let pseudo = [0, 0, 0, ICMP6];
            let sum = checksum(&[&by.octets(), &to.octets(), &length, &pseudo, &message]);
            message.get_mut(2..4)?.copy_from_slice(&sum);
            let mut whole = header6((by, to), ICMP6, message.len());
            whole.extend(message);
            Some(whole)
        }
        _ => None,
    }
}

/// An echo request or reply, without its sum.
pub(super) fn echo(kind: u8, identifier: u16, sequence: u16, payload: &[u8]) -> Vec<u8> {
    let [high, low] = identifier.to_be_bytes();
    let [above, below] = sequence.to_be_bytes();
    let mut message = vec![kind, 0, 0, 0, high, low, above, below];
    message.extend(payload);
    message
}

pub(super) fn message(kind: u8, code: u8, word: u32, quote: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(word.to_be_bytes());
    message.extend(quote);
    message
}

/// Source, destination, length; without a checksum, which IPv4 allows and no reader of a quote looks at.
fn udp_header(about: About<'_>) -> Vec<u8> {
    let length = u16::try_from(about.bytes.len() + 8).unwrap_or(u16::MAX);
    let fields = [about.from.port(), about.to.port(), length, 0];
    fields.into_iter().flat_map(u16::to_be_bytes).collect()
}

pub(super) fn header4((from, to): (Ipv4Addr, Ipv4Addr), protocol: u8, payload: usize) -> Vec<u8> {
    let total = u16::try_from(payload + 20)
        .unwrap_or(u16::MAX)
        .to_be_bytes();
    let mut header = vec![
        0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0,
    ];
    header.extend(from.octets());
    header.extend(to.octets());
    let [high, low] = checksum(&[&header]);
    if let [_, _, _, _, _, _, _, _, _, _, a, b, ..] = header.as_mut_slice() {
        (*a, *b) = (high, low);
    }
    header
}

pub(super) fn header6((from, to): (Ipv6Addr, Ipv6Addr), protocol: u8, payload: usize) -> Vec<u8> {
    let [high, low] = u16::try_from(payload).unwrap_or(u16::MAX).to_be_bytes();
    let mut header = vec![0x60, 0, 0, 0, high, low, protocol, 64];
    header.extend(from.octets());
    header.extend(to.octets());
    header
}

/// The Internet checksum (RFC 1071) over pieces of even length, the last one excepted.
pub(super) fn checksum(pieces: &[&[u8]]) -> [u8; 2] {
    let mut sum: u64 = 0;
    for piece in pieces {
        for pair in piece.chunks(2) {
            let high = pair.first().copied().unwrap_or(0);
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u64::from(u16::from_be_bytes([high, low]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let folded = u16::try_from(sum).unwrap_or(0);
    (!folded).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: (Ipv4Addr, Ipv6Addr) = (
        Ipv4Addr::new(198, 18, 0, 1),
        Ipv6Addr::new(0xfd00, 0x5a, 0, 0, 0, 0, 0, 1),
    );

    fn about<'a>(from: &str, to: &str, bytes: &'a [u8]) -> About<'a> {
        About {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            sent: Sent::Udp,
            bytes,
        }
    }

    #[test]
    fn an_error_quotes_the_datagram_and_its_sums_are_right() {
        let four = about("198.18.0.2:4000", "8.8.8.8:123", b"odd");
        let whole = packet(four, Trouble::TooBig(1280), SERVICE).unwrap();
        assert_eq!(checksum(&[&whole[..20]]), [0, 0]);
        assert_eq!(checksum(&[&whole[20..]]), [0, 0]);
        assert_eq!(&whole[12..20], [198, 18, 0, 1, 198, 18, 0, 2]);
        assert_eq!(&whole[20..28], [3, 4, whole[22], whole[23], 0, 0, 5, 0]);
        assert_eq!(&whole[48..52], [0x0f, 0xa0, 0, 123]);
        assert_eq!(&whole[56..], b"odd");
        let six = about("[fd00:5a::2]:4000", "[2001:db8::1]:123", b"");
        let whole = packet(six, Trouble::PortUnreachable, SERVICE).unwrap();
        assert_eq!(
            &whole[8..24],
            "2001:db8::1".parse::<Ipv6Addr>().unwrap().octets()
        );
        assert_eq!(&whole[40..42], [1, 4]);
        let length = u32::try_from(whole.len() - 40).unwrap().to_be_bytes();
        let sum = checksum(&[&whole[8..40], &length, &[0, 0, 0, ICMP6], &whole[40..]]);
        assert_eq!(sum, [0, 0]);
    }

    #[test]
    fn long_datagrams_are_quoted_in_part_and_nothing_is_said_across_families() {
        let bytes = vec![7; 60_000];
        let long = about("198.18.0.2:4000", "8.8.8.8:123", &bytes);
        let whole = packet(long, Trouble::HostUnreachable, SERVICE).unwrap();
        assert_eq!(whole.len(), 20 + 8 + 20 + 8 + QUOTE);
        let mixed = about("198.18.0.2:4000", "[2001:db8::1]:123", b"");
        assert_eq!(packet(mixed, Trouble::PortUnreachable, SERVICE), None);
        assert_eq!(packet(long, Trouble::Nothing, SERVICE), None);
    }
}
