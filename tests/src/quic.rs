//! A QUIC server and client (quinn), each on a runtime of its own inside the namespace of whoever runs it.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};

use crate::log::Log;
use crate::namespace::Namespace;
use crate::origin::secure_config;
use crate::tls::Authority;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime")
}

/// Serves an address until the process ends: logs the server name of each handshake and echoes one stream of each
/// connection.
pub fn serve(namespace: &Namespace, at: SocketAddr, authority: &Authority) -> Log<Option<String>> {
    let names: Log<Option<String>> = Log::default();
    let tls = secure_config(authority, &names, b"h3");
    let crypto = QuicServerConfig::try_from(tls).expect("a configuration with TLS 1.3");
    let config = ServerConfig::with_crypto(Arc::new(crypto));
    let socket = namespace.run(|| UdpSocket::bind(at).expect("the QUIC origin's port"));
    namespace.spawn(move || {
        runtime().block_on(async move {
            let options = EndpointConfig::default();
            let endpoint = Endpoint::new(options, Some(config), socket, Arc::new(TokioRuntime))
                .expect("endpoint");
            while let Some(incoming) = endpoint.accept().await {
                let serving = async move {
                    let Ok(connection) = incoming.await else {
                        return;
                    };
                    if let Ok((mut send, mut receive)) = connection.accept_bi().await
                        && let Ok(bytes) = receive.read_to_end(1 << 20).await
                    {
                        let _ = send.write_all(&bytes).await;
                        let _ = send.finish();
                    }
                    connection.closed().await;
                };
                #[expect(clippy::disallowed_methods, reason = "a server of the lab")]
                drop(tokio::spawn(serving));
            }
        });
    });
    names
}

/// Connects with a server name, sends bytes on a stream and reads them back; how it failed otherwise.
pub fn echo(
    to: SocketAddr,
    name: &str,
    authority: &Authority,
    bytes: &[u8],
) -> Result<Vec<u8>, String> {
    let mut tls = (*authority.client()).clone();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = QuicClientConfig::try_from(tls).map_err(|e| e.to_string())?;
    runtime().block_on(async {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let endpoint =
            Endpoint::client(any.parse().expect("literal")).map_err(|e| e.to_string())?;
        let exchange = async {
            let config = ClientConfig::new(Arc::new(crypto));
            let connecting = endpoint
                .connect_with(config, to, name)
                .map_err(|e| e.to_string())?;
            let connection = connecting.await.map_err(|e| e.to_string())?;
            let (mut send, mut receive) = connection.open_bi().await.map_err(|e| e.to_string())?;
            send.write_all(bytes).await.map_err(|e| e.to_string())?;
            send.finish().map_err(|e| e.to_string())?;
            let echoed = receive
                .read_to_end(1 << 20)
                .await
                .map_err(|e| e.to_string())?;
            connection.close(0_u32.into(), b"done");
            Ok(echoed)
        };
        tokio::time::timeout(Duration::from_secs(3), exchange)
            .await
            .map_err(|_| "no answer".to_owned())?
    })
}
