//! One question, one usable reply: servers in turn, a fresh socket for every datagram, TCP when it was cut off.
//!
//! A fresh socket means a fresh port chosen by the kernel, and connected means that only the server's address can
//! answer: together with id and question that is what RFC 5452 asks of a resolver. Errors name no server, because
//! their text reaches sandboxes; the log has the address.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use super::message::{NotIt, Reply, Sent};
use super::{LookupError, Resolver, Scope};

/// Patience with one server.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How often the whole list is tried; a lost datagram is common, two in a row are not.
const ROUNDS: usize = 2;

/// Why one server gave no usable reply.
#[derive(Debug, thiserror::Error)]
enum Miss {
    #[error("no answer in time")]
    Late,
    #[error("the server cannot be reached")]
    Io(#[source] std::io::Error),
    #[error("the answer is malformed")]
    Malformed,
    #[error("the server said {0}")]
    Code(ResponseCode),
}

impl Resolver {
    /// Asks the servers of a name until one gives a usable reply: NOERROR or NXDOMAIN.
    pub(super) async fn exchange(
        &self,
        scope: &Scope,
        name: &Name,
        kind: RecordType,
    ) -> Result<Reply, LookupError> {
        let servers = self.servers_of(name);
        let mut last = None;
        for _ in 0..ROUNDS {
            for server in &servers {
                match self.attempt(scope, *server, name, kind).await {
                    Ok(reply) => {
                        self.servers.answered(*server);
                        return Ok(reply);
                    }
                    Err(miss) => {
                        tracing::debug!(%server, error = &miss as &dyn std::error::Error, "asking upstream failed");
                        if !matches!(miss, Miss::Code(_)) {
                            self.servers.failed(*server, Instant::now());
                        }
                        last = Some(miss);
                    }
                }
            }
            // a server that answered something has said its word; only silence is worth a second round
            if matches!(last, Some(Miss::Code(_) | Miss::Malformed)) {
                break;
            }
        }
        Err(LookupError::Upstream(last.map_or_else(
            || "no server is configured".to_owned(),
            |miss| miss.to_string(),
        )))
    }

    fn servers_of(&self, name: &Name) -> Vec<SocketAddr> {
        let upstreams = self.upstreams.load();
        // an alias target that is no host name belongs to no split domain
        let name = netpolicy::name::Name::from_labels(name.iter());
        let servers = name
            .as_ref()
            .map_or(upstreams.default.as_slice(), |name| upstreams.of(name));
        self.servers.order(servers, Instant::now())
    }

    async fn attempt(
        &self,
        scope: &Scope,
        server: SocketAddr,
        name: &Name,
        kind: RecordType,
    ) -> Result<Reply, Miss> {
        let place = self.sockets.place(scope.places()).await;
        let _place = place.ok_or(Miss::Late)?;
        let reply = within(ask_udp(server, &Sent::new(name, kind).map_err(Miss::Io)?)).await?;
        let reply = if reply.truncated {
            within(ask_tcp(server, &Sent::new(name, kind).map_err(Miss::Io)?)).await?
        } else {
            reply
        };
        match reply.code {
            ResponseCode::NoError | ResponseCode::NXDomain => Ok(reply),
            code => Err(Miss::Code(code)),
        }
    }
}

async fn within<T>(ask: impl Future<Output = Result<T, Miss>>) -> Result<T, Miss> {
    tokio::time::timeout(ATTEMPT, ask)
        .await
        .map_err(|_| Miss::Late)?
}

async fn ask_udp(server: SocketAddr, sent: &Sent) -> Result<Reply, Miss> {
    let any = match server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await.map_err(Miss::Io)?;
    socket.connect(server).await.map_err(Miss::Io)?;
    socket.send(&sent.bytes).await.map_err(Miss::Io)?;
    // on the heap: this future is part of many others
    let mut buffer = vec![0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await.map_err(Miss::Io)?;
        match sent.read(buffer.get(..length).unwrap_or_default()) {
            Ok(reply) => return Ok(reply),
            // a forger must not be able to end the wait, so only the time limit does
            Err(NotIt::Foreign) => {}
            Err(NotIt::Malformed) => return Err(Miss::Malformed),
        }
    }
}

async fn ask_tcp(server: SocketAddr, sent: &Sent) -> Result<Reply, Miss> {
    let mut stream = TcpStream::connect(server).await.map_err(Miss::Io)?;
    let length = u16::try_from(sent.bytes.len()).map_err(|_| Miss::Malformed)?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(&sent.bytes);
    stream.write_all(&framed).await.map_err(Miss::Io)?;
    let length = stream.read_u16().await.map_err(Miss::Io)?;
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await.map_err(Miss::Io)?;
    sent.read(&buffer).map_err(|_| Miss::Malformed)
}
