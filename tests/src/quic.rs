//! A QUIC server and client (quinn), each on a runtime of its own inside the namespace of whoever runs it.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::ServerName;
use rustls::quic::Version;

use crate::log::Log;
use crate::namespace::Namespace;
use crate::origin::secure_config;
use crate::pace::Pace;
use crate::tls::Authority;

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime")
}

/// Serves an address until the process ends: logs the server name of each handshake and echoes one stream of each
/// connection.
pub fn serve(namespace: &Namespace, at: SocketAddr, authority: &Authority) -> Log<Option<String>> {
    accept(namespace, at, authority, |connection| async move {
        if let Ok((mut send, mut receive)) = connection.accept_bi().await
            && let Ok(bytes) = receive.read_to_end(1 << 20).await
        {
            let _ = send.write_all(&bytes).await;
            let _ = send.finish();
        }
        connection.closed().await;
    })
}

/// Accepts connections at an address until the process ends and has each served; logs the server name of each handshake.
pub(crate) fn accept<F: Future<Output = ()> + Send + 'static>(
    namespace: &Namespace,
    at: SocketAddr,
    authority: &Authority,
    serve: impl Fn(Connection) -> F + Clone + Send + 'static,
) -> Log<Option<String>> {
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
                let serve = serve.clone();
                let serving = async move {
                    if let Ok(connection) = incoming.await {
                        serve(connection).await;
                    }
                };
                #[expect(clippy::disallowed_methods, reason = "a server of the lab")]
                drop(tokio::spawn(serving));
            }
        });
    });
    names
}

/// An endpoint of a client and what it connects with. Needs the runtime's context.
pub(crate) fn client(
    to: SocketAddr,
    authority: &Authority,
) -> Result<(Endpoint, ClientConfig), String> {
    let mut tls = (*authority.client()).clone();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = QuicClientConfig::try_from(tls).map_err(|e| e.to_string())?;
    let endpoint = Endpoint::client(any(to)).map_err(|e| e.to_string())?;
    Ok((endpoint, ClientConfig::new(Arc::new(crypto))))
}

/// Any port, in the family of an address.
fn any(to: SocketAddr) -> SocketAddr {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    any.parse().expect("literal")
}

/// Connects with a server name, sends bytes on a stream and reads them back; how it failed otherwise.
pub fn echo(
    to: SocketAddr,
    name: &str,
    authority: &Authority,
    bytes: &[u8],
) -> Result<Vec<u8>, String> {
    in_two_halves(to, name, authority, (bytes, b""), || Port::Same)
}

/// Where a client goes on from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Port {
    /// Where it began.
    Same,
    /// Another port, as behind a translator that forgot the first (RFC 9000 9).
    Another,
}

/// The same, with something that happens between two halves.
pub fn in_two_halves(
    to: SocketAddr,
    name: &str,
    authority: &Authority,
    (first, second): (&[u8], &[u8]),
    between: impl FnOnce() -> Port,
) -> Result<Vec<u8>, String> {
    runtime().block_on(async {
        let (endpoint, config) = client(to, authority)?;
        let begin = async {
            let connecting = endpoint
                .connect_with(config, to, name)
                .map_err(|e| e.to_string())?;
            let connection = connecting.await.map_err(|e| e.to_string())?;
            let (mut send, receive) = connection.open_bi().await.map_err(|e| e.to_string())?;
            send.write_all(first).await.map_err(|e| e.to_string())?;
            Ok::<_, String>((connection, send, receive))
        };
        let (connection, mut send, mut receive) = in_time(begin).await?;
        if between() == Port::Another {
            let socket = UdpSocket::bind(any(to)).map_err(|e| e.to_string())?;
            endpoint.rebind(socket).map_err(|e| e.to_string())?;
        }
        let exchange = async {
            send.write_all(second).await.map_err(|e| e.to_string())?;
            send.finish().map_err(|e| e.to_string())?;
            let echoed = receive
                .read_to_end(1 << 20)
                .await
                .map_err(|e| e.to_string())?;
            connection.close(0_u32.into(), b"done");
            Ok(echoed)
        };
        in_time(exchange).await
    })
}

pub(crate) async fn in_time<T>(what: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let (pace, began) = (Pace::watch(), Instant::now());
    let over = async {
        while began.elapsed() < pace.stretches(Duration::from_secs(3)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        done = what => done,
        () = over => Err("no answer".to_owned()),
    }
}

/// What a packet of every path carries of a datagram: a larger one is cut, and pieces leave no sandbox.
const MOST: usize = 1400;

/// The hello of a client that asks for this name, cut into Initial packets of this handshake at these places; each a
/// datagram of its own that fits a packet. As a sandbox would make them that wants something else than a connection.
pub fn initials(authority: &Authority, name: &str, id: [u8; 8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut tls = authority.small_client();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let name = ServerName::try_from(name.to_owned()).expect("a server name");
    // the only parameter that servers insist on: initial_source_connection_id (RFC 9000 18.2)
    let parameters = [&[0x0f, 8][..], &id].concat();
    let mut connection =
        rustls::quic::ClientConnection::new(Arc::new(tls), Version::V1, name, parameters)
            .expect("a client");
    let mut hello = Vec::new();
    connection.write_hs(&mut hello);
    let ends = cuts.iter().copied().chain([hello.len()]);
    let mut begin = 0;
    let mut packets = Vec::new();
    for (number, end) in ends.enumerate() {
        let mut frames = vec![6];
        frames.extend(varint(begin));
        frames.extend(varint(end - begin));
        frames.extend(&hello[begin..end]);
        let packet = seal(id, u8::try_from(number).expect("few"), frames);
        assert!(packet.len() <= MOST, "a hello of {} octets", hello.len());
        packets.push(packet);
        begin = end;
    }
    packets
}

fn varint(value: usize) -> [u8; 4] {
    (u32::try_from(value).expect("short") | 0x8000_0000).to_be_bytes()
}

/// One Initial packet of version 1 in a datagram that servers take (RFC 9000 14.1).
fn seal(id: [u8; 8], number: u8, mut frames: Vec<u8>) -> Vec<u8> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13();
    let suite = suite.and_then(rustls::Tls13CipherSuite::quic_suite);
    let keys = suite
        .expect("a QUIC suite")
        .keys(&id, Side::Client, Version::V1);
    let keys = keys.local;
    frames.resize(frames.len().max(1200), 0);
    let mut packet = vec![0xc0];
    packet.extend(1_u32.to_be_bytes());
    packet.push(8);
    packet.extend(id);
    packet.push(8);
    packet.extend(id);
    packet.push(0);
    packet.extend(varint(frames.len() + 1 + 16));
    let at = packet.len();
    packet.push(number);
    let tag = keys
        .packet
        .encrypt_in_place(number.into(), &packet, &mut frames);
    packet.extend(&frames);
    packet.extend(tag.expect("sealing").as_ref());
    let sample = packet[at + 4..at + 20].to_vec();
    let (head, tail) = packet.split_at_mut(at);
    let masked = keys
        .header
        .encrypt_in_place(&sample, &mut head[0], &mut tail[..1]);
    masked.expect("protection");
    packet
}
