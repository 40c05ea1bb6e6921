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
pub async fn hand_over(broker: &Path, whose: &Handover, connection: OwnedFd) -> io::Result<()> {
    let mut line = serde_json::to_vec(whose)?;
    line.push(b'\n');
    let work = async {
        let mut carrier = Carrier::sending(UnixStream::connect(broker).await?, Some(connection));
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
        Received::One(connection) => Ok((whose, connection)),
        Received::Nothing | Received::TooMany => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a handover brings exactly one descriptor",
        )),
    }
}
