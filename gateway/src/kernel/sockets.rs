//! Sockets of the gateway namespace: transparent listeners, the DNS socket that answers from the address that was
//! asked, and connections into a sandbox; plus the options that relayed flows carry on both legs.
//!
//! A socket belongs to the namespace it was made in, so these are made inside and used from the runtime's threads.
//!
//! JUSTIFICATION for unsafe: `IPV6_TRANSPARENT` and `SO_PASSRIGHTS` have no wrapper in the crates in use.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use netpolicy::ruleset::Ports;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::buffers;
use super::datagrams::DatagramDoor;
use super::error::{Act, KernelError};
use super::netns::Ns;

/// Connections that wait for accept; the kernel cuts it at somaxconn, which is raised to this.
const BACKLOG: i32 = 65_535;

/// Towards a sandbox there is one veth pair and nothing to probe or to pace for. A machine whose default paces (BBR) would
/// spend a fifth of a stream's time on timers.
const LINK_CONGESTION: &[u8] = b"reno";

/// Every listener of the gateway namespace, non-blocking.
#[derive(Debug)]
pub struct Doors {
    /// The transparent TCP door, IPv4 and IPv6. `local_addr` of an accepted socket is the destination asked for.
    pub tcp: [TcpListener; 2],
    /// DNS over TCP, to port 53 of any address.
    pub dns_tcp: [TcpListener; 2],
    /// DNS over UDP, to port 53 of any address.
    pub dns_udp: [DatagramDoor; 2],
    /// The run broker on the service address.
    pub broker: [TcpListener; 2],
    /// The explicit proxy on the service address.
    pub proxy: [TcpListener; 2],
}

impl Doors {
    /// Opens all of them inside the namespace.
    pub fn open(ns: &Ns, ports: Ports) -> Result<Self, KernelError> {
        ns.run(move || {
            Ok(Self {
                tcp: listeners(ports.tcp)?,
                dns_tcp: listeners(ports.dns)?,
                dns_udp: [
                    datagrams(Domain::IPV4, ports.dns)?,
                    datagrams(Domain::IPV6, ports.dns)?,
                ],
                broker: listeners(ports.broker)?,
                proxy: listeners(ports.proxy)?,
            })
        })
    }
}

fn listeners(port: u16) -> Result<[TcpListener; 2], KernelError> {
    Ok([listener(Domain::IPV4, port)?, listener(Domain::IPV6, port)?])
}

/// A transparent listener on the wildcard address of one family.
fn listener(domain: Domain, port: u16) -> Result<TcpListener, KernelError> {
    let socket = transparent(domain, Type::STREAM, port)?;
    let act = || format!("listening on port {port}");
    // accepted sockets inherit all options: set here, they cost a flow no system call
    tune(&SockRef::from(&socket)).act(act())?;
    if let Err(error) = socket.set_tcp_congestion(LINK_CONGESTION) {
        tracing::debug!(%error, "flows to sandboxes have the machine's congestion control");
    }
    socket.listen(BACKLOG).act(act())?;
    Ok(socket.into())
}

pub(super) fn transparent(domain: Domain, kind: Type, port: u16) -> Result<Socket, KernelError> {
    let act = || format!("opening the transparent socket on port {port}");
    let socket = Socket::new(domain, kind.nonblocking().cloexec(), None).act(act())?;
    socket.set_reuse_address(true).act(act())?;
    set_transparent(&socket, domain).act(act())?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(true).act(act())?;
    }
    socket.bind(&wildcard(domain, port).into()).act(act())?;
    Ok(socket)
}

fn wildcard(domain: Domain, port: u16) -> SocketAddr {
    if domain == Domain::IPV6 {
        (Ipv6Addr::UNSPECIFIED, port).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, port).into()
    }
}

pub(super) fn set_transparent(socket: &Socket, domain: Domain) -> io::Result<()> {
    if domain == Domain::IPV4 {
        return socket.set_ip_transparent_v4(true);
    }
    set_int(socket.as_fd(), (libc::SOL_IPV6, libc::IPV6_TRANSPARENT), 1)
}

/// Has a Unix socket's peer fail when it sends descriptors (Linux 6.16).
pub fn refuse_descriptors(socket: BorrowedFd<'_>) -> io::Result<()> {
    /// asm-generic/socket.h
    const SO_PASSRIGHTS: libc::c_int = 83;
    set_int(socket, (libc::SOL_SOCKET, SO_PASSRIGHTS), 0)
}

