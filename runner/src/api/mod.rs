//! The runner's API: HTTP/1.1 over a Unix socket that only its own user and root may open.
//!
//! | verb | path | body | answer |
//! |---|---|---|---|
//! | POST | `/v1/runs` | [`JobRequest`] | JSON lines of [`Event`], the last one `ended` or `failed` |
//! | POST | `/v1/runs/{id}/input` | bytes as they come | the id, when the run has taken or does not want them |
//! | DELETE | `/v1/runs/{id}` | | 202; the run's own stream says how it ended |
//! | GET | `/v1/runs` | | list of [`RunView`] |
//! | POST | `/v1/selftest` | [`SelftestRequest`] | rows of probes in containers |
//! | GET | `/v1/health` | | [`Health`] |
//!
//! A run lives as long as its stream: whoever hangs up cancels it, so nothing is left running that nobody watches. A
//! stream that is read slowly slows its run down. Failure stance: what is not exactly understood starts nothing.

pub mod client;

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use gateway::control::api::Why;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use crate::Runner;
use crate::drive;
use crate::job::{Job, JobRequest};
use crate::run::{EndReason, Event, Failure, RunId};
use crate::sandbox::Facts;
use crate::selftest::SelftestRequest;

/// A command of 2 MiB, with a policy, as JSON.
const LARGEST_REQUEST: usize = 8 << 20;
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// Events between a run and its reader; small, so that backpressure reaches the workload.
const EVENTS_WAITING: usize = 8;

/// Liveness, and what this runner can do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Health {
    /// Version of the runner.
    pub version: String,
    /// Process id, to supervise.
    pub pid: u32,
    /// Engine, isolation classes, warnings.
    pub engine: Facts,
    /// Whether the gateway answers.
    pub gateway: bool,
    /// Live runs.
    pub runs: usize,
    /// Pods that are ready.
    pub pooled: usize,
    /// Whether it ends its runs, and takes no new ones.
    #[serde(default)]
    pub stopping: bool,
}

/// Behind a run's path: what it reads.
const INPUT: &str = "/input";
/// The refusal of a runner that stops: whoever asks may start another when it is gone.
pub const STOPPING: &str = "stopping";

/// Binds a Unix socket that only its own user (and root) can connect to, replacing one that nobody listens on.
pub fn bind_private(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another process listens there",
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(_) => std::fs::remove_file(path)?,
    }
    // Bound under another name and moved, so that it never exists with wider permissions.
    let new = path.with_extension("new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&new, path)?;
    Ok(listener)
}

