//! What is written: typed entries, one JSON object a line.

use std::net::{IpAddr, SocketAddr};

use netpolicy::addr::Class;
use netpolicy::decide::{Denial, Direction, Ground, LayerKind};
use netpolicy::ids::{Generation, NetworkId, PolicyHash};
use netpolicy::policy::{Place, Protocol};
use netpolicy::reason::Reason;
use serde::{Deserialize, Serialize};

use crate::network::flows::Door;
use crate::selftest::report::SelftestDone;

/// One entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// A flow was permitted and dialled.
    Open(Box<Open>),
    /// It ended.
    Close(Box<Close>),
    /// Something was denied.
    Denial(Box<Denied>),
    /// A permitted destination failed (refused, unreachable, timed out).
    Failure(Box<Denied>),
    /// A network was attached or detached, or its policy replaced.
    Network(NetworkChange),
    /// A source of policies moved, or was refused.
    Source(SourceChange),
    /// The posture changed.
    Posture {
        /// Label as people see it.
        state: String,
        /// Why.
        cause: String,
        /// Which enforcement generation.
        generation: u64,
    },
    /// The escape suite ran.
    Selftest(Box<SelftestDone>),
    /// The gateway started after an unclean end: entries of up to this many milliseconds may be missing.
    Gap {
        /// Loss window.
        window_ms: u64,
    },
    /// `count` equal denials (or failures) were folded into this one.
    Folded {
        /// The first of them.
        first: Box<Denied>,
        /// How many.
        count: u64,
        /// Whether they were failures of what is permitted.
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        failed: bool,
    },
}

/// Who and where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Subject {
    /// Network.
    pub network: NetworkId,
    /// Run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run: Option<String>,
    /// Door.
    pub door: Door,
    /// Direction.
    pub direction: Direction,
    /// Protocol.
    pub protocol: Protocol,
    /// Sandbox side.
    pub source: SocketAddr,
    /// Name, where known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// What the sandbox addressed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<IpAddr>,
    /// Destination port (0 for a DNS question).
    pub port: u16,
}

/// A line of a policy that decided.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DecidedBy {
    /// Layer.
    pub layer: LayerKind,
    /// Policy name.
    pub policy: String,
    /// File, line, column; the commit where the gateway read the file from one.
    pub at: Place,
    /// Whose word the file is.
    #[serde(default)]
    pub vouched: Vouched,
}

/// Open record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Open {
    /// Flow id.
    pub flow: u64,
    /// Who and where.
    pub subject: Subject,
    /// Address and port dialled.
    pub upstream: SocketAddr,
    /// Local end of the upstream socket.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local: Option<SocketAddr>,
    /// Class of the address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub class: Option<Class>,
    /// Lines that permitted it, one a layer.
    pub by: Vec<DecidedBy>,
    /// Hash of the effective policy.
    pub policy: PolicyHash,
    /// Its generation in this network.
    pub generation: Generation,
}

/// Close record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Close {
    /// Flow id.
    pub flow: u64,
    /// Who and where (so that a close stands on its own).
    pub subject: Subject,
    /// Server name seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sni: Option<String>,
    /// First ALPN offers.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub alpn: Vec<String>,
    /// Last request's method, path (never the query).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub http: Option<(String, String)>,
    /// Datagrams from the sandbox and to it, of a session over UDP.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub datagrams: Option<(u64, u64)>,
    /// Bytes from the sandbox.
    pub up: u64,
    /// Bytes to it.
    pub down: u64,
    /// Milliseconds from open to close.
    pub duration_ms: u64,
    /// How it ended: `client_closed`, `server_closed`, `reset`, `idle`, or a reason code.
    pub end: String,
}

/// Denial or failure record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Denied {
    /// Who and where.
    pub subject: Subject,
    /// Why.
    pub reason: Reason,
    /// Which line, when a policy made it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub by: Option<DecidedBy>,
    /// Class of the address that decided, or of the one that failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub class: Option<Class>,
    /// Address and port that did not answer, of a failure; records of earlier versions lack it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub upstream: Option<SocketAddr>,
    /// Server name or Host seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub heard: Option<String>,
    /// Hash of the effective policy.
    pub policy: PolicyHash,
    /// Its generation.
    pub generation: Generation,
}

/// Attach, detach, replacement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NetworkChange {
    /// Network.
    pub network: NetworkId,
    /// Run.
    pub run: Option<String>,
    /// `attached`, `detached`, `policy_replaced`; `adopted` (by a restarted gateway: flows of before that have no close
    /// were reset); `lost` (its link was deleted), `second_interface` (its sandbox got one), `superseded` (its policy has
    /// no form under changed floors).
    pub change: String,
    /// Effective policy.
    pub policy: PolicyHash,
    /// Generation.
    pub generation: Generation,
}

/// A source of policies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceChange {
    /// Its name.
    pub source: String,
    /// `loaded` (the commit is in force), `refused` (it is not, and `why` says why).
    pub change: String,
    /// The commit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commit: Option<String>,
    /// What was in force before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<String>,
    /// Whether history was rewritten or set back for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub moved: Option<String>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
}

/// Whose word the file of a deciding line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vouched {
    /// Its sender's: the gateway did not see where the text comes from.
    #[default]
    Unverified,
    /// A commit's, named with the line, that the gateway read itself.
    Commit,
    /// Root's: a floor of this machine.
    Floor,
    /// Shipped with the gateway.
    Shipped,
}

impl Vouched {
    fn of(layer: LayerKind, at: &Place) -> Self {
        match (layer, &at.commit) {
            (_, Some(_)) => Self::Commit,
            _ if at.file.starts_with("preset:") || at.file.starts_with("set:") => Self::Shipped,
            (LayerKind::Instance | LayerKind::Workspace, None) => Self::Floor,
            _ => Self::Unverified,
        }
    }
}

impl Entry {
    /// The network that it is about, if it is about one.
    pub fn network(&self) -> Option<&NetworkId> {
        Some(match self {
            Self::Open(open) => &open.subject.network,
            Self::Close(close) => &close.subject.network,
            Self::Denial(denied) | Self::Failure(denied) | Self::Folded { first: denied, .. } => {
                &denied.subject.network
            }
            Self::Network(change) => &change.network,
            Self::Source(_) | Self::Selftest(_) | Self::Posture { .. } | Self::Gap { .. } => {
                return None;
            }
        })
    }
}

impl NetworkChange {
    /// Whether the network is gone with this.
    pub fn ends(&self) -> bool {
        matches!(
            self.change.as_str(),
            "detached" | "lost" | "second_interface" | "superseded"
        )
    }
}

impl DecidedBy {
    /// From a denial that a policy made.
    pub fn denial(denial: &Denial) -> Option<Self> {
        let (layer, at) = (denial.layer?, denial.rule.clone()?);
        Some(Self {
            vouched: Vouched::of(layer, &at),
            layer,
            policy: denial.policy.clone()?,
            at,
        })
    }

    /// From a ground.
    pub fn ground(ground: &Ground) -> Vec<Self> {
        let by = |(layer, policy, at): &(LayerKind, String, Place)| Self {
            layer: *layer,
            policy: policy.clone(),
            at: at.clone(),
            vouched: Vouched::of(*layer, at),
        };
        ground.rules().iter().map(by).collect()
    }
}
