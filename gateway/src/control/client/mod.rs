//! The control API's client: what the runner and the CLI speak to the gateway with.

mod error;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use hyper_util::rt::TokioIo;
use netpolicy::ids::NetworkId;
use serde::de::DeserializeOwned;

use super::api::{
    AttachRequest, CaptureRequest, ContainerReport, Detached, ExplainRequest, FlowEvent, FlowView,
    FourTuple, Health, IngressRequest, NetworkView, Owner, PolicyReplaced, PolicySource,
    PostureView, Problem, SelftestReport, Signed,
};
use super::exchange::{self, Ask, Exchange, decode, within};
use crate::source::view::{
    ProposalRequest, Proposed, ResolveRequest, ResolvedPolicy, SourceView, SyncRequest,
};

pub use error::ClientError;

/// Every answer but the selftest's comes from memory or a few netlink calls; a gateway that needs longer is stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// The selftest waits for packets that must not arrive.
const SELFTEST_PATIENCE: Duration = Duration::from_mins(2);
/// A remote may be slow, and each act of git has its own limit.
const SOURCE_PATIENCE: Duration = Duration::from_mins(10);
/// A line of the record is at most a few kilobytes.
const LINE_LIMIT: usize = 1 << 20;

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
        let ask = Ask::json(Method::POST, "/v1/networks", request)?;
        self.answer(ask.with_descriptor(namespace), PATIENCE).await
    }

    /// Cuts a network's flows and takes it away.
    pub async fn detach(&self, id: &NetworkId) -> Result<Detached, ClientError> {
        let path = format!("/v1/networks/{id}");
        self.answer(Ask::new(Method::DELETE, &path), PATIENCE).await
    }

    /// Replaces the job policy. The reply acknowledges enforcement for exactly its policy hash.
    pub async fn replace_policy(
        &self,
        id: &NetworkId,
        policy: &PolicySource,
    ) -> Result<PolicyReplaced, ClientError> {
        let path = format!("/v1/networks/{id}/policy");
        self.answer(Ask::json(Method::PUT, &path, policy)?, PATIENCE)
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

    /// What is signed about the record: head, checkpoint, anchors.
    pub async fn statements(&self) -> Result<Lines<Signed>, ClientError> {
        self.lines("/v1/statements").await
    }

    /// Posture.
    pub async fn posture(&self) -> Result<PostureView, ClientError> {
        self.fetch("/v1/posture").await
    }

    /// Runs the escape suite against this host.
    pub async fn selftest(&self) -> Result<SelftestReport, ClientError> {
        let ask = Ask::new(Method::POST, "/v1/selftest");
        self.answer(ask, SELFTEST_PATIENCE).await
    }

    /// Reports what probes in containers saw; for the runner's user.
    pub async fn report_containers(
        &self,
        report: &ContainerReport,
    ) -> Result<PostureView, ClientError> {
        let ask = Ask::json(Method::POST, "/v1/selftest/containers", report)?;
        self.answer(ask, PATIENCE).await
    }

    /// Has the gateway let go of what rows of containers sealed for, so that they can be tried again.
    pub async fn try_containers_again(&self) -> Result<PostureView, ClientError> {
        let ask = Ask::new(Method::DELETE, "/v1/selftest/containers");
        self.answer(ask, PATIENCE).await
    }

    /// The kernel rules as text.
    pub async fn rules(&self) -> Result<String, ClientError> {
        let body = self
            .whole(Ask::new(Method::GET, "/v1/rules"), PATIENCE)
            .await?;
        String::from_utf8(body.to_vec())
            .map_err(|_| ClientError::Malformed("rules are not text".to_owned()))
    }

    /// Kernel and gateway counters by name.
    pub async fn counters(&self) -> Result<serde_json::Value, ClientError> {
        self.fetch("/v1/counters").await
    }

    /// Whether a 4-tuple is an upstream socket of this gateway.
    pub async fn owner(&self, tuple: &FourTuple) -> Result<Owner, ClientError> {
        self.answer(Ask::json(Method::POST, "/v1/own", tuple)?, PATIENCE)
            .await
    }

    /// What would become of this destination on a network.
    pub async fn explain(
        &self,
        id: &NetworkId,
        request: &ExplainRequest,
    ) -> Result<serde_json::Value, ClientError> {
        let path = format!("/v1/networks/{id}/explain");
        self.answer(Ask::json(Method::POST, &path, request)?, PATIENCE)
            .await
    }

    /// Opens a connection into the sandbox, if its policy has an ingress entry for the port.
    pub async fn ingress(
        &self,
        id: &NetworkId,
        request: &IngressRequest,
    ) -> Result<TokioIo<hyper::upgrade::Upgraded>, ClientError> {
        let path = format!("/v1/networks/{id}/ingress");
        let ask = Ask::json(Method::POST, &path, request)?.upgrading();
        within(PATIENCE, async {
            Ok(self.agreed(ask).await?.upgrade().await?)
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
        let ask = Ask::json(Method::POST, &path, request)?;
        Ok(Chunks(within(PATIENCE, self.agreed(ask)).await?))
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
        let path = format!("/v1/sources/{source}/sync");
        self.source(Ask::json(Method::POST, &path, request)?).await
    }

    /// The policy that a source has under a name now.
    pub async fn resolve(&self, request: &ResolveRequest) -> Result<ResolvedPolicy, ClientError> {
        self.source(Ask::json(Method::POST, "/v1/resolve", request)?)
            .await
    }

    /// Writes a proposal to a source's remote.
    pub async fn propose(
        &self,
        source: &str,
        request: &ProposalRequest,
    ) -> Result<Proposed, ClientError> {
        let path = format!("/v1/sources/{source}/proposals");
        self.source(Ask::json(Method::POST, &path, request)?).await
    }

    async fn source<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, ClientError> {
        self.answer(ask, SOURCE_PATIENCE).await
    }

    async fn fetch<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.answer(Ask::new(Method::GET, path), PATIENCE).await
    }

    async fn lines<T: DeserializeOwned>(&self, path: &str) -> Result<Lines<T>, ClientError> {
        let agreed = self.agreed(Ask::new(Method::GET, path));
        Ok(Lines::new(within(PATIENCE, agreed).await?, LINE_LIMIT))
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        ask: Ask<'_>,
        patience: Duration,
    ) -> Result<T, ClientError> {
        Ok(decode(&self.whole(ask, patience).await?)?)
    }

    async fn whole(&self, ask: Ask<'_>, patience: Duration) -> Result<Bytes, ClientError> {
        within(patience, async {
            Ok(self.agreed(ask).await?.rest().await?)
        })
        .await
    }

    async fn agreed(&self, ask: Ask<'_>) -> Result<Exchange, ClientError> {
        Exchange::begin(&self.path, "gateway", ask)
            .await?
            .accepted(|status, text| Problem::new(status.as_u16(), "internal", text))
            .await
    }
}

fn flows_path(id: Option<&NetworkId>) -> String {
    id.map_or_else(
        || "/v1/flows".to_owned(),
        |id| format!("/v1/networks/{id}/flows"),
    )
}

/// A stream of JSON lines; ends when the gateway ends it, or when it is dropped.
pub type Lines<T> = exchange::Lines<T, ClientError>;

/// A stream of bytes; ends when the gateway ends it, or when it is dropped.
pub struct Chunks(Exchange);

impl Chunks {
    /// The next piece; `None` when the stream is over.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        Ok(self.0.chunk().await?)
    }
}
