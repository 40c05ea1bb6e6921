//! A tap on one link of the gateway namespace: its frames, both directions, and how many were missed.
//!
//! A packet socket of packet(7), bound to one link before it receives anything, so that no frame of another network is
//! ever in its buffer. The buffer is the kernel's and bounded: who reads too slowly misses frames, and they are counted.
//!
//! JUSTIFICATION for unsafe: the address and the statistics of a packet socket have no wrapper in the crates in use.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, RawFd};

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use super::buffers;
use super::error::{Act, KernelError};
use super::netns::Ns;

/// Frames that wait for a reader: a third of a second of a gigabit.
const BUFFER: usize = 8 << 20;
/// `PACKET_OUTGOING` of packet(7): sent by the gateway, so towards the sandbox.
const OUTGOING: u8 = 4;

/// One frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Bytes in the buffer.
    pub captured: usize,
    /// Bytes that it had.
    pub length: usize,
    /// Nanoseconds since the epoch.
    pub at_ns: u64,
    /// Whether it goes to the sandbox.
    pub to_sandbox: bool,
}

/// Frames since the tap was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// That the link had, those dropped included.
    pub received: u64,
    /// That found the buffer full.
    pub dropped: u64,
}

/// The tap. For readiness see [`watch`](super::watch).
#[derive(Debug)]
pub struct Tap {
    socket: Socket,
    statistics: Statistics,
}

impl Tap {
    /// Opens it on a link of the namespace.
    pub fn open(ns: &Ns, link: &str) -> Result<Self, KernelError> {
        let link = link.to_owned();
        ns.run(move || {
            let act = || format!("tapping {link}");
            let index = if_nametoindex(link.as_str()).act(act())?;
            // Protocol 0: receives nothing until it is bound to the one link.
            let kind = Type::RAW.nonblocking().cloexec();
            let socket = Socket::new(Domain::PACKET, kind, Some(Protocol::from(0))).act(act())?;
            buffers::receive(&socket, BUFFER).act(act())?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true).act(act())?;
            socket
                .bind(&address(index, libc::ETH_P_ALL).act(act())?)
                .act(act())?;
            Ok(Self {
                socket,
                statistics: Statistics::default(),
            })
        })
    }

    /// The next frame; `WouldBlock` when there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Seen> {
        let room = buffer.len();
        let mut control = nix::cmsg_space!(TimeSpec);
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        let message = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            flags,
        )?;
        let at = message.cmsgs()?.find_map(|c| match c {
            ControlMessageOwned::ScmTimestampns(at) => Some(at),
            _ => None,
        });
        let at_ns = at.map_or(0, |at| {
            let seconds = u64::try_from(at.tv_sec()).unwrap_or(0);
            seconds * 1_000_000_000 + u64::try_from(at.tv_nsec()).unwrap_or(0)
        });
        let from = message.address;
        let link = from.as_ref().and_then(|a| a.as_link_addr());
        Ok(Seen {
            captured: message.bytes.min(room),
            length: message.bytes,
            at_ns,
            to_sandbox: link.is_some_and(|a| a.pkttype() == OUTGOING),
        })
    }

    /// How many there were and how many were missed.
    pub fn statistics(&mut self) -> io::Result<Statistics> {
        self.statistics = statistics(&self.socket, self.statistics)?;
        Ok(self.statistics)
    }
}

/// The counts of a packet socket, added to those of before: reading sets the kernel's to zero.
pub(super) fn statistics(socket: &Socket, before: Statistics) -> io::Result<Statistics> {
    let mut now = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut length = libc::socklen_t::try_from(size_of_val(&now)).map_err(io::Error::other)?;
    // SAFETY: the option fills a `tpacket_stats`; pointer and length describe one.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut now).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Statistics {
        received: before.received + u64::from(now.tp_packets),
        dropped: before.dropped + u64::from(now.tp_drops),
    })
}

impl AsRawFd for Tap {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// One protocol (or every one, `ETH_P_ALL`) on one link (or every one, 0).
pub(super) fn address(index: u32, protocol: i32) -> io::Result<SockAddr> {
    let link = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).map_err(io::Error::other)?,
        sll_protocol: u16::try_from(protocol).map_err(io::Error::other)?.to_be(),
        sll_ifindex: i32::try_from(index).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&link)).map_err(io::Error::other)?;
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: the storage is larger than and aligned for every address family's structure; `length` bytes of it are a
    // `sockaddr_ll` afterwards.
    unsafe {
        *storage.view_as::<libc::sockaddr_ll>() = link;
        Ok(SockAddr::new(storage, length))
    }
}
