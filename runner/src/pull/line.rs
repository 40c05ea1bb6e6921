//! One connection to a console, made again when it breaks: requests one after the other, each with its answer.
//!
//! Owns the address, the token and what answers mean. Refuses to own when to ask again: a request that has no answer may
//! or may not have been heard, and every one of the protocol may be said twice.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway::tasks::Tasks;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::protocol::SESSION;

/// Longer than the console lets a claim wait.
const PATIENCE: Duration = Duration::from_secs(40);
/// A run with a large input.
const LARGEST: usize = 16 << 20;

/// Where a console is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    secure: bool,
    host: String,
    port: u16,
}

impl Address {
    /// From `https://HOST[:PORT]` or `http://HOST[:PORT]`.
    pub fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let secure = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let origin = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let authority = uri
            .authority()
            .filter(|a| origin && !a.as_str().contains('@'))?;
        Some(Self {
            secure,
            host: authority.host().to_owned(),
            port: authority
                .port_u16()
                .unwrap_or(if secure { 443 } else { 80 }),
        })
    }

    /// Whether it is spoken to by TLS.
    pub const fn is_secure(&self) -> bool {
        self.secure
    }

    /// Whether nobody can be in between: it is this machine.
    pub fn is_near(&self) -> bool {
        let ip = self.bare().parse::<IpAddr>();
        self.host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }

    /// The host without brackets.
    fn bare(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Who asks.
#[derive(Clone)]
pub struct Identity {
    /// The token.
    pub token: String,
    /// The name of this process.
    pub session: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(a runner's token)")
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The console is not there, or went away in the middle.
    #[error("asking the console: {0}")]
    Away(String),
    /// The run is not this runner's any more.
    #[error("the run is not this runner's any more")]
    Stale,
    /// Another process is this runner now.
    #[error("another process with the same token is this runner now")]
    Superseded,
    /// The token is not known any more.
    #[error("the console does not know this runner's token")]
    Unknown,
    /// Anything else that was refused.
    #[error("the console refused: {status} {detail}")]
    Refused {
        /// The status.
        status: u16,
        /// What it says.
        detail: String,
    },
}

/// A connection.
pub struct Line {
    address: Address,
    trust: Option<Arc<ClientConfig>>,
    identity: Identity,
    tasks: Tasks,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Line {
    /// None yet. `trust`: whom to believe where the address is one of TLS.
    pub const fn new(
        address: Address,
        trust: Option<Arc<ClientConfig>>,
        identity: Identity,
        tasks: Tasks,
    ) -> Self {
        Self {
            address,
            trust,
            identity,
            tasks,
            sender: None,
        }
    }

    /// Asks, and waits for the answer; `None`: it is empty.
    pub async fn ask<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Option<T>, AskError> {
        let body = serde_json::to_vec(body).map_err(|e| AskError::Away(e.to_string()))?;
        // taken: a request that is dropped in the middle leaves nobody a connection with half an answer on it
        let asked = timeout(PATIENCE, async {
            let mut sender = self.connected().await?;
            let answer = self.exchange(&mut sender, path, body.into()).await?;
            Ok::<_, AskError>((sender, answer))
        });
        let (sender, (status, answer)) = asked
            .await
            .map_err(|_| AskError::Away("no answer".to_owned()))??;
        self.sender = Some(sender);
        read(status, &answer)
    }

    async fn connected(&mut self) -> Result<SendRequest<Full<Bytes>>, AskError> {
        if let Some(mut sender) = self.sender.take()
            && sender.ready().await.is_ok()
        {
            return Ok(sender);
        }
        let away = |error: &dyn fmt::Display| AskError::Away(error.to_string());
        let host = self.address.bare();
        let stream = TcpStream::connect((host, self.address.port))
            .await
            .map_err(|e| away(&e))?;
        if !self.address.secure {
            return self.speak(stream).await;
        }
        let trust = self.trust.clone();
        let trust = trust.ok_or_else(|| away(&"no certificate authorities"))?;
        let name = ServerName::try_from(host.to_owned()).map_err(|e| away(&e))?;
        let secured = TlsConnector::from(trust).connect(name, stream).await;
        self.speak(secured.map_err(|e| away(&e))?).await
    }

    async fn speak<S>(&self, stream: S) -> Result<SendRequest<Full<Bytes>>, AskError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|e| AskError::Away(e.to_string()))?;
        self.tasks.spawn("console connection", async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the console ended");
            }
        });
        Ok(sender)
    }

    async fn exchange(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), AskError> {
        let away = |error: &dyn fmt::Display| AskError::Away(error.to_string());
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, self.address.authority())
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::AUTHORIZATION,
                format!("Bearer {}", self.identity.token),
            )
            .header(SESSION, &self.identity.session)
            .body(Full::new(body))
            .map_err(|e| away(&e))?;
        let response = sender.send_request(request).await.map_err(|e| away(&e))?;
        let status = response.status();
        let answer = Limited::new(response.into_body(), LARGEST)
            .collect()
            .await
            .map_err(|e| away(&e))?;
        Ok((status, answer.to_bytes()))
    }
}

fn read<T: DeserializeOwned>(status: StatusCode, answer: &[u8]) -> Result<Option<T>, AskError> {
    if status.is_success() {
        if answer.is_empty() {
            return Ok(None);
        }
        let read = serde_json::from_slice(answer).map(Some);
        return read.map_err(|error| AskError::Away(format!("reading the answer: {error}")));
    }
    let problem: serde_json::Value = serde_json::from_slice(answer).unwrap_or_default();
    let text = |key: &str| {
        problem
            .get(key)
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Err(match (status.as_u16(), text("code").as_str()) {
        (410, _) => AskError::Stale,
        (409, "superseded") => AskError::Superseded,
        (401, _) => AskError::Unknown,
        // it is there and cannot answer now
        (429 | 500..=599, _) => AskError::Away(format!("{status} {}", text("detail"))),
        _ => AskError::Refused {
            status: status.as_u16(),
            detail: text("detail"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_origin_and_nothing_more() {
        let fine = Address::parse("http://127.0.0.1:8420").unwrap();
        assert_eq!(fine.authority(), "127.0.0.1:8420");
        assert_eq!(
            Address::parse("http://[::1]:8420/").unwrap().authority(),
            "[::1]:8420"
        );
        let secure = Address::parse("https://x.example").unwrap();
        assert_eq!(secure.authority(), "x.example:443");
        assert!(secure.is_secure() && !secure.is_near());
        for near in ["http://localhost:1", "http://127.0.0.9", "http://[::1]:2"] {
            assert!(Address::parse(near).unwrap().is_near(), "{near}");
        }
        for far in [
            "http://localhost.example",
            "http://10.0.0.1",
            "http://127.0.0.1.x",
        ] {
            assert!(!Address::parse(far).unwrap().is_near(), "{far}");
        }
        for bad in [
            "",
            "127.0.0.1:8420",
            "ftp://x.example",
            "http://x/y",
            "http://a@b",
            "http://x?y",
            "unix:///x",
        ] {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
    }
}
