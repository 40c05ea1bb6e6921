//! One HTTP request over a Unix socket, and its answer: what the clients of gateway and runner are made of.
//!
//! One connection a request: a Unix socket costs microseconds, and a descriptor must travel with a connection's first
//! byte. Spawns nothing: the connection is driven by whoever waits for the answer, so dropping an [`Exchange`] ends it.
//! Refuses to own: what a refusal looks like ([`Exchange::accepted`] is told), and how long an answer may take
//! ([`within`] is told).

use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::descriptor::Carrier;

/// Why an exchange came to nothing, whoever the other side is.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Nobody listens there, or the socket may not be opened.
    #[error("connecting to {path}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The connection broke.
    #[error("speaking over the socket")]
    Http(#[from] hyper::Error),
    /// The answer is not what the API promises.
    #[error("reading the answer: {0}")]
    Malformed(String),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
}

/// What the other side of an exchange says when it refuses; its kind says who that is.
pub trait Refusal: std::error::Error + 'static {
    /// The other side, as people call it.
    const WHO: &'static str;
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError<R: Refusal> {
    /// Nobody listens there, or the socket may not be opened.
    #[error("connecting to the {} at {}", R::WHO, .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The other side said no, and why.
    #[error(transparent)]
    Refused(#[from] R),
    /// The connection broke.
    #[error("speaking to the {}", R::WHO)]
    Http(#[source] hyper::Error),
    /// The answer is not what the API promises (another version?).
    #[error("reading the {}'s answer: {_0}", R::WHO)]
    Malformed(String),
    /// No answer in time.
    #[error("the {} did not answer within {_0:?}", R::WHO)]
    Late(Duration),
}

impl<R: Refusal> From<ExchangeError> for CallError<R> {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Connect { path, source } => Self::Connect { path, source },
            ExchangeError::Http(error) => Self::Http(error),
            ExchangeError::Malformed(what) => Self::Malformed(what),
            ExchangeError::Late(patience) => Self::Late(patience),
        }
    }
}

/// What is asked.
#[derive(Debug)]
pub struct Ask<'a> {
    method: Method,
    path: &'a str,
    body: Bytes,
    descriptor: Option<OwnedFd>,
    upgrade: bool,
}

impl<'a> Ask<'a> {
    /// A request without a body.
    pub fn new(method: Method, path: &'a str) -> Self {
        Self {
            method,
            path,
            body: Bytes::new(),
            descriptor: None,
            upgrade: false,
        }
    }

    /// A request with a body of JSON.
    pub fn json(
        method: Method,
        path: &'a str,
        body: &impl Serialize,
    ) -> Result<Self, ExchangeError> {
        let body = serde_json::to_vec(body).map_err(|e| malformed(&e))?;
        Ok(Self {
            body: body.into(),
            ..Self::new(method, path)
        })
    }

    /// Sends a descriptor along with the first byte.
    #[must_use]
    pub fn with_descriptor(mut self, descriptor: OwnedFd) -> Self {
        self.descriptor = Some(descriptor);
        self
    }

    /// Asks that the connection become a stream of bytes.
    #[must_use]
    pub fn upgrading(mut self) -> Self {
        self.upgrade = true;
        self
    }

    fn into_request(self, host: &'static str) -> Result<Request<Full<Bytes>>, ExchangeError> {
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .header(header::HOST, host);
        if self.upgrade {
            request = request
                .header(header::CONNECTION, "upgrade")
                .header(header::UPGRADE, "stream");
        }
        if !self.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request
            .body(Full::new(self.body))
            .map_err(|e| malformed(&e))
    }
}

/// Moves the connection's bytes, upgrades included; polled by whoever waits for the answer.
type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// An answer whose body is still coming, with the connection that brings it.
pub struct Exchange {
    response: Response<Incoming>,
    driver: Driver,
    over: bool,
    /// Kept, or hyper closes the connection early.
    _sender: SendRequest<Full<Bytes>>,
}

