//! Pinned dialling: consumes a permit, dials only its addresses, happy eyeballs among them (RFC 8305).

use std::net::SocketAddr;

use netpolicy::decide::{DialPermit, Ground};

/// Opens upstream sockets in the uplink namespace.
#[derive(Debug)]
pub struct Dialer {}

/// An open upstream connection.
#[derive(Debug)]
pub struct Dialled {
    /// The socket.
    pub stream: tokio::net::TcpStream,
    /// Far end.
    pub upstream: SocketAddr,
    /// Why.
    pub ground: Ground,
}

/// A dial that failed; the kernel's own word, for the client's kernel to hear.
#[derive(Debug, thiserror::Error)]
#[error("dialling failed")]
pub struct DialError {
    /// errno of the last attempt.
    #[source]
    pub source: std::io::Error,
}

impl Dialer {
    /// Dials. Addresses that turn out local (route look-up, same two ends) are refused unless the class was Host.
    pub async fn dial(&self, _permit: DialPermit) -> Result<Dialled, DialError> { todo!() }
}
