//! An HTTP/3 server and client (RFC 9114), as browsers and curl speak it: over QUIC, see [`crate::quic`].

use std::future::poll_fn;
use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use http::{Request, Response};

use crate::log::Log;
use crate::namespace::Namespace;
use crate::quic::{accept, client, in_time, runtime};
use crate::tls::Authority;

/// What an HTTP/3 origin got.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// Server names of the handshakes.
    pub names: Log<Option<String>>,
    /// Authority and path of the requests.
    pub requests: Log<String>,
}

/// Serves an address until the process ends; answers a request with its body behind what was asked.
pub fn serve(namespace: &Namespace, at: SocketAddr, authority: &Authority) -> Origin {
    let requests: Log<String> = Log::default();
    let log = requests.clone();
    let names = accept(namespace, at, authority, move |connection| {
        let log = log.clone();
        async move {
            let _ = answer(connection.clone(), log).await;
            connection.closed().await;
        }
    });
    Origin { names, requests }
}

async fn answer(connection: quinn::Connection, log: Log<String>) -> Result<(), String> {
    let connection = h3_quinn::Connection::new(connection);
    let mut all = h3::server::Connection::<_, Bytes>::new(connection)
        .await
        .map_err(|e| e.to_string())?;
    while let Some(next) = all.accept().await.map_err(|e| e.to_string())? {
        let (request, mut stream) = next.resolve_request().await.map_err(|e| e.to_string())?;
        let uri = request.uri();
        let host = uri.authority().map(ToString::to_string);
        let asked = format!("{}{}", host.unwrap_or_default(), uri.path());
        log.push(asked.clone());
        let mut body = format!("you asked {asked}\n").into_bytes();
        while let Some(mut piece) = stream.recv_data().await.map_err(|e| e.to_string())? {
            body.extend(piece.copy_to_bytes(piece.remaining()));
        }
        let answered = async {
            stream.send_response(Response::new(())).await?;
            stream.send_data(body.into()).await?;
            stream.finish().await
        };
        answered.await.map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Posts a body by HTTP/3; the body of the answer, or how it failed.
pub fn post(
    to: SocketAddr,
    name: &str,
    authority: &Authority,
    body: &[u8],
) -> Result<Vec<u8>, String> {
    let body = Bytes::copy_from_slice(body);
    runtime().block_on(in_time(async {
        let (endpoint, config) = client(to, authority)?;
        let connecting = endpoint.connect_with(config, to, name);
        let connection = connecting.map_err(|e| e.to_string())?.await;
        let connection = connection.map_err(|e| e.to_string())?;
        let (mut driver, mut sender) = h3::client::new(h3_quinn::Connection::new(connection))
            .await
            .map_err(|e| e.to_string())?;
        let exchange = async {
            let request = Request::post(format!("https://{name}/salute"))
                .body(())
                .expect("a request");
            let mut stream = sender.send_request(request).await?;
            stream.send_data(body).await?;
            stream.finish().await?;
            let head = stream.recv_response().await?;
            let mut all = head.status().to_string().into_bytes();
            while let Some(mut piece) = stream.recv_data().await? {
                all.extend(piece.copy_to_bytes(piece.remaining()));
            }
            Ok::<_, h3::error::StreamError>(all)
        };
        tokio::select! {
            answer = exchange => answer.map_err(|e| e.to_string()),
            over = poll_fn(|cx| driver.poll_close(cx)) => Err(over.to_string()),
        }
    }))
}
