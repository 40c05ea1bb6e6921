//! The gateway about itself: its life, its posture, its selftest.

use serde::{Deserialize, Serialize};

pub use crate::selftest::report::{
    Check, ContainerReport, Family, Outcome, SelftestDone, SelftestReport, Variant, Why,
};

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
    /// What holds the kernel rules: `nftables` or `iptables`.
    #[serde(default)]
    pub enforcement: String,
    /// How connects are answered, e.g. that the SYN queue is missing.
    pub notes: Vec<String>,
    /// How sandboxes are attached now.
    #[serde(default)]
    pub via: super::Via,
    /// The newest selftest, if one has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selftest: Option<SelftestDone>,
}