impl Exchange {
    /// Asks, and waits for the head of the answer.
    pub async fn begin(
        socket: &Path,
        host: &'static str,
        mut ask: Ask<'_>,
    ) -> Result<Self, ExchangeError> {
        let connect = |source| ExchangeError::Connect {
            path: socket.to_owned(),
            source,
        };
        let stream = UnixStream::connect(socket).await.map_err(connect)?;
        let carrier = TokioIo::new(Carrier::sending(stream, ask.descriptor.take()));
        let request = ask.into_request(host)?;
        let (mut sender, connection) = handshake::<_, Full<Bytes>>(carrier).await?;
        let mut driver: Driver = Box::pin(connection.with_upgrades());
        let sending = sender.send_request(request);
        tokio::pin!(sending);
        // The connection must be driven while the answer is awaited.
        let mut over = false;
        let response = loop {
            tokio::select! {
                biased;
                response = &mut sending => break response?,
                ended = &mut driver, if !over => { ended?; over = true; }
            }
        };
        Ok(Self {
            response,
            driver,
            over,
            _sender: sender,
        })
    }

    /// This exchange if the other side agreed, its refusal if not: what it said, or what `otherwise` makes of a text
    /// that is no refusal of its API.
    pub async fn accepted<R, E>(
        mut self,
        otherwise: impl FnOnce(StatusCode, String) -> R,
    ) -> Result<Self, E>
    where
        R: DeserializeOwned,
        E: From<R> + From<ExchangeError>,
    {
        let status = self.response.status();
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(self);
        }
        let body = self.rest().await?;
        let refusal: R = serde_json::from_slice(&body)
            .unwrap_or_else(|_| otherwise(status, String::from_utf8_lossy(&body).into_owned()));
        Err(refusal.into())
    }

    /// The next piece of the body; `None` when it is over. Cancel-safe.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ExchangeError> {
        loop {
            let Self {
                response,
                driver,
                over,
                ..
            } = self;
            tokio::select! {
                biased;
                frame = response.body_mut().frame() => match frame {
                    None => return Ok(None),
                    Some(frame) => if let Ok(data) = frame?.into_data() { return Ok(Some(data)) },
                },
                ended = &mut *driver, if !*over => { ended?; *over = true; }
            }
        }
    }

    /// What is left of the body.
    pub async fn rest(&mut self) -> Result<Bytes, ExchangeError> {
        let mut all = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all.freeze())
    }

    /// The stream that the connection became.
    pub async fn upgrade(self) -> Result<TokioIo<hyper::upgrade::Upgraded>, ExchangeError> {
        if self.response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(ExchangeError::Malformed(
                "the connection was not switched to the stream".to_owned(),
            ));
        }
        let upgrading = hyper::upgrade::on(self.response);
        let driving = async { if self.over { Ok(()) } else { self.driver.await } };
        let (driven, upgraded) = tokio::join!(driving, upgrading);
        driven?;
        Ok(TokioIo::new(upgraded?))
    }
}

/// A stream of JSON lines; ends when the other side ends it, or when it is dropped.
pub struct Lines<T, E> {
    exchange: Exchange,
    buffer: BytesMut,
    longest: usize,
    kind: PhantomData<fn() -> (T, E)>,
}

impl<T: DeserializeOwned, E: From<ExchangeError>> Lines<T, E> {
    /// The lines of an answer, each of at most about so many bytes.
    pub fn new(exchange: Exchange, longest: usize) -> Self {
        Self {
            exchange,
            buffer: BytesMut::new(),
            longest,
            kind: PhantomData,
        }
    }

    /// The next line; `None` when the stream is over. Cancel-safe: nothing is lost when the wait is given up.
    pub async fn next(&mut self) -> Result<Option<T>, E> {
        match self.next_bytes().await? {
            Some(line) => Ok(Some(decode(&line)?)),
            None => Ok(None),
        }
    }

    /// The same, as it was sent.
    pub async fn next_bytes(&mut self) -> Result<Option<BytesMut>, E> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line = self.buffer.split_to(end);
                self.buffer.advance(1);
                if line.is_empty() {
                    continue;
                }
                return Ok(Some(line));
            }
            if self.buffer.len() > self.longest {
                return Err(ExchangeError::Malformed("a line without an end".to_owned()).into());
            }
            match self.exchange.chunk().await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}

/// Reads JSON that was answered.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, ExchangeError> {
    serde_json::from_slice(body).map_err(|e| malformed(&e))
}

/// Gives the work up after this time.
pub async fn within<T, E: From<ExchangeError>>(
    patience: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    tokio::time::timeout(patience, work)
        .await
        .unwrap_or_else(|_| Err(ExchangeError::Late(patience).into()))
}

fn malformed(error: &impl ToString) -> ExchangeError {
    ExchangeError::Malformed(error.to_string())
}
