//! Networks as they are asked for and shown: attach, detach, policy.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use netpolicy::ids::{Generation, NetworkId, PolicyHash};
use netpolicy::policy::NamesMode;
use serde::{Deserialize, Serialize};

use crate::limits::Used;
use crate::member::Membership;
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

/// How a sandbox reaches the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// A link of its own into the gateway's namespace; the descriptor is the sandbox's namespace.
    #[default]
    Link,
    /// No network but `lo`, where the explicit proxy answers; the descriptor is that listener. Only where there is no
    /// kernel part.
    Socket,
}

impl Via {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
    fn is_link(&self) -> bool {
        *self == Self::Link
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
    /// What the descriptor is.
    #[serde(default, skip_serializing_if = "Via::is_link")]
    pub via: Via,
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
    /// How it reaches the gateway.
    #[serde(default, skip_serializing_if = "Via::is_link")]
    pub via: Via,
    /// What is not as it should be with the gateway, in the words of its posture; `None` while it enforces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
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
