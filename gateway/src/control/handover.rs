//! Handing a broker connection over: the accepted descriptor and who it belongs to, to the broker's own socket.
//!
//! One connection to the broker's socket for each connection of a sandbox: one JSON line ([`Handover`]), the descriptor
//! with its first byte, then the end. Identity comes from the source address that the kernel checked, never from a
//! header. Refuses to own: what is said over the descriptor.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use netpolicy::ids::NetworkId;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::access::is_ours;
use super::descriptor::{Carrier, Received};

/// A broker that does not take a connection in this time is stuck; the sandbox sees a reset.
const PATIENCE: Duration = Duration::from_secs(5);
/// A line is far below this.
const LINE_LIMIT: u64 = 4096;

/// Whose connection it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handover {
    /// The network it came from.
    pub network: NetworkId,
    /// The run of that network.
    pub run: Option<String>,
    /// The sandbox's end.
    pub source: SocketAddr,
}

/// Hands a connection over.
///
/// The socket must be served by the user who attached the network. A path can be exchanged after it was checked, and
/// the gateway reaches sockets that this user cannot; so it is the listener that is asked, and told nothing before.
pub async fn hand_over(
    (broker, owner): (&Path, u32),
    whose: &Handover,
    connection: OwnedFd,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(whose)?;
    line.push(b'\n');
    let work = async {
        let stream = UnixStream::connect(broker).await?;
        let served_by = stream.peer_cred()?.uid();
        if !is_ours(owner) && served_by != owner {
            let text =
                format!("uid {owner} attached the network, uid {served_by} serves the socket");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let mut carrier = Carrier::sending(stream, Some(connection));
        carrier.write_all(&line).await?;
        carrier.shutdown().await
    };
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The broker's side: reads one handover from an accepted connection of its socket. The broker must check that the
/// peer is the gateway (`peer_cred`) before it believes a word.
pub async fn receive(stream: UnixStream) -> io::Result<(Handover, OwnedFd)> {
    let (carrier, descriptor) = Carrier::receiving(stream);
    let mut line = Vec::new();
    let mut limited = carrier.take(LINE_LIMIT);
    let read = tokio::time::timeout(PATIENCE, limited.read_to_end(&mut line)).await;
    read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    let whose = serde_json::from_slice(&line)?;
    match descriptor.take() {
        Received::One(connection) => connection.keep().map(|connection| (whose, connection)),
        Received::Nothing | Received::TooMany => None,
    }
    .ok_or_else(|| {
        let text = "a handover brings exactly one descriptor";
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> OwnedFd {
        std::os::unix::net::UnixStream::pair().unwrap().0.into()
    }

    #[tokio::test]
    async fn only_a_socket_of_the_user_who_attached_is_told_anything() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("broker.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let whose = Handover {
            network: "n1".parse().unwrap(),
            run: None,
            source: ([198, 18, 0, 9], 4000).into(),
        };
        // the path leads to a socket of root: served by this process, named by somebody else
        let refused = hand_over((&path, 61_000), &whose, connection())
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let (mut told, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        told.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"");
        let own = rustix::process::geteuid().as_raw();
        hand_over((&path, own), &whose, connection()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        assert_eq!(receive(stream).await.unwrap().0, whose);
    }
}
