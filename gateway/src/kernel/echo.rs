//! Echo requests: the socket of the gateway namespace that sees those of all sandboxes, and the sockets that ask upstream.
//!
//! Owns: socket options, and reading requests and replies out of packets. Refuses to own: sessions, decisions, answers.
//! The door sees what the rules delivered: the kernel answers no echo request in that namespace. A socket upstream is
//! connected to one address, asks under an identifier of its own, and takes replies with that identifier alone.
//!
//! JUSTIFICATION for unsafe: the type filters of raw sockets have no wrapper.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};
use socket2::{Domain, Protocol, Socket, Type};

use super::error::{Act, KernelError};
use super::icmp::{checksum, echo};
use super::netns::Ns;
use super::sessions::{Cutting, set, tune_raw};

/// The longest payload that passes: what an Ethernet frame carries over IPv4. More is no use to a path, only to a tunnel.
pub const MOST_PAYLOAD: usize = 1_472;
/// Room for one packet with its header; what is longer is cut, and then too long.
const ROOM: usize = 2_048;
const HEADER: usize = 8;
const HEADER4: usize = 20;
const REQUEST4: u8 = 8;
const REPLY4: u8 = 0;
const REQUEST6: u8 = 128;
const REPLY6: u8 = 129;

/// An echo request of a sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Who asks.
    pub from: IpAddr,
    /// Whom.
    pub to: IpAddr,
    /// Time to live; a router would not pass 1 on.
    pub hops: u8,
    /// Whether routers may cut it.
    pub cutting: Cutting,
    /// The asker's identifier.
    pub identifier: u16,
    /// Its sequence number.
    pub sequence: u16,
    /// What the reply has to say again.
    pub payload: Vec<u8>,
}

/// What the door read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// A request.
    Request(Request),
    /// Nothing that may be asked: damaged, of another code, or too long.
    Refused,
}

/// A socket that gets every echo request that the rules let through.
#[derive(Debug)]
pub struct EchoDoor {
    socket: Socket,
}

impl AsRawFd for EchoDoor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl EchoDoor {
    /// Opens both inside the namespace: IPv4 and IPv6.
    pub fn all(ns: &Ns) -> Result<[Self; 2], KernelError> {
        ns.run(move || Ok([Self::open(Domain::IPV4)?, Self::open(Domain::IPV6)?]))
    }

    fn open(domain: Domain) -> Result<Self, KernelError> {
        let act = "opening the echo door";
        let socket = Socket::new(
            domain,
            Type::RAW.nonblocking().cloexec(),
            Some(protocol(domain == Domain::IPV4)),
        )
        .act(act)?;
        if domain == Domain::IPV4 {
            only4(&socket, REQUEST4).act(act)?;
        } else {
            only6(&socket, REQUEST6).act(act)?;
            let fd = socket.as_raw_fd();
            set(fd, libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 1).act(act)?;
            set(fd, libc::SOL_IPV6, libc::IPV6_RECVHOPLIMIT, 1).act(act)?;
        }
        Ok(Self { socket })
    }

    /// Reads one request. `WouldBlock` means there is none.
    pub fn receive(&self) -> io::Result<Asked> {
        let mut room = [0_u8; ROOM];
        let mut parts = [io::IoSliceMut::new(&mut room)];
        let mut control = nix::cmsg_space!(libc::in6_pktinfo, libc::c_int);
        let flags = MsgFlags::MSG_DONTWAIT;
        let fd = self.socket.as_raw_fd();
        let got = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), flags)?;
        let whole = !got
            .flags
            .intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC);
        let from = got.address.and_then(|address| ip_of(&address));
        let (mut to, mut hops) = (None, 0);
        for message in got.cmsgs()? {
            match message {
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    to = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr));
                }
                ControlMessageOwned::Ipv6HopLimit(limit) => {
                    hops = u8::try_from(limit).unwrap_or(0);
                }
                _ => {}
            }
        }
        let length = got.bytes;
        let packet = room.get(..length).unwrap_or_default();
        let request = match (from, to) {
            _ if !whole => None,
            (Some(IpAddr::V4(from)), _) => request4(from, packet),
            (Some(IpAddr::V6(from)), Some(to)) => request6((from, to), hops, packet),
            (Some(IpAddr::V6(_)) | None, _) => None,
        };
        Ok(request.map_or(Asked::Refused, Asked::Request))
    }
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let six = address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip()));
    six.or_else(|| address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip())))
}

/// A whole IPv4 packet; the kernel has looked at its header only.
fn request4(from: Ipv4Addr, packet: &[u8]) -> Option<Request> {
    let (header, message) = packet.split_at_checked(HEADER4)?;
    if header.first() != Some(&0x45) || checksum(&[message]) != [0, 0] {
        return None;
    }
    let to: [u8; 4] = *header.get(16..20)?.first_chunk()?;
    let cutting = if header.get(6)? & 0x40 == 0 {
        Cutting::Allowed
    } else {
        Cutting::Never
    };
    let (identifier, sequence, payload) = parse(REQUEST4, message)?;
    Some(Request {
        from: from.into(),
        to: IpAddr::V4(to.into()),
        hops: *header.get(8)?,
        cutting,
        identifier,
        sequence,
        payload: payload.to_vec(),
    })
}

/// An ICMPv6 message; the kernel has verified its sum.
fn request6((from, to): (Ipv6Addr, Ipv6Addr), hops: u8, message: &[u8]) -> Option<Request> {
    let (identifier, sequence, payload) = parse(REQUEST6, message)?;
    Some(Request {
        from: from.into(),
        to: to.into(),
        hops,
        cutting: Cutting::Never,
        identifier,
        sequence,
        payload: payload.to_vec(),
    })
}