/// Serves until dropped.
pub async fn serve(listener: UnixListener, runner: Arc<Runner>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = serve_one(stream, runner.clone());
                runner.tasks.spawn("api connection", connection);
            }
            Err(error) => {
                tracing::warn!(%error, "accepting an API connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_one(stream: UnixStream, runner: Arc<Runner>) {
    let service = hyper::service::service_fn(move |request| {
        let runner = runner.clone();
        async move { Ok::<_, Infallible>(route(request, &runner).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "serving an API connection");
    }
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

async fn route(request: Request<Incoming>, runner: &Arc<Runner>) -> Answer {
    let path = request.uri().path().to_owned();
    match (request.method().clone(), path.as_str()) {
        (Method::POST, "/v1/runs") => submit(request, runner).await,
        (Method::POST, path) if path.ends_with(INPUT) => match run_of(path, INPUT) {
            Some(run) => input(request.into_body(), runner, &run).await,
            None => no_such_run(),
        },
        (Method::POST, "/v1/selftest") => selftest(request, runner).await,
        (Method::GET, "/v1/runs") => json(StatusCode::OK, &runner.runs.list()),
        (Method::GET, "/v1/health") => json(StatusCode::OK, &health(runner).await),
        (Method::DELETE, path) => match run_of(path, "") {
            Some(run) if runner.runs.end(&run, EndReason::Cancelled) => {
                json(StatusCode::ACCEPTED, &run)
            }
            _ => no_such_run(),
        },
        _ => json(
            StatusCode::NOT_FOUND,
            &Failure::new("not_found", "no such path"),
        ),
    }
}

/// The run in `/v1/runs/{id}` and what stands behind it.
fn run_of(path: &str, behind: &str) -> Option<RunId> {
    let id = path.strip_prefix("/v1/runs/")?.strip_suffix(behind)?;
    id.parse().ok()
}

fn no_such_run() -> Answer {
    json(
        StatusCode::NOT_FOUND,
        &Failure::new("not_found", "no such live run"),
    )
}

/// Passes on what a run reads, as fast as it reads. A body that breaks off ends the run: it must not look complete.
async fn input(mut body: Incoming, runner: &Runner, run: &RunId) -> Answer {
    let Some(giving) = runner.runs.give_input(run) else {
        return json(
            StatusCode::CONFLICT,
            &Failure::new("no_input", "there is no live run that waits for input"),
        );
    };
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            // it is over, or reads no more
            () = giving.closed() => break,
        };
        match frame.map(|frame| frame.map(Frame::into_data)) {
            None => break,
            Some(Ok(Ok(bytes))) if !bytes.is_empty() => {
                if giving.send(bytes).await.is_err() {
                    break;
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                runner.runs.end(run, EndReason::Cancelled);
                return bad_request(&format!("reading the input: {error}"));
            }
        }
    }
    json(StatusCode::OK, run)
}

async fn health(runner: &Runner) -> Health {
    Health {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        engine: runner.pods.backend.facts().clone(),
        gateway: runner.pods.gateway.health().await.is_ok(),
        runs: runner.runs.running_ids().len(),
        pooled: runner.pool.runs().len(),
        stopping: runner.is_stopping(),
    }
}

/// What a request carries.
async fn read<T: DeserializeOwned>(request: Request<Incoming>, what: &str) -> Result<T, String> {
    let body = Limited::new(request.into_body(), LARGEST_REQUEST).collect();
    let body = body
        .await
        .map_err(|error| format!("reading the request: {error}"))?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| format!("reading {what}: {error}"))
}

async fn selftest(request: Request<Incoming>, runner: &Arc<Runner>) -> Answer {
    match read::<SelftestRequest>(request, "what to try").await {
        Ok(asked) => {
            let rows = crate::selftest::perform(runner, Why::Asked, &asked.console).await;
            json(StatusCode::OK, &rows)
        }
        Err(error) => bad_request(&error),
    }
}

async fn submit(request: Request<Incoming>, runner: &Arc<Runner>) -> Answer {
    let asked: JobRequest = match read(request, "the job").await {
        Ok(asked) => asked,
        Err(error) => return bad_request(&error),
    };
    let job = match Job::check(asked, &runner.config.limits) {
        Ok(job) => job,
        Err(mistakes) => {
            let failure = Failure {
                mistakes: mistakes.0,
                ..Failure::new("bad_request", "the job has mistakes")
            };
            return json(StatusCode::BAD_REQUEST, &failure);
        }
    };
    if runner.is_stopping() {
        return json(
            StatusCode::SERVICE_UNAVAILABLE,
            &Failure::new(STOPPING, "the runner is stopping"),
        );
    }
    let (events, waiting) = mpsc::channel(EVENTS_WAITING);
    let driven = runner.clone();
    // A task of its own: a reader that hangs up must not drop the clean-up half done.
    runner.tasks.spawn(
        "run",
        async move { drive::drive(&driven, job, events).await },
    );
    let mut response = Response::new(EventBody { waiting }.boxed());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/jsonl"),
    );
    response
}

fn bad_request(what: &str) -> Answer {
    json(StatusCode::BAD_REQUEST, &Failure::new("bad_request", what))
}

fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    response
}

/// Events as JSON lines.
struct EventBody {
    waiting: mpsc::Receiver<Event>,
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.waiting.poll_recv(cx).map(|event| {
            let mut line = serde_json::to_vec(&event?).ok()?;
            line.push(b'\n');
            Some(Ok(Frame::data(line.into())))
        })
    }
}
