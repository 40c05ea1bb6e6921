//! The signed head as a syslog message (RFC 5424), so that it leaves the reach of whoever owns the journal's disk.
//!
//! One datagram a minute to the local daemon's socket or to a server over UDP (RFC 5426). Owns the form and the sending;
//! nothing waits for it: a daemon that is not there or does not read costs an anchor, and that is logged.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Facility `authpriv` (10), severity `notice` (5): where security messages go on common systems.
const PRIORITY: u8 = 10 * 8 + 5;
/// The local daemon's socket.
pub const LOCAL: &str = "/dev/log";

/// Where anchors are sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A daemon's datagram socket on this machine.
    Socket(PathBuf),
    /// A server, over UDP.
    Server(SocketAddr),
}

impl Target {
    /// Sends one message, or says why not; never waits.
    pub fn send(&self, message: &str, now_ms: i64) -> io::Result<()> {
        let datagram = format(message, now_ms, &host(), std::process::id());
        let sent = match self {
            Self::Socket(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                socket.send_to(datagram.as_bytes(), path)?
            }
            Self::Server(server) => {
                let any: SocketAddr = match server {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.set_nonblocking(true)?;
                socket.send_to(datagram.as_bytes(), server)?
            }
        };
        if sent == datagram.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Server(server) => server.fmt(f),
        }
    }
}

/// `<PRI>1 TIMESTAMP HOSTNAME APP-NAME PROCID MSGID STRUCTURED-DATA MSG`.
fn format(message: &str, now_ms: i64, host: &str, pid: u32) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(now_ms) * 1_000_000)
        .ok()
        .and_then(|t| t.format(&Rfc3339).ok());
    let time = time.as_deref().unwrap_or("-");
    format!("<{PRIORITY}>1 {time} {host} sallyport {pid} anchor - {message}")
}

/// The host's name as far as the format takes it: visible ASCII.
fn host() -> String {
    let mut name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.retain(|c| c.is_ascii_graphic());
    name.truncate(255);
    if name.is_empty() {
        "-".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_form_of_rfc_5424() {
        assert_eq!(
            format("{}", 1_790_000_000_123, "gw", 7),
            "<85>1 2026-09-21T14:13:20.123Z gw sallyport 7 anchor - {}"
        );
        assert!(host().bytes().all(|b| b.is_ascii_graphic()));
    }
}
