//! Datagram sockets: the UDP door, and the reply socket of each session in the gateway namespace.
//!
//! Owns: socket options, control messages and the call that receives many datagrams at once. Refuses to own: what is
//! received ([`super::arrivals`], [`super::batch`]), sessions, decisions.
//! A reply socket is bound to the address that the sandbox asked (it is transparent), bound to the sandbox's link and
//! connected to its source: only that sandbox can send to it, and it can send to no other.
//!
//! JUSTIFICATION for unsafe: `recvmmsg` and the error queue have no wrapper that keeps its buffers between calls and is
//! `Send`; several socket options have none at all.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use netpolicy::ruleset::Ports;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::buffers;
use super::error::{Act, KernelError};
use super::icmp::Trouble;
use super::netns::Ns;
use super::sockets::{set_transparent, transparent};

/// Datagrams moved by one system call.
pub const BATCH: usize = 32;
/// Octets for the control messages of one arrival: original destination (48 at most) and hop count (24).
pub(super) const CONTROL: usize = 128;
/// Bytes that wait for a session or the door: some milliseconds of a fast sender.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Whether routers may cut what a client sends: its don't-fragment bit, carried over to the upstream socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cutting {
    /// Datagrams arrive whole or not at all, and the sender is told the size that fits.
    Never,
    /// Routers may fragment them.
    Allowed,
}

/// A transparent socket that gets the datagrams which belong to no session yet.
#[derive(Debug)]
pub struct UdpDoor {
    /// The socket, non-blocking.
    pub socket: UdpSocket,
    /// What the don't-fragment bit of its datagrams says.
    pub cutting: Cutting,
}

impl UdpDoor {
    /// Opens all of them inside the namespace: IPv4, IPv6, and IPv4 that routers may cut.
    pub fn all(ns: &Ns, ports: Ports) -> Result<[Self; 3], KernelError> {
        ns.run(move || {
            Ok([
                Self::open(Domain::IPV4, ports.udp, Cutting::Never)?,
                Self::open(Domain::IPV6, ports.udp, Cutting::Never)?,
                Self::open(Domain::IPV4, ports.udp_cut, Cutting::Allowed)?,
            ])
        })
    }

    fn open(domain: Domain, port: u16, cutting: Cutting) -> Result<Self, KernelError> {
        let act = || format!("opening the UDP door on port {port}");
        let socket = transparent(domain, Type::DGRAM, port)?;
        let options = if domain == Domain::IPV4 {
            [
                (libc::SOL_IP, libc::IP_RECVORIGDSTADDR),
                (libc::SOL_IP, libc::IP_RECVTTL),
            ]
        } else {
            [
                (libc::SOL_IPV6, libc::IPV6_RECVORIGDSTADDR),
                (libc::SOL_IPV6, libc::IPV6_RECVHOPLIMIT),
            ]
        };
        for (level, name) in options {
            set(socket.as_raw_fd(), level, name, 1).act(act())?;
        }
        buffers::receive(&socket, 8 << 20).act(act())?;
        Ok(Self {
            socket: socket.into(),
            cutting,
        })
    }
}

/// Makes the socket that answers one client as the address that it asked. Blocks for a moment.
pub fn reply_socket(
    ns: &Ns,
    link: &str,
    source: SocketAddr,
    destination: SocketAddr,
) -> Result<UdpSocket, KernelError> {
    let link = link.to_owned();
    ns.run(move || {
        let act = || format!("opening the reply socket from {destination} to {source}");
        let domain = Domain::for_address(source);
        let kind = Type::DGRAM.nonblocking().cloexec();
        let socket = Socket::new(domain, kind, Some(Protocol::UDP)).act(act())?;
        set_transparent(&socket, domain).act(act())?;
        // other sources ask the same destination; until it is connected, this socket gets nothing
        socket.set_reuse_address(true).act(act())?;
        socket.bind_device(Some(link.as_bytes())).act(act())?;
        socket.bind(&destination.into()).act(act())?;
        socket.connect(&source.into()).act(act())?;
        buffers::receive(&socket, RECEIVE_BUFFER).act(act())?;
        joined(socket.as_raw_fd());
        Ok(socket.into())
    })
}

/// Options of an upstream socket: the client's word on fragments, and ICMP errors with their details.
pub fn tune_upstream(socket: &UdpSocket, cutting: Cutting) -> io::Result<()> {
    let v4 = socket.local_addr()?.is_ipv4();
    tune_raw(&SockRef::from(socket), v4, cutting)?;
    joined(socket.as_raw_fd());
    Ok(())
}

