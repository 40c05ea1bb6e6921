//! The runner's client: what the CLI and the console speak to it with.
//!
//! One connection a request, driven by whoever waits for the answer. Dropping a [`Stream`] cancels its run.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::Health;
use crate::job::JobRequest;
use crate::run::{Event, Failure, RunId};
use crate::runs::RunView;

/// Every answer but a run's stream comes from memory, or from one question to the gateway.
const PATIENCE: Duration = Duration::from_secs(30);
/// A chunk of output is at most 64 KiB from any engine; as base64 in a line that is less than this.
const LONGEST_LINE: usize = 16 << 20;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// Nobody listens there, or the socket may not be opened.
    #[error("connecting to the runner at {path}: {source}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The runner said no.
    #[error(transparent)]
    Refused(#[from] Failure),
    /// The connection broke.
    #[error("speaking to the runner: {0}")]
    Http(#[from] hyper::Error),
    /// The answer is not what the API promises.
    #[error("reading the runner's answer: {0}")]
    Malformed(String),
    /// No answer in time.
    #[error("the runner did not answer within {0:?}")]
    Late(Duration),
}

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// A client of one runner; cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
}

impl Client {
    /// A client of the runner at this socket; nothing is sent yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the runner lives, and what it can do.
    pub async fn health(&self) -> Result<Health, RunnerError> {
        self.answer(Method::GET, "/v1/health", Bytes::new()).await
    }

    /// Live runs, then ended ones.
    pub async fn runs(&self) -> Result<Vec<RunView>, RunnerError> {
        self.answer(Method::GET, "/v1/runs", Bytes::new()).await
    }

    /// Asks a live run to end.
    pub async fn cancel(&self, run: &RunId) -> Result<(), RunnerError> {
        self.answer::<RunId>(Method::DELETE, &format!("/v1/runs/{run}"), Bytes::new())
            .await
            .map(drop)
    }

    /// Submits a run; it lives as long as the stream.
    pub async fn run(&self, job: &JobRequest) -> Result<Stream, RunnerError> {
        let exchange = within(self.exchange(Method::POST, "/v1/runs", encode(job)?)).await?;
        Ok(Stream {
            exchange: exchange.accepted().await?,
            buffer: BytesMut::new(),
        })
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, RunnerError> {
        let work = async {
            self.exchange(method, path, body)
                .await?
                .accepted()
                .await?
                .rest()
                .await
        };
        let body = within(work).await?;
        serde_json::from_slice(&body).map_err(|e| RunnerError::Malformed(e.to_string()))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Exchange, RunnerError> {
        let connect = |source| RunnerError::Connect {
            path: self.path.clone(),
            source,
        };
        let stream = UnixStream::connect(&self.path).await.map_err(connect)?;
        let (mut sender, connection) = handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await?;
        let mut driver: Driver = Box::pin(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "runner")
            .body(Full::new(body))
            .map_err(|e| RunnerError::Malformed(e.to_string()))?;
        let sending = sender.send_request(request);
        tokio::pin!(sending);
        let mut over = false;
        let response = loop {
            tokio::select! {
                biased;
                response = &mut sending => break response?,
                ended = &mut driver, if !over => { ended?; over = true; }
            }
        };
        Ok(Exchange {
            response,
            driver,
            over,
            _sender: sender,
        })
    }
}

fn encode(value: &impl Serialize) -> Result<Bytes, RunnerError> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|e| RunnerError::Malformed(e.to_string()))
}

async fn within<T>(work: impl Future<Output = Result<T, RunnerError>>) -> Result<T, RunnerError> {
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or(Err(RunnerError::Late(PATIENCE)))
}

/// An answer whose body is still coming, with the connection that brings it.
struct Exchange {
    response: Response<Incoming>,
    driver: Driver,
    over: bool,
    _sender: SendRequest<Full<Bytes>>,
}

impl Exchange {
    async fn chunk(&mut self) -> Result<Option<Bytes>, RunnerError> {
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

    async fn rest(mut self) -> Result<Bytes, RunnerError> {
        let mut all = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all.freeze())
    }

    /// This exchange if the runner agreed, its failure if not.
    async fn accepted(self) -> Result<Self, RunnerError> {
        let status = self.response.status();
        if status.is_success() {
            return Ok(self);
        }
        let body = self.rest().await?;
        let text = || {
            Failure::new(
                "internal",
                format!("{status}: {}", String::from_utf8_lossy(&body)),
            )
        };
        Err(serde_json::from_slice(&body)
            .unwrap_or_else(|_| text())
            .into())
    }
}

/// A run's events. Dropping it cancels the run.
pub struct Stream {
    exchange: Exchange,
    buffer: BytesMut,
}

impl Stream {
    /// The next event; `None` after the last one. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Event>, RunnerError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line = self.buffer.split_to(end);
                self.buffer.advance(1);
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(|e| RunnerError::Malformed(e.to_string()));
            }
            if self.buffer.len() > LONGEST_LINE {
                return Err(RunnerError::Malformed("a line without an end".to_owned()));
            }
            match self.exchange.chunk().await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}
