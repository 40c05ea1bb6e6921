//! The HTTP client: one connection for each call, TLS checked for the console's name, answers bounded in size and time.
//!
//! A redirect is an error: what was meant for one console goes to no other. What answers something else than a console
//! would is told so, with nothing of it but a line.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::console::settings::{AppUrl, Scheme};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::call::{Answer, Call, CallError, told};
use super::secret::{Token, is_loopback};
use super::{cell, text};
use crate::exit::Failure;

/// One address that is dialled, and the TLS handshake with it.
const DIALLING: Duration = Duration::from_secs(10);
/// Until an answer begins; a console gives its handlers 30 seconds.
const BEGINNING: Duration = Duration::from_secs(35);
/// Until a whole answer is there.
const WHOLE: Duration = Duration::from_mins(1);
/// The largest answer is a megabyte of output in base64, or a page of 200 jobs with long policies.
const LARGEST: usize = 64 << 20;
/// A head that is longer is no answer.
const HEAD: usize = 32 << 10;
/// More addresses of one name are not tried.
const MOST_ADDRESSES: usize = 4;

/// Speaks to one console.
pub struct Client {
    url: AppUrl,
    tls: Arc<ClientConfig>,
    token: Option<Token>,
}

/// A byte stream to a console.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Connection = http1::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>;

/// An answer that is read as it comes.
pub struct Wire {
    status: StatusCode,
    /// What `Retry-After` says, in seconds.
    after: Option<Duration>,
    body: Incoming,
    connection: Pin<Box<Connection>>,
    over: bool,
}

impl Wire {
    /// The next bytes; `None`: the answer is at its end.
    pub async fn next(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            tokio::select! {
                biased;
                frame = self.body.frame() => match frame? {
                    Ok(frame) => if let Ok(data) = frame.into_data() { return Some(Ok(data)) },
                    Err(error) => return Some(Err(error)),
                },
                _ = &mut self.connection, if !self.over => self.over = true,
            }
        }
    }
}

