//! Wire types of the control API; requests refuse unknown keys, replies may grow.
//!
//! | verb | path | body | reply |
//! |---|---|---|---|
//! | POST | `/v1/networks` | [`AttachRequest`] + descriptor | [`NetworkView`] |
//! | GET | `/v1/networks`, `/v1/networks/{id}` | | [`NetworkView`] (a list) |
//! | DELETE | `/v1/networks/{id}` | | [`Detached`] |
//! | PUT | `/v1/networks/{id}/policy` | [`PolicySource`] | [`PolicyReplaced`] |
//! | GET | `/v1/networks/{id}/flows`, `/v1/flows` (`?follow=1`) | | [`FlowView`] (a list, or lines of [`FlowEvent`]) |
//! | POST | `/v1/networks/{id}/explain` | [`ExplainRequest`] | JSON of the explanation |
//! | POST | `/v1/networks/{id}/ingress` | [`IngressRequest`] | 101, then the stream itself |
//! | POST | `/v1/networks/{id}/capture` | [`CaptureRequest`] | pcapng, as it comes |
//! | GET | `/v1/records?after=SEQ&follow=1` | | journal lines |
//! | POST | `/v1/own` | [`FourTuple`] | [`Owner`] |
//! | GET | `/v1/health`, `/v1/posture`, `/v1/rules`, `/v1/counters` | | [`Health`], [`PostureView`], text, JSON |
//! | POST | `/v1/selftest` | | [`SelftestReport`] |
//! | GET | `/v1/sources` | | [`SourceView`](crate::source::SourceView) (a list) |
//! | POST | `/v1/sources/{name}/sync` | [`SyncRequest`](crate::source::view::SyncRequest) | the source |
//! | POST | `/v1/sources/{name}/proposals` | [`ProposalRequest`](crate::source::view::ProposalRequest) | the branch |
//! | POST | `/v1/resolve` | [`ResolveRequest`](crate::source::view::ResolveRequest) | the policy |

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use netpolicy::addr::Class;
use netpolicy::ids::{Generation, NetworkId, PolicyHash};
use netpolicy::policy::{NamesMode, Place, Protocol};
use serde::{Deserialize, Serialize};

use crate::limits::Used;
use crate::member::Membership;
use crate::network::flows::Door;
use crate::policy::Stamp;

/// Where a job policy comes from. Always text or a preset: the gateway opens no path that a client names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicySource {
    /// A shipped preset by name.
    Preset(String),
    /// A document; `file` is only what mistakes and records name.
    Document {
        /// Name of the file as its author knows it.
        file: String,
        /// The whole text.
        text: String,
        /// Host names of the set `packages`, read from the image's own settings, if the policy uses it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        packages: Option<Vec<String>>,
    },
    /// A policy of a source that the gateway follows itself; only these are stamped with a commit.
    Git {
        /// The source; any that speaks for the workspace if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// Its name, or its path in the repository.
        policy: String,
        /// The job policy's hash that is expected now; refused if it is another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hash: Option<PolicyHash>,
        /// As for a document.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        packages: Option<Vec<String>>,
    },
}

impl PolicySource {
    /// What a network keeps: the expectation was for the moment of asking.
    #[must_use]
    pub fn settled(&self) -> Self {
        match self.clone() {
            Self::Git {
                source,
                policy,
                packages,
                ..
            } => Self::Git {
                source,
                policy,
                hash: None,
                packages,
            },
            other => other,
        }
    }
}

/// Puts a namespace behind the gateway. Its descriptor travels with the first byte of the request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachRequest {
    /// Wished identity; the gateway allots one if absent, refuses one that is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<NetworkId>,
    /// The run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Chooses the workspace floor and keys the addresses of names.
    #[serde(default = "default_workspace")]
    pub workspace: String,
    /// The job's policy.
    pub policy: PolicySource,
    /// Socket that gets the broker connections; owned by root or by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<PathBuf>,
    /// What it is to its siblings, for a service of an app. A run has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<Membership>,
    /// Opaque to the gateway, shown in lists.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The workspace of requests that name none.
pub fn default_workspace() -> String {
    "default".to_owned()
}

/// One network, as attach acknowledges it and lists show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NetworkView {
    /// Identity.
    pub id: NetworkId,
    /// The run, if any.
    pub run: Option<String>,
    /// Workspace.
    pub workspace: String,
    /// The sandbox's IPv4 address.
    pub v4: Ipv4Addr,
    /// The sandbox's IPv6 address.
    pub v6: Ipv6Addr,
    /// DNS, broker and explicit proxy answer here.
    pub service_v4: Ipv4Addr,
    /// IPv6 twin.
    pub service_v6: Ipv6Addr,
    /// Hash of the effective policy (all layers); what enforcement is acknowledged for.
    pub policy: PolicyHash,
    /// Hash of the job policy's own text (or preset), for the caller to compare.
    pub job_policy: PolicyHash,
    /// Name of the job policy.
    pub policy_name: String,
    /// Whose word that is.
    #[serde(default)]
    pub stamp: Stamp,
    /// Counts replacements; 1 is the policy it was attached with.
    pub generation: Generation,
    /// Synthetic or real answers.
    pub names: NamesMode,
    /// Milliseconds since the epoch.
    pub attached_ms: i64,
    /// Live flows now.
    pub flows: usize,
    /// Budgets used.
    pub used: Used,
    /// What it is to its siblings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<Membership>,
    /// As given at attach.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A network is gone: no new flow starts, its flows are cut; links go in the background.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Detached {
    /// Identity.
    pub id: NetworkId,
    /// Flows that were cut.
    pub cut: usize,
    /// Budgets used in its life.
    pub used: Used,
}

