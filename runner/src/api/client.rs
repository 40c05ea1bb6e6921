//! The runner's client: what the CLI and the console speak to it with.
//!
//! Dropping a [`Stream`] cancels its run.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use gateway::control::api::Check;
use gateway::control::exchange::{Ask, CallError, Exchange, Lines, Refusal, decode, within};
use hyper::body::{Body, Frame};
use hyper::client::conn::http1::handshake;
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::Health;
use crate::job::JobRequest;
use crate::run::{Event, Failure, RunId};
use crate::runs::RunView;
use crate::selftest::SelftestRequest;

/// Every answer but a run's stream comes from memory, or from one question to the gateway.
const PATIENCE: Duration = Duration::from_secs(30);
/// Two classes, each tried twice at most, each with its own limit.
const SELFTEST_PATIENCE: Duration = Duration::from_mins(4);
/// A chunk of output is at most 64 KiB from any engine; as base64 in a line that is less than this.
const LONGEST_LINE: usize = 16 << 20;

impl Refusal for Failure {
    const WHO: &'static str = "runner";
}

/// Why a request has no answer.
pub type RunnerError = CallError<Failure>;

/// A run's events, to the last one. Dropping it cancels the run.
pub type Stream = Lines<Event, RunnerError>;

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
        self.answer(Ask::new(Method::GET, "/v1/health")).await
    }

    /// Live runs, then ended ones.
    pub async fn runs(&self) -> Result<Vec<RunView>, RunnerError> {
        self.answer(Ask::new(Method::GET, "/v1/runs")).await
    }

    /// Asks a live run to end.
    pub async fn cancel(&self, run: &RunId) -> Result<(), RunnerError> {
        let path = format!("/v1/runs/{run}");
        self.answer::<RunId>(Ask::new(Method::DELETE, &path))
            .await
            .map(drop)
    }

    /// Has the runner try a sandbox in a container of each isolation class.
    pub async fn selftest(&self, request: &SelftestRequest) -> Result<Vec<Check>, RunnerError> {
        let ask = Ask::json(Method::POST, "/v1/selftest", request)?;
        within(SELFTEST_PATIENCE, async {
            let body = self.agreed(ask).await?.rest().await?;
            Ok(decode(&body)?)
        })
        .await
    }

    /// Submits a run; it lives as long as the stream.
    pub async fn run(&self, job: &JobRequest) -> Result<Stream, RunnerError> {
        let agreed = self.agreed(Ask::json(Method::POST, "/v1/runs", job)?);
        Ok(Stream::new(within(PATIENCE, agreed).await?, LONGEST_LINE))
    }

    /// Gives a run that was just accepted what it reads, as fast as it reads; back when all of it is taken or the run
    /// wants no more. A piece that is an error breaks the input off, and the runner ends the run.
    pub async fn give(
        &self,
        run: &RunId,
        pieces: mpsc::Receiver<io::Result<Bytes>>,
    ) -> Result<(), RunnerError> {
        let connect = |source| RunnerError::Connect {
            path: self.path.clone(),
            source,
        };
        let stream = UnixStream::connect(&self.path).await.map_err(connect)?;
        let (mut sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(RunnerError::Http)?;
        let request = Request::post(format!("/v1/runs/{run}/input"))
            .header(header::HOST, "runner")
            .body(Pieces(pieces))
            .map_err(|error| RunnerError::Malformed(error.to_string()))?;
        let asking = sender.send_request(request);
        tokio::pin!(connection, asking);
        // the connection must be driven while the answer is awaited
        tokio::select! {
            biased;
            answer = &mut asking => answer.map(drop),
            ended = &mut connection => ended,
        }
        .map_err(RunnerError::Http)
    }

    async fn answer<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, RunnerError> {
        within(PATIENCE, async {
            let body = self.agreed(ask).await?.rest().await?;
            Ok(decode(&body)?)
        })
        .await
    }

    async fn agreed(&self, ask: Ask<'_>) -> Result<Exchange, RunnerError> {
        let text = |status, text| Failure::new("internal", format!("{status}: {text}"));
        Exchange::begin(&self.path, "runner", ask)
            .await?
            .accepted(text)
            .await
    }
}

/// Bytes as they come.
struct Pieces(mpsc::Receiver<io::Result<Bytes>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = self.0.poll_recv(cx);
        piece.map(|piece| piece.map(|bytes| bytes.map(Frame::data)))
    }
}
