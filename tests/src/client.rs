//! What a program in a sandbox does: connect, speak, listen to the answer. Call these inside [`crate::Sandbox::run`].

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::dns::{self, Message, kind};
use crate::topology::SERVICE4;

/// How long a client waits for what may never come. Denials must come far sooner.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits for what has to come, on a machine that is busy with other tests: several retransmissions.
pub const SURELY: Duration = Duration::from_secs(30);

/// What became of a connect.
#[derive(Debug)]
pub enum Connect {
    /// Open.
    Open(TcpStream),
    /// Reset by the other side, or by whoever speaks for it.
    Refused,
    /// Accepted, and reset before this side looked.
    Reset,
    /// An ICMP error said so.
    Unreachable(ErrorKind),
    /// No answer within the limit.
    Silence,
}

impl Connect {
    /// The stream, or a failed test.
    pub fn expect_open(self) -> TcpStream {
        match self {
            Self::Open(stream) => stream,
            other => panic!("expected an open connection, got {other:?}"),
        }
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// Whether it was refused, at once or the moment after it was accepted.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused | Self::Reset)
    }
}

/// Connects, or is told why not: a destination that is silent is for [`connect_within`].
pub fn connect(to: SocketAddr) -> Connect {
    connect_within(to, SURELY)
}

/// Connects within a limit.
pub fn connect_within(to: SocketAddr, limit: Duration) -> Connect {
    match TcpStream::connect_timeout(&to, limit) {
        Ok(stream) => {
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = stream.set_write_timeout(Some(PATIENCE));
            Connect::Open(stream)
        }
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused => Connect::Refused,
            ErrorKind::ConnectionReset => Connect::Reset,
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Connect::Silence,
            kind => Connect::Unreachable(kind),
        },
    }
}

/// How an exchange ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The other side closed.
    Closed,
    /// Reset.
    Reset,
    /// Still open when patience ended.
    Open,
}

/// Sends bytes, reads until the end or until patience is over.
pub fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> (Vec<u8>, End) {
    if let Err(error) = stream.write_all(bytes)
        && matches!(
            error.kind(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        )
    {
        return (Vec::new(), End::Reset);
    }
    read_to_end(stream)
}

/// Reads until the end or until patience is over.
pub fn read_to_end(stream: &mut TcpStream) -> (Vec<u8>, End) {
    let mut all = Vec::new();
    let mut buffer = [0; 16_384];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (all, End::Closed),
            Ok(length) => all.extend_from_slice(&buffer[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return (all, End::Open);
            }
            Err(_) => return (all, End::Reset),
        }
    }
}

/// Reads exactly as many bytes as the expected text has; `false` where something else came.
pub fn reads(stream: &mut TcpStream, expected: &[u8]) -> bool {
    let mut got = vec![0; expected.len()];
    let before = stream.read_timeout();
    let _ = stream.set_read_timeout(Some(SURELY));
    let read = stream.read_exact(&mut got).is_ok();
    let _ = before.and_then(|limit| stream.set_read_timeout(limit));
    read && got == expected
}

/// The sandbox's DNS server.
pub fn resolver() -> SocketAddr {
    SocketAddr::new(crate::topology::ip(SERVICE4), 53)
}

/// Asks the sandbox's DNS, again when no answer comes, as every resolver does: UDP may be lost.
pub fn ask(name: &str, kind: u16) -> Option<Message> {
    let query = dns::query(0x5a17, name, kind);
    (0..4).find_map(|_| dns::ask_udp(resolver(), &query, PATIENCE))
}

/// Addresses of a name, IPv4.
pub fn resolve4(name: &str) -> Vec<IpAddr> {
    ask(name, kind::A)
        .map(|m| m.addresses())
        .unwrap_or_default()
}

/// Addresses of a name, IPv6.
pub fn resolve6(name: &str) -> Vec<IpAddr> {
    ask(name, kind::AAAA)
        .map(|m| m.addresses())
        .unwrap_or_default()
}

/// The first IPv4 address of a name, with a port; a name that does not resolve fails the test.
pub fn at(name: &str, port: u16) -> SocketAddr {
    let message = ask(name, kind::A);
    let first = message
        .as_ref()
        .and_then(|m| m.addresses().first().copied());
    SocketAddr::new(
        first.unwrap_or_else(|| panic!("{name} did not resolve: {message:?}")),
        port,
    )
}

/// A plain HTTP request on an open connection; the whole answer.
pub fn http_get(stream: &mut TcpStream, host: &str, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    // it has to end: by the answer, or by a denial
    let _ = stream.set_read_timeout(Some(SURELY));
    String::from_utf8_lossy(&exchange(stream, request.as_bytes()).0).into_owned()
}

/// One datagram there; what comes back, or how it failed (port unreachable is `ConnectionRefused`).
pub fn datagram(to: SocketAddr, bytes: &[u8], limit: Duration) -> std::io::Result<Vec<u8>> {
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.set_read_timeout(Some(limit))?;
    socket.connect(to)?;
    socket.send(bytes)?;
    let mut buffer = vec![0; 65_536];
    let length = socket.recv(&mut buffer)?;
    buffer.truncate(length);
    Ok(buffer)
}