/// New flows are decided by this policy from now on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyReplaced {
    /// Hash of the effective policy.
    pub policy: PolicyHash,
    /// Hash of the job policy's own text.
    pub job_policy: PolicyHash,
    /// Its generation.
    pub generation: Generation,
    /// Live flows that it no longer permits and that were cut.
    pub cut: usize,
}

/// One live flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlowView {
    /// Number in the record.
    pub id: u64,
    /// Network.
    pub network: NetworkId,
    /// Door.
    pub door: Door,
    /// Sandbox side.
    pub source: SocketAddr,
    /// What the sandbox addressed.
    pub destination: SocketAddr,
    /// What was dialled.
    pub upstream: SocketAddr,
    /// Name, where known.
    pub name: Option<String>,
    /// Class of the address.
    pub class: Option<Class>,
    /// Line that permitted it (of the narrowest layer).
    pub rule: Option<Place>,
    /// Milliseconds since the epoch.
    pub opened_ms: i64,
    /// Bytes from the sandbox.
    pub up: u64,
    /// Bytes to it.
    pub down: u64,
}

/// A change in the set of live flows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum FlowEvent {
    /// Was live when the stream began, or was opened since.
    Open(FlowView),
    /// Has ended; the record says how.
    Close {
        /// Network.
        network: NetworkId,
        /// Flow.
        id: u64,
    },
}

/// What would become of this destination on a network?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// `host:port`, `ip:port` (IPv6 in brackets) or a URL.
    pub destination: String,
    /// Transport.
    #[serde(default = "tcp")]
    pub protocol: Protocol,
    /// Server name that the client would send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    /// What the resolver would say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolves_to: Vec<IpAddr>,
    /// HTTP method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// HTTP path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

fn tcp() -> Protocol {
    Protocol::Tcp
}

/// Opens a connection into the sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IngressRequest {
    /// Port in the sandbox.
    pub port: u16,
    /// Address family: IPv6 instead of IPv4.
    #[serde(default)]
    pub v6: bool,
}

/// Captures a network's packets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    /// Which frames: words such as `tcp and port 443`; empty for all.
    #[serde(default)]
    pub filter: String,
    /// After so many frames it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// After so many seconds it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// The two ends of a TCP connection as the asker sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FourTuple {
    /// One end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

/// Whether a 4-tuple is an upstream socket of this gateway, and for whom.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Owner {
    /// Whether it is one of ours.
    pub ours: bool,
    /// For which network.
    pub network: Option<NetworkId>,
    /// Which flow.
    pub flow: Option<u64>,
}

/// Liveness.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Health {
    /// Version of the gateway.
    pub version: String,
    /// Whether anything may pass.
    pub open: bool,
    /// Whether the journal can be written.
    pub journal: bool,
    /// Live networks.
    pub networks: usize,
    /// Process id, to supervise.
    pub pid: u32,
}

/// Posture as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PostureView {
    /// `sealed`, `enforcing`, `without_enforcement`.
    pub state: String,
    /// "Private networks blocked", "Not enforced", "Turned off".
    pub label: String,
    /// Why it is sealed or without enforcement.
    pub cause: Option<String>,
    /// The command or change that fixes it.
    pub hint: Option<String>,
    /// Counts entries into Enforcing.
    pub generation: u64,
    /// Milliseconds since the epoch of the last change.
    pub since_ms: i64,
    /// How connects are answered, e.g. that the SYN queue is missing.
    pub notes: Vec<String>,
}

/// Outcome of one selftest probe.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Probe {
    /// Stable name.
    pub name: String,
    /// What must be true.
    pub promise: String,
    /// Whether it held.
    pub passed: bool,
    /// What was seen.
    pub seen: String,
}

/// Table of probes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SelftestReport {
    /// Every probe, in order.
    pub probes: Vec<Probe>,
}

impl SelftestReport {
    /// Whether every probe held (and there was one).
    pub fn passed(&self) -> bool {
        !self.probes.is_empty() && self.probes.iter().all(|p| p.passed)
    }
}

/// Every error reply (`application/problem+json`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// HTTP status.
    pub status: u16,
    /// Stable word for programs: `bad_request`, `not_allowed`, `not_found`, `conflict`, `policy_invalid`,
    /// `not_enforced_yet`, `source_empty`, `source_refused`, `namespace_refused`, `sealed`, `journal`, `full`, `denied`, `kernel`, `internal`.
    pub code: String,
    /// What is wrong, lower case.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Mistakes of a policy text, `file:line:column: message`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<String>,
}

impl Problem {
    /// A problem without a hint.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.into(),
            hint: None,
            mistakes: Vec::new(),
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the mistakes of a policy text.
    #[must_use]
    pub fn mistakes(mut self, mistakes: impl IntoIterator<Item = String>) -> Self {
        self.mistakes.extend(mistakes);
        self
    }
}
