//! A client whose names are the test's own, and servers that tell what they were asked.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::Outbound;
use crate::settings::{Allowed, OutboundSettings};

/// Settings that let a test's servers be called.
pub fn local() -> OutboundSettings {
    OutboundSettings {
        allowed: vec![Allowed::Net("127.0.0.1/32".parse().unwrap())],
        ..OutboundSettings::default()
    }
}

impl Outbound {
    /// Whose resolver gives these answers one after the other, and the last one for ever.
    #[must_use]
    pub(crate) fn resolving(mut self, answers: &[&[&str]]) -> Self {
        let parse = |answer: &&[&str]| -> Vec<IpAddr> {
            answer.iter().map(|text| text.parse().unwrap()).collect()
        };
        let answers: VecDeque<Vec<IpAddr>> = answers.iter().map(parse).collect();
        let answers = Arc::new(Mutex::new(answers));
        self.resolve = Arc::new(move |_| {
            let mut left = answers.lock().unwrap();
            let answer = if left.len() > 1 {
                left.pop_front()
            } else {
                left.front().cloned()
            };
            Box::pin(async move { Ok(answer.unwrap_or_default()) })
        });
        self
    }
}

/// A server that gives one answer to everybody.
pub struct Origin {
    /// Where.
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    /// That answers with these bytes.
    pub async fn answering(answer: Vec<u8>) -> Self {
        Self::serving(answer, None).await
    }

    /// The same behind TLS, with a certificate for a name; and the authority that made it.
    pub async fn with_tls(name: &str, answer: Vec<u8>) -> (Self, String) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        (Self::serving(answer, Some(acceptor)).await, made.cert.pem())
    }

    async fn serving(answer: Vec<u8>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let told = asked.clone();
        gateway::tasks::Tasks::default().spawn("origin", async move {
            while let Ok((stream, _)) = listener.accept().await {
                match &tls {
                    None => serve(stream, &answer, &told).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            serve(stream, &answer, &told).await;
                        }
                    }
                }
            }
        });
        Self { address, asked }
    }

    /// What it was asked, as it came.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    answer: &[u8],
    told: &Mutex<Vec<String>>,
) {
    let mut request = Vec::new();
    while !whole(&request) && stream.read_buf(&mut request).await.is_ok_and(|n| n > 0) {}
    let text = String::from_utf8_lossy(&request).into_owned();
    told.lock().unwrap().push(text);
    stream.write_all(answer).await.ok();
    stream.shutdown().await.ok();
}

/// Whether head and body have come.
fn whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    length
        .and_then(|length| length.parse().ok())
        .is_none_or(|length: usize| body.len() >= length)
}

/// A plain answer.
pub fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .into_bytes()
}
