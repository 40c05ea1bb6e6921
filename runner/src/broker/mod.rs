//! What a sandbox can ask: HTTP/1.1 on the connections that the gateway hands over.
//!
//! Who asks comes from the handover (the gateway knows the source address), never from what is said on the connection.
//! Everything that arrives is a sandbox's: few connections a network, small heads, no bodies, short lives. Owns the
//! routes; refuses to own decisions, which it asks the gateway for.
//!
//! | verb | path | answer |
//! |---|---|---|
//! | GET | `/v1/health` | `ok` |
//! | GET | `/v1/net/explain?dest=HOST[:PORT]` | what would become of that destination, text or JSON |

mod explain;

use std::collections::HashMap;
use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gateway::control::Client;
use gateway::control::handover::{Handover, receive};
use gateway::tasks::Tasks;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use netpolicy::ids::NetworkId;
use tokio::net::{TcpStream, UnixListener, UnixStream};

/// Connections of one network at a time: a client has one, a curious program a few.
const MOST_CONNECTIONS: usize = 16;
/// A connection serves a question or two; one that lingers is ended.
const LONGEST_CONNECTION: Duration = Duration::from_mins(1);
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// Head and target are a few hundred bytes.
const LARGEST_HEAD: usize = 16 * 1024;

/// Serves broker connections until dropped.
pub async fn serve(listener: UnixListener, gateway: Client, tasks: Tasks) {
    let counts = Counts::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (gateway, counts) = (gateway.clone(), counts.clone());
                tasks.spawn("broker connection", async move {
                    serve_one(stream, &gateway, &counts).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a broker connection");
                // Out of descriptors, most likely: at full speed this loop would only burn a CPU.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Binds the broker's socket, which only root may connect to: the gateway.
pub fn listen(path: &Path) -> std::io::Result<UnixListener> {
    crate::api::bind_private(path)
}

async fn serve_one(stream: UnixStream, gateway: &Client, counts: &Counts) {
    let (whose, connection) = match trusted(stream).await {
        Ok(received) => received,
        Err(error) => {
            tracing::warn!(%error, "taking a broker connection over");
            return;
        }
    };
    let Some(_slot) = counts.take(&whose.network) else {
        return;
    };
    let answered =
        tokio::time::timeout(LONGEST_CONNECTION, answer(connection, &whose, gateway)).await;
    if let Ok(Err(error)) = answered {
        tracing::debug!(%error, network = %whose.network, "serving a sandbox");
    }
}

/// Only the gateway may say whose connection it is: root, or the user that this runner is.
async fn trusted(stream: UnixStream) -> std::io::Result<(Handover, OwnedFd)> {
    let peer = stream.peer_cred()?.uid();
    if peer != 0 && peer != nix::unistd::geteuid().as_raw() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::PermissionDenied,
            format!("uid {peer} is not the gateway"),
        ));
    }
    receive(stream).await
}

async fn answer(
    connection: OwnedFd,
    whose: &Handover,
    gateway: &Client,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let stream = std::net::TcpStream::from(connection);
    stream.set_nonblocking(true)?;
    let io = TokioIo::new(TcpStream::from_std(stream)?);
    let service = hyper::service::service_fn(|request| async move {
        Ok::<_, Infallible>(route(request, whose, gateway).await)
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(io, service)
        .await?;
    Ok(())
}

/// An answer for a sandbox.
type Answer = Response<Full<Bytes>>;

async fn route(request: Request<Incoming>, whose: &Handover, gateway: &Client) -> Answer {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/v1/health") => text(StatusCode::OK, "ok\n"),
        (&Method::GET, "/v1/net/explain") => {
            let accept = request
                .headers()
                .get(header::ACCEPT)
                .and_then(|v| v.to_str().ok())
                .unwrap_or_default();
            let form = if accept.contains("text/plain") {
                explain::Form::Text
            } else {
                explain::Form::Json
            };
            explain::answer(
                request.uri().query().unwrap_or_default(),
                form,
                &whose.network,
                gateway,
            )
            .await
        }
        (_, "/v1/health" | "/v1/net/explain") => text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n"),
        _ => text(StatusCode::NOT_FOUND, "no such thing; see `sally help`\n"),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    plain(status, "text/plain; charset=utf-8", body)
}

fn plain(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

/// Connections by network.
#[derive(Clone, Debug, Default)]
struct Counts(Arc<Mutex<HashMap<NetworkId, usize>>>);

/// One connection's place, given back on drop.
#[derive(Debug)]
struct Slot {
    counts: Counts,
    network: NetworkId,
}

impl Counts {
    fn take(&self, network: &NetworkId) -> Option<Slot> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(network.clone()).or_default();
        if *count >= MOST_CONNECTIONS {
            return None;
        }
        *count += 1;
        Some(Slot {
            counts: self.clone(),
            network: network.clone(),
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.network) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a sandbox gets back for these bytes.
    async fn said(request: &[u8]) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut sandbox = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let whose = Handover {
            network: "run-a".parse().unwrap(),
            run: None,
            source: "198.18.0.2:40000".parse().unwrap(),
        };
        let nobody = Client::new("/nonexistent/control.sock");
        let connection: OwnedFd = accepted.into_std().unwrap().into();
        let ask = async {
            sandbox.write_all(request).await.unwrap();
            let mut answer = Vec::new();
            // A reset after an oversized head is an answer, too.
            let _ = sandbox.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        };
        let (_, said) = tokio::join!(answer(connection, &whose, &nobody), ask);
        said
    }

    #[tokio::test]
    async fn only_known_questions_are_answered() {
        let ask = |line: &str| {
            format!("{line} HTTP/1.1\r\nhost: b\r\nconnection: close\r\n\r\n").into_bytes()
        };
        assert!(
            said(&ask("GET /v1/health"))
                .await
                .starts_with("HTTP/1.1 200 ")
        );
        assert!(
            said(&ask("POST /v1/health"))
                .await
                .starts_with("HTTP/1.1 405 ")
        );
        assert!(
            said(&ask("GET /v1/runs"))
                .await
                .starts_with("HTTP/1.1 404 ")
        );
        assert!(
            said(&ask("GET /v1/net/explain?dest="))
                .await
                .starts_with("HTTP/1.1 400 ")
        );
        assert!(
            said(&ask("GET /v1/net/explain?dest=a.example"))
                .await
                .starts_with("HTTP/1.1 502 ")
        );
    }

    #[tokio::test]
    async fn nonsense_and_oversized_heads_end_the_connection() {
        assert!(
            !said(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 200 ")
        );
        let large = format!(
            "GET /v1/health HTTP/1.1\r\nx: {}\r\n\r\n",
            "a".repeat(LARGEST_HEAD * 2)
        );
        assert!(!said(large.as_bytes()).await.starts_with("HTTP/1.1 200 "));
    }

    #[test]
    fn one_network_cannot_take_every_connection() {
        let counts = Counts::default();
        let (noisy, quiet) = ("run-a".parse().unwrap(), "run-b".parse().unwrap());
        let slots: Vec<_> = (0..MOST_CONNECTIONS)
            .map(|_| counts.take(&noisy).unwrap())
            .collect();
        assert!(counts.take(&noisy).is_none());
        assert!(counts.take(&quiet).is_some());
        drop(slots);
        assert!(counts.take(&noisy).is_some());
        assert!(counts.0.lock().unwrap().is_empty());
    }
}
