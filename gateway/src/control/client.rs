//! The control API's client: what the runner and the CLI speak to the gateway with.
//!
//! One connection a request: a Unix socket costs microseconds, and a descriptor must travel with a connection's first
//! byte. Spawns nothing: the connection is driven by whoever waits for the answer.

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
use netpolicy::ids::NetworkId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::api::{
    AttachRequest, CaptureRequest, Detached, ExplainRequest, FlowEvent, FlowView, FourTuple,
    Health, IngressRequest, NetworkView, Owner, PolicyReplaced, PolicySource, PostureView, Problem,
    SelftestReport,
};
use super::descriptor::Carrier;
use crate::source::view::{
    ProposalRequest, Proposed, ResolveRequest, ResolvedPolicy, SourceView, SyncRequest,
};

/// Every answer but the selftest's comes from memory or a few netlink calls; a gateway that needs longer is stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// The selftest waits for packets that must not arrive.
const SELFTEST_PATIENCE: Duration = Duration::from_mins(2);
/// A remote may be slow, and each act of git has its own limit.
const SOURCE_PATIENCE: Duration = Duration::from_mins(10);
/// A line of the record is at most a few kilobytes.
const LINE_LIMIT: usize = 1 << 20;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there, or the socket may not be opened.
    #[error("connecting to the gateway at {path}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The gateway said no; the problem says why.
    #[error(transparent)]
    Refused(#[from] Problem),
    /// The connection broke.
    #[error("speaking to the gateway")]
    Http(#[from] hyper::Error),
    /// The answer is not what the API promises (another version?).
    #[error("reading the gateway's answer: {0}")]
    Malformed(String),
    /// No answer in time.
    #[error("the gateway did not answer within {0:?}")]
    Late(Duration),
}

impl ClientError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Connect { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some(
                    "this user may not use the control socket; see `gateway.control_users`"
                        .to_owned(),
                )
            }
            Self::Connect { .. } => Some(
                "is it running? `sallyport gateway` starts it, `gateway.control` names its socket"
                    .to_owned(),
            ),
            Self::Refused(problem) => problem.hint.clone(),
            Self::Malformed(_) => {
                Some("gateway and client should be of the same version".to_owned())
            }
            Self::Http(_) | Self::Late(_) => None,
        }
    }

    /// The problem, if the gateway itself refused.
    pub fn problem(&self) -> Option<&Problem> {
        if let Self::Refused(problem) = self {
            Some(problem)
        } else {
            None
        }
    }
}

/// Moves the connection's bytes, upgrades included; polled by whoever waits for the answer.
type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// A client of one gateway; cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
}

impl Client {
    /// A client of the gateway at this socket; nothing is sent yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// A client of a gateway that answers.
    pub async fn connect(path: impl Into<PathBuf>) -> Result<Self, ClientError> {
        let client = Self::new(path);
        client.health().await?;
        Ok(client)
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the gateway lives, is open and can write its journal.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.fetch("/v1/health").await
    }

    /// Puts the namespace behind the gateway. The reply acknowledges enforcement for exactly its policy hash.
    pub async fn attach(
        &self,
        request: &AttachRequest,
        namespace: OwnedFd,
    ) -> Result<NetworkView, ClientError> {
        let body = encode(request)?;
        self.answer(
            Method::POST,
            "/v1/networks",
            body,
            Some(namespace),
            PATIENCE,
        )
        .await
    }

    /// Cuts a network's flows and takes it away.
    pub async fn detach(&self, id: &NetworkId) -> Result<Detached, ClientError> {
        self.answer(
            Method::DELETE,
            &format!("/v1/networks/{id}"),
            Bytes::new(),
            None,
            PATIENCE,
        )
        .await
    }

    /// Replaces the job policy. The reply acknowledges enforcement for exactly its policy hash.
    pub async fn replace_policy(
        &self,
        id: &NetworkId,
        policy: &PolicySource,
    ) -> Result<PolicyReplaced, ClientError> {
        self.answer(
            Method::PUT,
            &format!("/v1/networks/{id}/policy"),
            encode(policy)?,
            None,
            PATIENCE,
        )
        .await
    }

    /// Every live network, by id.
    pub async fn networks(&self) -> Result<Vec<NetworkView>, ClientError> {
        self.fetch("/v1/networks").await
    }

    /// One network.
    pub async fn network(&self, id: &NetworkId) -> Result<NetworkView, ClientError> {
        self.fetch(&format!("/v1/networks/{id}")).await
    }

    /// Live flows of one network, or of all.
    pub async fn flows(&self, id: Option<&NetworkId>) -> Result<Vec<FlowView>, ClientError> {
        self.fetch(&flows_path(id)).await
    }

