//! Accepts connections and serves HTTP/1.1 on them: bounded in number, of all and of one address, in the size of a head,
//! in the time for one, and in the time for which answers are not read.
//!
//! A connection from a sandbox is closed before a byte of it is read. Every other connection's requests carry
//! [`Peer`]. When the console stops, requests under way are answered and streams end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::address::Peer;
use super::app::App;
use super::held::Held;
use super::rate::Counted;
use super::sandbox::{self, Seen};
use super::tls::{self, Opened};

/// Connections at once; more wait to be accepted. A person's browser holds six.
const MOST: u32 = 2048;
/// Of one address, or one IPv6 network: many browsers, and no way to hold every place. Trusted proxies have all.
const MOST_OF_ONE: usize = 256;
/// A head is due within this time.
const HEAD: Duration = Duration::from_secs(10);
/// A head is at most this large: cookies and a long URL.
const HEAD_BYTES: usize = 32 << 10;
/// Who takes nothing of its answers for so long is cut off (tcp(7), `TCP_USER_TIMEOUT`).
const UNREAD_MS: u32 = 30_000;
/// When the console stops, requests under way have this long.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
/// After a failed accept, which is for want of descriptors.
const BACK_OFF: Duration = Duration::from_millis(50);

/// Who may connect.
#[derive(Clone)]
pub enum Door {
    /// People and programs, perhaps by TLS: every connection is looked at.
    People(Option<TlsAcceptor>),
    /// This machine's collectors, on loopback.
    Management,
}

/// Serves until the console stops.
pub async fn serve(listener: TcpListener, router: Router, app: App, door: Door) {
    let places = Arc::new(Semaphore::new(MOST as usize));
    let held = Held::default();
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let ip = peer.ip().to_canonical();
                let proxy = app
                    .config
                    .trusted_proxies
                    .iter()
                    .any(|net| net.contains(&ip));
                let hold = held.take(Counted::address(ip), MOST_OF_ONE);
                if hold.is_none() && !proxy {
                    continue;
                }
                let (router, looked, door) = (router.clone(), app.clone(), door.clone());
                app.tasks.spawn("connection", async move {
                    let _place = (place, hold);
                    connection(stream, peer, router, looked, door).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection");
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    }
    // every place is free when every connection has ended
    let ended = places.acquire_many(MOST);
    if tokio::time::timeout(LAST_ANSWERS, ended).await.is_err() {
        tracing::warn!("some requests were cut off by the end of the console");
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: Router, app: App, door: Door) {
    let Ok(local) = stream.local_addr() else {
        return;
    };
    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNREAD_MS) {
        tracing::debug!(%error, "limiting how long answers wait to be read");
    }
    let Door::People(secure) = door else {
        return answer(stream, peer, router, &app).await;
    };
    if sandbox::look(&app.config.gateway, local, peer).await == Seen::Sandbox {
        app.metrics.from_sandboxes.inc();
        tracing::warn!(source.addr = %peer, "a connection from a sandbox was refused");
        return;
    }
    let opened = tokio::select! {
        opened = tls::open(secure.as_ref(), stream, peer, local) => opened,
        () = app.stop.cancelled() => return,
    };
    match opened {
        Ok(Opened::Plain(stream)) => answer(stream, peer, router, &app).await,
        Ok(Opened::Secure(stream)) => answer(stream, peer, router, &app).await,
        Err(error) => tracing::debug!(%error, source.addr = %peer, "a connection"),
    }
}

/// Answers requests until the connection ends.
async fn answer<S>(stream: S, peer: SocketAddr, router: Router, app: &App)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Peer(peer));
            Ok::<_, Infallible>(
                router
                    .oneshot(request)
                    .await
                    .unwrap_or_else(|never| match never {}),
            )
        }
    });
    let mut served = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_headers(100)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = tokio::select! {
        ended = &mut served => ended,
        () = app.stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}