/// The same for any socket over IP.
pub(super) fn tune_raw(socket: &Socket, v4: bool, cutting: Cutting) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    if v4 {
        let discover = match cutting {
            Cutting::Never => libc::IP_PMTUDISC_DO,
            Cutting::Allowed => libc::IP_PMTUDISC_DONT,
        };
        set(fd, libc::SOL_IP, libc::IP_MTU_DISCOVER, discover)?;
        set(fd, libc::SOL_IP, libc::IP_RECVERR, 1)?;
    } else {
        // no router cuts IPv6; what does not fit is the sender's to hear
        set(
            fd,
            libc::SOL_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
        )?;
        set(fd, libc::SOL_IPV6, libc::IPV6_DONTFRAG, 1)?;
        set(fd, libc::SOL_IPV6, libc::IPV6_RECVERR, 1)?;
    }
    // where the gateway may not go beyond the system's limit, that limit has to do
    let _ = buffers::receive(socket, RECEIVE_BUFFER);
    Ok(())
}

/// What arrives as a run of equal datagrams is read as one, see [`super::batch`]. A kernel that cannot reads them singly.
fn joined(fd: RawFd) {
    let _ = set(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
}

/// The next ICMP error about what this upstream socket sent.
pub fn next_error(socket: BorrowedFd<'_>) -> Option<Trouble> {
    next_error_about(socket, &mut []).map(|(trouble, _)| trouble)
}

/// The same, with the beginning of what was sent; how many octets of it are there.
pub fn next_error_about(socket: BorrowedFd<'_>, about: &mut [u8]) -> Option<(Trouble, usize)> {
    let mut part = libc::iovec {
        iov_base: about.as_mut_ptr().cast(),
        iov_len: about.len(),
    };
    let mut control = [0_u64; CONTROL / 8];
    let mut head = empty_head();
    head.msg_iov = &raw mut part;
    head.msg_iovlen = 1;
    head.msg_control = control.as_mut_ptr().cast();
    head.msg_controllen = CONTROL;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header has no address; its buffer is `about`, its control pointer and length describe `control`, and
    // both outlive the call.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut head, flags) };
    if got < 0 {
        return None;
    }
    let mut found = None;
    each_control(&head, |level, kind, data| {
        let is_error = matches!(
            (level, kind),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
        );
        if is_error && let Some(errno) = data.first_chunk::<4>() {
            let info = data.get(8..12).and_then(|b| b.first_chunk::<4>());
            let info = info.map_or(0, |b| u32::from_ne_bytes(*b));
            found = Some(Trouble::of_errno(i32::from_ne_bytes(*errno), info));
        }
    });
    // an error that says nothing to a client still was one: the queue goes on
    let length = usize::try_from(got).unwrap_or(0);
    Some((found.flatten().unwrap_or(Trouble::Nothing), length))
}

/// The path's packet size as a connected socket's kernel knows it.
pub fn path_mtu(socket: BorrowedFd<'_>, v4: bool) -> Option<u32> {
    let (level, name) = if v4 {
        (libc::SOL_IP, libc::IP_MTU)
    } else {
        (libc::SOL_IPV6, libc::IPV6_MTU)
    };
    let mut value: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of_val(&value)).ok()?;
    // SAFETY: the option gives an int; pointer and length describe one.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    (result == 0).then(|| u32::try_from(value).ok()).flatten()
}

pub(super) fn set(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(&value)).map_err(io::Error::other)?;
    // SAFETY: these options take an int; pointer and length describe one.
    let result = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), length) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn empty_head() -> libc::msghdr {
    // SAFETY: a message header of zeroes is one without address, buffers and control messages.
    unsafe { std::mem::zeroed() }
}

pub(super) fn empty_heads() -> [libc::mmsghdr; BATCH] {
    std::array::from_fn(|_| libc::mmsghdr {
        msg_hdr: empty_head(),
        msg_len: 0,
    })
}

pub(super) fn no_parts() -> [libc::iovec; BATCH] {
    let none = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    [none; BATCH]
}

pub(super) fn receive_many(
    socket: BorrowedFd<'_>,
    heads: &mut [libc::mmsghdr],
) -> io::Result<usize> {
    let count = libc::c_uint::try_from(heads.len()).map_err(io::Error::other)?;
    // SAFETY: as many headers as said; each describes buffers that the callers keep alive over the call.
    let got = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            heads.as_mut_ptr(),
            count,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
        )
    };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Calls for each control message of a received header: level, type, data.
pub(super) fn each_control(
    head: &libc::msghdr,
    mut each: impl FnMut(libc::c_int, libc::c_int, &[u8]),
) {
    // SAFETY: the header was filled by the kernel; its control pointer and length describe a live buffer, and the macros
    // stay inside it. Each message's data lies between its header and its own length.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(head);
        while let Some(message) = at.as_ref() {
            let data = libc::CMSG_DATA(at);
            let length = message.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            each(
                message.cmsg_level,
                message.cmsg_type,
                std::slice::from_raw_parts(data, length),
            );
            at = libc::CMSG_NXTHDR(head, at);
        }
    }
}
