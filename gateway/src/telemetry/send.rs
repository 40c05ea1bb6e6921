//! One request to the collector: connect, post, read the status. Everything has a limit.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use netpolicy::name::{Authority, Host};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// For all of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer that is read: collectors say little.
const MOST_ANSWER: usize = 1 << 16;
/// Port of OTLP over HTTP.
const PORT: u16 = 4318;

/// Where the collector is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    host: String,
    port: u16,
    /// What stands before `/v1/...`, without a slash at its end.
    prefix: String,
}

/// Why a text is no endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EndpointError {
    /// Another scheme.
    #[error("the collector is named as http://HOST:PORT; for TLS let one on this machine forward")]
    Scheme,
    /// No host, or one with a user, query or fragment.
    #[error("no host and port, such as http://127.0.0.1:4318")]
    Host,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let rest = text.strip_prefix("http://").ok_or(EndpointError::Scheme)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains(['?', '#', ' ']) || !path.is_ascii() {
            return Err(EndpointError::Host);
        }
        let authority = Authority::parse(authority.as_bytes()).map_err(|_| EndpointError::Host)?;
        let path = path.trim_end_matches('/');
        Ok(Self {
            host: match authority.host {
                Host::Address(address) => address.to_string(),
                Host::Name(name) => name.to_string(),
            },
            port: authority.port.unwrap_or(PORT),
            prefix: if path.is_empty() {
                String::new()
            } else {
                format!("/{path}")
            },
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.prefix)
    }
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It was taken.
    Taken,
    /// It never will be: the collector does not want it.
    Refused(u16),
}

impl Endpoint {
    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Posts a JSON body; an error means that it should be tried again.
    pub async fn post(&self, path: &str, body: Bytes) -> io::Result<Sent> {
        let exchange = self.exchange(path, body);
        timeout(PATIENCE, exchange)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    async fn exchange(&self, path: &str, body: Bytes) -> io::Result<Sent> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let (mut sender, connection) = handshake::<_, Full<Bytes>>(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.prefix))
            .header(header::HOST, self.authority())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .body(Full::new(body))
            .map_err(io::Error::other)?;
        let answer = async {
            let response = sender
                .send_request(request)
                .await
                .map_err(io::Error::other)?;
            let status = response.status();
            // Read so that the collector can finish; a partial success is the collector's to explain.
            drop(
                Limited::new(response.into_body(), MOST_ANSWER)
                    .collect()
                    .await,
            );
            Ok::<_, io::Error>(status)
        };
        tokio::pin!(connection, answer);
        let mut over = false;
        let status = loop {
            tokio::select! {
                biased;
                status = &mut answer => break status?,
                ended = &mut connection, if !over => { ended.map_err(io::Error::other)?; over = true; }
            }
        };
        judge(status)
    }
}

fn judge(status: StatusCode) -> io::Result<Sent> {
    // What OTLP calls retryable.
    let again = [429, 502, 503, 504].contains(&status.as_u16()) || status.is_server_error();
    if status.is_success() {
        Ok(Sent::Taken)
    } else if again {
        Err(io::Error::other(format!("the collector answered {status}")))
    } else {
        Ok(Sent::Refused(status.as_u16()))
    }
}