/// What `Retry-After` says in seconds; consoles give no dates.
fn after(headers: &http::HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

impl Client {
    /// A client of the console at this address.
    pub fn new(url: AppUrl, ca_file: Option<&Path>, token: Option<Token>) -> Result<Self, Failure> {
        let mut roots = RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        if let Some(path) = ca_file {
            let wrong = |error: &dyn std::fmt::Display| {
                Failure::new(format!(
                    "reading authorities of {}: {error}",
                    path.display()
                ))
            };
            let pem = fs::read(path).map_err(|error| wrong(&error))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::from_error(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            url,
            tls: Arc::new(tls),
            token,
        })
    }

    /// The console's origin.
    pub fn origin(&self) -> String {
        self.url.origin()
    }

    /// A read.
    pub async fn get(&self, path: &str) -> Result<Answer, CallError> {
        self.call(Call::new(Method::GET, path)).await
    }

    /// A call and its whole answer.
    pub async fn call(&self, call: Call<'_>) -> Result<Answer, CallError> {
        let whole = async {
            let mut wire = self.send(&call, None).await?;
            let mut bytes = Vec::new();
            while let Some(piece) = wire.next().await {
                let piece = piece.map_err(|error| self.broken(&error))?;
                if bytes.len() + piece.len() > LARGEST {
                    return Err(self.odd("an answer that is too large"));
                }
                bytes.extend_from_slice(&piece);
            }
            self.judge(&wire, &bytes)
        };
        timeout(WHOLE, whole)
            .await
            .unwrap_or_else(|_| Err(self.slow()))
    }

    /// A stream of events, after the last one that was seen.
    pub async fn stream(&self, path: &str, after: Option<&str>) -> Result<Wire, CallError> {
        let mut wire = self
            .send(
                &Call::new(Method::GET, path),
                Some(after.unwrap_or_default()),
            )
            .await?;
        if wire.status.is_success() {
            return Ok(wire);
        }
        let mut bytes = Vec::new();
        while let Ok(Some(Ok(piece))) = timeout(BEGINNING, wire.next()).await {
            bytes.extend_from_slice(&piece);
            if bytes.len() > HEAD {
                break;
            }
        }
        Err(self
            .judge(&wire, &bytes)
            .err()
            .unwrap_or_else(|| self.odd("no events")))
    }

    /// Sends a request; comes back when its answer begins. `events`: the last one seen of a stream.
    async fn send(&self, call: &Call<'_>, events: Option<&str>) -> Result<Wire, CallError> {
        let request = self.request(call, events)?;
        let stream = self.connect().await?;
        let sending = async {
            let (mut sender, connection) = http1::Builder::new()
                .max_buf_size(HEAD)
                .handshake(TokioIo::new(stream))
                .await?;
            let mut connection = Box::pin(connection);
            let mut over = false;
            let answer = sender.send_request(request);
            tokio::pin!(answer);
            loop {
                tokio::select! {
                    biased;
                    answer = &mut answer => {
                        let (parts, body) = answer?.into_parts();
                        let (status, after) = (parts.status, after(&parts.headers));
                        return Ok::<_, hyper::Error>((parts, Wire { status, after, body, connection, over }));
                    }
                    _ = &mut connection, if !over => over = true,
                }
            }
        };
        let (parts, wire) = timeout(BEGINNING, sending)
            .await
            .map_err(|_| self.slow())?
            .map_err(|error| self.broken(&error))?;
        if parts.status.is_redirection() {
            let to = parts
                .headers
                .get(header::LOCATION)
                .and_then(|to| to.to_str().ok());
            return Err(self.redirected(to.unwrap_or("somewhere else")));
        }
        let kind = parts
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        if events.is_some() && parts.status.is_success() && !kind.starts_with("text/event-stream") {
            return Err(self.odd("no stream of events"));
        }
        Ok(wire)
    }

    fn request(
        &self,
        call: &Call<'_>,
        events: Option<&str>,
    ) -> Result<Request<Full<Bytes>>, CallError> {
        let wrong = |_: http::Error| self.odd("something that no request can be made of");
        let bytes = call.body.map(|body| Bytes::from(body.to_string()));
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(call.path)
            .header(header::HOST, self.authority())
            .header(
                header::USER_AGENT,
                concat!("sallyport/", env!("CARGO_PKG_VERSION")),
            )
            .header(
                header::ACCEPT,
                if events.is_some() {
                    "text/event-stream"
                } else {
                    "application/json"
                },
            );
        if let Some(token) = &self.token {
            let value = format!("Bearer {}", token.reveal());
            let mut value = HeaderValue::from_str(&value).map_err(|error| wrong(error.into()))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        if bytes.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(version) = call.version {
            request = request.header(header::IF_MATCH, format!("\"{version}\""));
        }
        if let Some(last) = events.filter(|last| !last.is_empty()) {
            request = request.header("last-event-id", last);
        }
        request
            .body(Full::new(bytes.unwrap_or_default()))
            .map_err(wrong)
    }

    /// As a `Host` header has it.
    fn authority(&self) -> String {
        let origin = self.url.origin();
        origin
            .split_once("://")
            .map_or_else(String::new, |(_, rest)| rest.to_owned())
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, CallError> {
        let bare = self
            .url
            .host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let looking = tokio::net::lookup_host((bare.clone(), self.url.port));
        let found = timeout(DIALLING, looking).await.map_err(|_| self.slow())?;
        let found = found.map_err(|error| self.away(&error))?;
        // a name of this machine leads nowhere else, whatever a resolver says
        let near = is_loopback(&self.url.host);
        let addresses = found.filter(|address: &SocketAddr| !near || address.ip().is_loopback());
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses.take(MOST_ADDRESSES) {
            match timeout(DIALLING, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return self.secured(stream, &bare).await,
                Ok(Err(error)) => failed = error,
                Err(_) => failed = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(self.away(&failed))
    }

    async fn secured(&self, stream: TcpStream, name: &str) -> Result<Box<dyn Stream>, CallError> {
        if self.url.scheme == Scheme::Http {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| self.odd("a name that no certificate has"))?;
        let connecting = TlsConnector::from(self.tls.clone()).connect(name, stream);
        match timeout(DIALLING, connecting).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(CallError::Away(
                Failure::new(format!("{} is not trusted: {error}", self.origin()))
                    .hint("--ca-file FILE names the authority that made its certificate"),
            )),
            Err(_) => Err(self.slow()),
        }
    }

    /// An answer's meaning.
    fn judge(&self, wire: &Wire, bytes: &[u8]) -> Result<Answer, CallError> {
        let status = wire.status;
        if status == StatusCode::NO_CONTENT {
            return Ok(Answer {
                body: Value::Null,
                bytes: 0,
            });
        }
        let parsed = serde_json::from_slice::<Value>(bytes);
        match (status.is_success(), parsed) {
            (true, Ok(body)) => Ok(Answer {
                body,
                bytes: bytes.len(),
            }),
            (true, Err(_)) => Err(self.odd("no JSON")),
            (false, Ok(problem)) if problem.get("code").is_some() => Err(CallError::Refused {
                status,
                code: text(&problem, "code"),
                failure: told(&problem),
                after: wire.after,
            }),
            (false, _) => Err(self.odd(&format!("{} and no reason", status.as_u16()))),
        }
    }

    fn away(&self, error: &dyn std::error::Error) -> CallError {
        CallError::Away(
            Failure::new(format!("nobody answers at {}: {error}", self.origin()))
                .hint("is it running? `sallyport up` starts a console of this machine"),
        )
    }

    fn broken(&self, error: &hyper::Error) -> CallError {
        let failure = Failure::from_error(error);
        let failure = Failure::new(format!("{} broke off: {}", self.origin(), failure.message));
        if error.is_parse() {
            return CallError::Odd(failure.hint("what answers there speaks no HTTP"));
        }
        CallError::Away(failure)
    }

    fn slow(&self) -> CallError {
        CallError::Away(Failure::new(format!(
            "{} did not answer in time",
            self.origin()
        )))
    }

    fn redirected(&self, to: &str) -> CallError {
        CallError::Odd(
            Failure::new(format!("{} sends on to {}", self.origin(), cell(to)))
                .hint("if that is the console, name its address; what is meant for one is not taken to another"),
        )
    }

    /// What answers there is no console.
    pub fn odd(&self, what: &str) -> CallError {
        CallError::Odd(
            Failure::new(format!("{} answered with {what}", self.origin())).hint(
                "is this the address of a console of Sallyport, in a version that fits this one?",
            ),
        )
    }
}