    /// Follows the live flows of one network, or of all.
    pub async fn follow_flows(
        &self,
        id: Option<&NetworkId>,
    ) -> Result<Lines<FlowEvent>, ClientError> {
        self.lines(&format!("{}?follow=1", flows_path(id))).await
    }

    /// Journal lines after a sequence number (0: from the oldest kept), then whatever is written, until dropped.
    pub async fn follow_records(
        &self,
        after: u64,
    ) -> Result<Lines<crate::record::Line>, ClientError> {
        self.lines(&format!("/v1/records?after={after}&follow=1"))
            .await
    }

    /// Journal lines after a sequence number that exist now.
    pub async fn records(&self, after: u64) -> Result<Lines<crate::record::Line>, ClientError> {
        self.lines(&format!("/v1/records?after={after}")).await
    }

    /// Posture.
    pub async fn posture(&self) -> Result<PostureView, ClientError> {
        self.fetch("/v1/posture").await
    }

    /// Runs the escape suite against this host.
    pub async fn selftest(&self) -> Result<SelftestReport, ClientError> {
        self.answer(
            Method::POST,
            "/v1/selftest",
            Bytes::new(),
            None,
            SELFTEST_PATIENCE,
        )
        .await
    }

    /// The kernel rules as text.
    pub async fn rules(&self) -> Result<String, ClientError> {
        let exchange = self.exchange(Method::GET, "/v1/rules", Bytes::new(), None);
        let body = within(PATIENCE, async { exchange.await?.whole().await }).await?;
        String::from_utf8(body.to_vec())
            .map_err(|_| ClientError::Malformed("rules are not text".to_owned()))
    }

    /// Kernel and gateway counters by name.
    pub async fn counters(&self) -> Result<serde_json::Value, ClientError> {
        self.fetch("/v1/counters").await
    }

    /// Whether a 4-tuple is an upstream socket of this gateway.
    pub async fn owner(&self, tuple: &FourTuple) -> Result<Owner, ClientError> {
        self.answer(Method::POST, "/v1/own", encode(tuple)?, None, PATIENCE)
            .await
    }

    /// What would become of this destination on a network.
    pub async fn explain(
        &self,
        id: &NetworkId,
        request: &ExplainRequest,
    ) -> Result<serde_json::Value, ClientError> {
        self.answer(
            Method::POST,
            &format!("/v1/networks/{id}/explain"),
            encode(request)?,
            None,
            PATIENCE,
        )
        .await
    }

    /// Opens a connection into the sandbox, if its policy has an ingress entry for the port.
    pub async fn ingress(
        &self,
        id: &NetworkId,
        request: &IngressRequest,
    ) -> Result<TokioIo<hyper::upgrade::Upgraded>, ClientError> {
        let path = format!("/v1/networks/{id}/ingress");
        within(PATIENCE, async {
            let exchange = self
                .exchange(Method::POST, &path, encode(request)?, None)
                .await?;
            exchange.upgrade().await
        })
        .await
    }

    /// Captures a network's packets, until the stream ends or is dropped.
    pub async fn capture(
        &self,
        id: &NetworkId,
        request: &CaptureRequest,
    ) -> Result<Chunks, ClientError> {
        let path = format!("/v1/networks/{id}/capture");
        let exchange = self.exchange(Method::POST, &path, encode(request)?, None);
        let exchange = within(PATIENCE, exchange).await?.accepted().await?;
        Ok(Chunks(exchange))
    }

    /// All policy sources.
    pub async fn sources(&self) -> Result<Vec<SourceView>, ClientError> {
        self.fetch("/v1/sources").await
    }

    /// Has a source looked at now.
    pub async fn sync_source(
        &self,
        source: &str,
        request: &SyncRequest,
    ) -> Result<SourceView, ClientError> {
        self.source(&format!("/v1/sources/{source}/sync"), encode(request)?)
            .await
    }

    /// The policy that a source has under a name now.
    pub async fn resolve(&self, request: &ResolveRequest) -> Result<ResolvedPolicy, ClientError> {
        self.source("/v1/resolve", encode(request)?).await
    }

    /// Writes a proposal to a source's remote.
    pub async fn propose(
        &self,
        source: &str,
        request: &ProposalRequest,
    ) -> Result<Proposed, ClientError> {
        let path = format!("/v1/sources/{source}/proposals");
        self.source(&path, encode(request)?).await
    }

    async fn source<T: DeserializeOwned>(&self, path: &str, body: Bytes) -> Result<T, ClientError> {
        self.answer(Method::POST, path, body, None, SOURCE_PATIENCE)
            .await
    }

