//! The management listener: `GET /metrics` on a loopback address or a Unix socket, for this machine's collectors.
//!
//! It lives in the uplink namespace, where no sandbox has a socket; loopback is never dialled for one, and the port is
//! among Sallyport's own that the floor closes on every host address. Bounded: few connections, short heads, no bodies.
//! A browser that a page sent here names another host than loopback and gets nothing.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use super::Scrape;
use crate::config::Management;
use crate::tasks::Tasks;

/// Collectors are few; more than this wait.
const MOST: usize = 16;
/// A head is due within this time.
const HEAD: Duration = Duration::from_secs(5);
/// A collector that takes longer for all of its visit is cut off.
const VISIT: Duration = Duration::from_secs(30);
/// After a failed accept.
const BACK_OFF: Duration = Duration::from_millis(50);
/// What OpenMetrics calls its text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A bound listener.
#[derive(Debug)]
pub enum Listener {
    /// A loopback address.
    Tcp(TcpListener),
    /// A socket that only root can connect to.
    Unix(UnixListener),
}

/// Binds it. Needs the runtime's context.
pub fn bind(to: &Management) -> io::Result<Listener> {
    match to {
        Management::Address(address) => {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener).map(Listener::Tcp)
        }
        Management::Socket(path) => {
            match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path)?;
                }
                // Whatever else stands there, binding says what is wrong with it.
                Err(_) => {}
            }
            let listener = UnixListener::bind(path)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
            Ok(Listener::Unix(listener))
        }
    }
}

/// Answers until the gateway stops.
pub async fn serve(listener: Listener, scrape: Arc<Scrape>, tasks: Tasks) {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let scrape = scrape.clone();
        let accepted = match &listener {
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                tasks.spawn("metrics", async move {
                    let _place = place;
                    visit(TokioIo::new(stream), scrape).await;
                });
            }),
            Listener::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                tasks.spawn("metrics", async move {
                    let _place = place;
                    visit(TokioIo::new(stream), scrape).await;
                });
            }),
        };
        if let Err(error) = accepted {
            tracing::warn!(%error, "accepting a collector");
            tokio::time::sleep(BACK_OFF).await;
        }
    }
}

async fn visit<S: AsyncRead + AsyncWrite + Unpin>(stream: TokioIo<S>, scrape: Arc<Scrape>) {
    let service = service_fn(move |request| answer(scrape.clone(), request));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_headers(64)
        .serve_connection(stream, service);
    if let Ok(Err(error)) = tokio::time::timeout(VISIT, served).await {
        tracing::debug!(%error, "a collector's connection ended");
    }
}

async fn answer(
    scrape: Arc<Scrape>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, kind, body) = if !names_loopback(&request) {
        (
            StatusCode::FORBIDDEN,
            "text/plain",
            "ask by a loopback address\n".to_owned(),
        )
    } else if request.uri().path() != "/metrics" {
        (
            StatusCode::NOT_FOUND,
            "text/plain",
            "there is /metrics\n".to_owned(),
        )
    } else if request.method() != Method::GET {
        (
            StatusCode::METHOD_NOT_ALLOWED,
            "text/plain",
            "GET only\n".to_owned(),
        )
    } else {
        match tokio::task::spawn_blocking(move || scrape.text()).await {
            Ok(text) => (StatusCode::OK, OPEN_METRICS, text),
            Err(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "text/plain",
                "\n".to_owned(),
            ),
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    Ok(response)
}

/// Whether the request names this machine, or nobody: a rebound name is another one.
fn names_loopback(request: &Request<Incoming>) -> bool {
    let Some(host) = request.headers().get(header::HOST) else {
        return true;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost"
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}