fn set_int(
    socket: BorrowedFd<'_>,
    (level, name): (libc::c_int, libc::c_int),
    value: libc::c_int,
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(&value)).map_err(io::Error::other)?;
    // SAFETY: both options take an int; pointer and length describe one.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            length,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Takes a listener that somebody sent; fails unless it is one of TCP on the proxy's port of a loopback.
///
/// What is accepted from it is ours alone, whoever else holds the listener.
pub fn loopback_proxy(listener: OwnedFd) -> Result<TcpListener, KernelError> {
    const UNFIT: KernelError =
        KernelError::Unusable("the descriptor is no listener on 127.0.0.1:3128");
    let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, crate::listen::PROXY_PORT));
    let listener = {
        let socket = SockRef::from(&listener);
        let fits = socket.is_listener().unwrap_or(false)
            && socket.domain().is_ok_and(|domain| domain == Domain::IPV4)
            && socket.r#type().is_ok_and(|kind| kind == Type::STREAM)
            && socket
                .protocol()
                .is_ok_and(|protocol| protocol == Some(Protocol::TCP));
        if !fits {
            return Err(UNFIT);
        }
        TcpListener::from(listener)
    };
    match listener.local_addr() {
        Ok(address) if address == wanted => Ok(listener),
        _ => Err(UNFIT),
    }
}

/// The datagram socket of one family.
fn datagrams(domain: Domain, port: u16) -> Result<DatagramDoor, KernelError> {
    let act = || format!("opening the transparent datagram socket on port {port}");
    let socket = transparent(domain, Type::DGRAM, port)?;
    // IP_ORIGDSTADDR needs no conntrack: it reads the packet's own header.
    if domain == Domain::IPV4 {
        setsockopt(&socket, sockopt::Ipv4OrigDstAddr, &true).act(act())?;
    } else {
        setsockopt(&socket, sockopt::Ipv6OrigDstAddr, &true).act(act())?;
    }
    buffers::receive(&socket, 8 << 20).act(act())?;
    Ok(DatagramDoor::new(socket.into()))
}

/// Begins a connection into a sandbox, from the service address; non-blocking, writable when it is decided.
///
/// Transparent, so that the established look-up of the TPROXY rule delivers the replies and no rule is added.
pub fn dial_in(ns: &Ns, service: IpAddr, to: SocketAddr) -> Result<TcpStream, KernelError> {
    ns.run(move || {
        let act = || format!("dialling {to} in a sandbox");
        let domain = Domain::for_address(to);
        let socket = Socket::new(
            domain,
            Type::STREAM.nonblocking().cloexec(),
            Some(Protocol::TCP),
        )
        .act(act())?;
        set_transparent(&socket, domain).act(act())?;
        socket
            .bind(&SocketAddr::from((service, 0)).into())
            .act(act())?;
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error).act(act()),
        }
        Ok(socket.into())
    })
}

/// A dead far end is noticed after 60 s and four probes of 15 s.
const KEEPALIVE_IDLE: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// Options of the sandbox's leg of a flow: no delay of small pieces, and a dead peer is noticed.
fn tune(socket: &SockRef<'_>) -> io::Result<()> {
    keep_alive(socket)?;
    socket.set_tcp_nodelay(true)
}

/// Lets as many connections wait at a listener as the kernel allows.
pub fn listen_deep(listener: &TcpListener) -> io::Result<()> {
    SockRef::from(listener).listen(BACKLOG)
}

/// Has a dead peer be noticed.
pub fn keep_alive(socket: &SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_sockets_have_the_options_of_their_door() {
        let door = listener(Domain::IPV4, 0).unwrap();
        let port = door.local_addr().unwrap().port();
        let _client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let accepted = door.accept().unwrap().0;
        let accepted = SockRef::from(&accepted);
        assert!(accepted.tcp_nodelay().unwrap());
        assert!(accepted.keepalive().unwrap());
        assert_eq!(accepted.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
        // the kernel's answer is padded with zeroes
        let control = accepted.tcp_congestion().unwrap();
        assert!(control.starts_with(LINK_CONGESTION), "{control:?}");
    }
}