/// Identifier, sequence number and payload of an echo message of this kind.
fn parse(kind: u8, message: &[u8]) -> Option<(u16, u16, &[u8])> {
    let (header, payload) = message.split_at_checked(HEADER)?;
    let [found, code, _, _, high, low, above, below] = *header.first_chunk()?;
    (found == kind && code == 0 && payload.len() <= MOST_PAYLOAD).then_some((
        u16::from_be_bytes([high, low]),
        u16::from_be_bytes([above, below]),
        payload,
    ))
}

/// A socket that asks one address upstream.
#[derive(Debug)]
pub struct Pinger {
    socket: Socket,
    identifier: u16,
    v4: bool,
    /// Whether packets come with their IPv4 header: a raw socket's do, a ping socket's do not.
    raw: bool,
    local: IpAddr,
    target: IpAddr,
}

impl AsRawFd for Pinger {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for Pinger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Pinger {
    /// Connects in the caller's namespace. A ping socket where the system gives this group any, as the kernel then keeps
    /// identifiers apart; else a raw socket with this identifier. Nothing is sent.
    pub fn connect(target: IpAddr, identifier: u16, cutting: Cutting) -> io::Result<Self> {
        let v4 = target.is_ipv4();
        let domain = if v4 { Domain::IPV4 } else { Domain::IPV6 };
        let open = |kind: Type| {
            let kind = kind.nonblocking().cloexec();
            Socket::new(domain, kind, Some(protocol(v4)))
        };
        let (socket, raw) = match open(Type::DGRAM) {
            Ok(socket) => (socket, false),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (open(Type::RAW)?, true)
            }
            Err(error) => return Err(error),
        };
        if raw && v4 {
            only4(&socket, REPLY4)?;
        } else if raw {
            only6(&socket, REPLY6)?;
        }
        tune_raw(&socket, v4, cutting)?;
        socket.connect(&SocketAddr::new(target, 0).into())?;
        let local = socket.local_addr()?.as_socket();
        let local = local.ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self {
            socket,
            // the kernel chose it: it is the socket's port
            identifier: if raw { identifier } else { local.port() },
            v4,
            raw,
            local: local.ip(),
            target,
        })
    }

    /// Where it asks from.
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// The identifier that it asks under.
    pub fn identifier(&self) -> u16 {
        self.identifier
    }

    /// Asks.
    pub fn send(&self, sequence: u16, payload: &[u8]) -> io::Result<()> {
        let kind = if self.v4 { REQUEST4 } else { REQUEST6 };
        let mut message = echo(kind, self.identifier, sequence, payload);
        if self.v4 {
            // over IPv6 the kernel does it, for it knows the addresses
            let sum = checksum(&[&message]);
            if let Some(place) = message.get_mut(2..4) {
                place.copy_from_slice(&sum);
            }
        }
        self.socket.send(&message).map(drop)
    }

    /// Reads one reply: sequence number and payload. `None` is something else, which is nobody's.
    pub fn receive(&self) -> io::Result<Option<(u16, Vec<u8>)>> {
        let mut room = [0_u8; ROOM];
        let mut parts = [io::IoSliceMut::new(&mut room)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let got = recvmsg::<SockaddrStorage>(self.as_raw_fd(), &mut parts, None, flags)?;
        let (whole, length) = (!got.flags.contains(MsgFlags::MSG_TRUNC), got.bytes);
        // a ping socket is connected for sending only
        let theirs = got.address.and_then(|address| ip_of(&address)) == Some(self.target);
        let packet = room.get(..length).filter(|_| whole && theirs);
        Ok(packet.and_then(|packet| self.reply(packet)))
    }

    fn reply(&self, packet: &[u8]) -> Option<(u16, Vec<u8>)> {
        let kind = if self.v4 { REPLY4 } else { REPLY6 };
        let message = if self.raw && self.v4 {
            let words = usize::from(packet.first()? & 0x0f);
            let message = packet.get(words * 4..)?;
            (checksum(&[message]) == [0, 0]).then_some(message)?
        } else {
            packet
        };
        let (identifier, sequence, payload) = parse(kind, message)?;
        (identifier == self.identifier).then(|| (sequence, payload.to_vec()))
    }
}

/// The sequence number in a request of ours that an error quotes.
pub fn quoted_sequence(quote: &[u8]) -> Option<u16> {
    let [.., above, below] = *quote.first_chunk::<HEADER>()?;
    Some(u16::from_be_bytes([above, below]))
}

fn protocol(v4: bool) -> Protocol {
    if v4 {
        Protocol::ICMPV4
    } else {
        Protocol::ICMPV6
    }
}

/// `ICMP_FILTER`: a set bit keeps its type away.
fn only4(socket: &Socket, kind: u8) -> io::Result<()> {
    const ICMP_FILTER: libc::c_int = 1;
    let filter = !(1_u32 << kind);
    filter_types(socket, (libc::SOL_RAW, ICMP_FILTER), &[filter])
}

/// `ICMP6_FILTER`: eight words, a set bit keeps its type away.
fn only6(socket: &Socket, kind: u8) -> io::Result<()> {
    const ICMP6_FILTER: libc::c_int = 1;
    let mut filter = [u32::MAX; 8];
    if let Some(word) = filter.get_mut(usize::from(kind / 32)) {
        *word = !(1 << (kind % 32));
    }
    filter_types(socket, (libc::SOL_ICMPV6, ICMP6_FILTER), &filter)
}

fn filter_types(
    socket: &Socket,
    (level, name): (libc::c_int, libc::c_int),
    filter: &[u32],
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(filter)).map_err(io::Error::other)?;
    // SAFETY: the options take a bit set of this many bytes; pointer and length describe one that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            filter.as_ptr().cast(),
            length,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