    async fn fetch<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.answer(Method::GET, path, Bytes::new(), None, PATIENCE)
            .await
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        descriptor: Option<OwnedFd>,
        patience: Duration,
    ) -> Result<T, ClientError> {
        let exchange = self.exchange(method, path, body, descriptor);
        let body = within(patience, async { exchange.await?.whole().await }).await?;
        serde_json::from_slice(&body).map_err(|e| ClientError::Malformed(e.to_string()))
    }

    async fn lines<T: DeserializeOwned>(&self, path: &str) -> Result<Lines<T>, ClientError> {
        let exchange = within(
            PATIENCE,
            self.exchange(Method::GET, path, Bytes::new(), None),
        )
        .await?;
        let exchange = exchange.accepted().await?;
        Ok(Lines {
            exchange,
            buffer: BytesMut::new(),
            kind: PhantomData,
        })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        descriptor: Option<OwnedFd>,
    ) -> Result<Exchange, ClientError> {
        let connect = |source| ClientError::Connect {
            path: self.path.clone(),
            source,
        };
        let stream = UnixStream::connect(&self.path).await.map_err(connect)?;
        let carrier = TokioIo::new(Carrier::sending(stream, descriptor));
        let (mut sender, connection) = handshake::<_, Full<Bytes>>(carrier).await?;
        let mut driver: Driver = Box::pin(connection.with_upgrades());
        let upgrade = path.ends_with("/ingress");
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "gateway");
        if upgrade {
            request = request
                .header(header::CONNECTION, "upgrade")
                .header(header::UPGRADE, "stream");
        }
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::new(body))
            .map_err(|e| ClientError::Malformed(e.to_string()))?;
        let sending = sender.send_request(request);
        tokio::pin!(sending);
        // The connection must be driven while the answer is awaited; the sender is kept, or hyper closes early.
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

fn flows_path(id: Option<&NetworkId>) -> String {
    id.map_or_else(
        || "/v1/flows".to_owned(),
        |id| format!("/v1/networks/{id}/flows"),
    )
}

fn encode(value: &impl Serialize) -> Result<Bytes, ClientError> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|e| ClientError::Malformed(e.to_string()))
}

async fn within<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    tokio::time::timeout(patience, work)
        .await
        .unwrap_or(Err(ClientError::Late(patience)))
}

/// An answer whose body is still coming, with the connection that brings it.
struct Exchange {
    response: Response<Incoming>,
    driver: Driver,
    over: bool,
    _sender: SendRequest<Full<Bytes>>,
}

impl Exchange {
    /// The next piece of the body.
    async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
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

    async fn rest(&mut self) -> Result<Bytes, ClientError> {
        let mut all = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all.freeze())
    }

    /// This exchange if the gateway agreed, its problem if not.
    async fn accepted(mut self) -> Result<Self, ClientError> {
        let status = self.response.status();
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(self);
        }
        let body = self.rest().await?;
        let text = || {
            Problem::new(
                status.as_u16(),
                "internal",
                String::from_utf8_lossy(&body).into_owned(),
            )
        };
        Err(serde_json::from_slice(&body)
            .unwrap_or_else(|_| text())
            .into())
    }

    async fn whole(self) -> Result<Bytes, ClientError> {
        self.accepted().await?.rest().await
    }

    async fn upgrade(self) -> Result<TokioIo<hyper::upgrade::Upgraded>, ClientError> {
        let exchange = self.accepted().await?;
        if exchange.response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(ClientError::Malformed(
                "the gateway did not switch to the stream".to_owned(),
            ));
        }
        let upgrading = hyper::upgrade::on(exchange.response);
        let driving = async {
            if exchange.over {
                Ok(())
            } else {
                exchange.driver.await
            }
        };
        let (driven, upgraded) = tokio::join!(driving, upgrading);
        driven?;
        Ok(TokioIo::new(upgraded?))
    }
}

/// A stream of bytes; ends when the gateway ends it, or when it is dropped.
pub struct Chunks(Exchange);

impl Chunks {
    /// The next piece; `None` when the stream is over.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.0.chunk().await
    }
}

/// A stream of JSON lines; ends when the gateway ends it, or when it is dropped.
pub struct Lines<T> {
    exchange: Exchange,
    buffer: BytesMut,
    kind: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Lines<T> {
    /// The next line; `None` when the stream is over. Cancel-safe: nothing is lost when the wait is given up.
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line = self.buffer.split_to(end);
                self.buffer.advance(1);
                if line.is_empty() {
                    continue;
                }
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(|e| ClientError::Malformed(e.to_string()));
            }
            if self.buffer.len() > LINE_LIMIT {
                return Err(ClientError::Malformed("a line without an end".to_owned()));
            }
            match self.exchange.chunk().await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}
