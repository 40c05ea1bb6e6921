//! What a selftest found: rows, the table of them, and what of it stands in the record.

use serde::{Deserialize, Serialize};

/// What a check is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Frames below IP.
    Ethernet,
    /// Neither alone.
    Both,
}

/// Where the probe ran.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// A network namespace of the gateway's own, with all rights inside.
    #[default]
    Namespace,
    /// A container of the engine's, hardened.
    Hardened,
    /// A container under gVisor.
    Gvisor,
}

/// How a check came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As promised.
    Passed,
    /// Not as promised, or it could not be made.
    Failed,
    /// This machine offers nothing to try it on.
    Skipped,
}

/// One row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Stable name; one of each family and variant.
    pub check: String,
    /// What it is about.
    pub family: Family,
    /// Where the probe ran.
    pub variant: Variant,
    /// How it came out.
    pub outcome: Outcome,
    /// What must be true.
    pub promise: String,
    /// What was seen.
    pub detail: String,
}

/// The table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SelftestReport {
    /// Every row, in order.
    pub checks: Vec<Check>,
    /// Milliseconds that it took.
    pub took_ms: u64,
}

impl SelftestReport {
    /// Whether every check held, and one did.
    pub fn passed(&self) -> bool {
        self.first_failed().is_none() && self.count(Outcome::Passed) > 0
    }

    /// The first row that failed.
    pub fn first_failed(&self) -> Option<&Check> {
        self.checks.iter().find(|c| c.outcome == Outcome::Failed)
    }

    /// How many rows came out so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.checks.iter().filter(|c| c.outcome == outcome).count()
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Ethernet => "ethernet",
            Self::Both => "both",
        })
    }
}

impl std::fmt::Display for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Namespace => "namespace",
            Self::Hardened => "hardened",
            Self::Gvisor => "gvisor",
        })
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        })
    }
}

/// Why a runner tried its containers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Somebody wanted to know.
    Asked,
    /// Engine or kernel are not what they were.
    Engine,
}

impl Why {
    /// As the record has it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Engine => "engine",
        }
    }
}

/// What a runner saw of probes in containers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerReport {
    /// Why it tried.
    pub why: Why,
    /// Milliseconds that it took.
    pub took_ms: u64,
    /// Rows of any classes.
    pub checks: Vec<Check>,
}

/// A selftest as the record keeps it: how many rows came out how, and each that did not pass.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SelftestDone {
    /// Milliseconds since the epoch of its end.
    pub at_ms: i64,
    /// Why it ran: `opening` (before the gateway enforced), `schedule`, `asked`, `engine` (a runner saw its engine start).
    pub why: String,
    /// Where the probes ran.
    pub variant: Variant,
    /// Milliseconds that it took.
    pub took_ms: u64,
    /// Rows that passed.
    pub passed: usize,
    /// Rows that failed.
    pub failed: usize,
    /// Rows that could not be tried here.
    pub skipped: usize,
    /// `check/family` of every row that passed.
    pub held: Vec<String>,
    /// Every other row.
    pub rest: Vec<Check>,
}

impl SelftestDone {
    /// What of a report is kept.
    pub fn of(report: &SelftestReport, why: &str, at_ms: i64) -> Self {
        let (held, rest): (Vec<&Check>, Vec<&Check>) = report
            .checks
            .iter()
            .partition(|c| c.outcome == Outcome::Passed);
        Self {
            at_ms,
            why: why.to_owned(),
            variant: report.checks.first().map(|c| c.variant).unwrap_or_default(),
            took_ms: report.took_ms,
            passed: held.len(),
            failed: report.count(Outcome::Failed),
            skipped: report.count(Outcome::Skipped),
            held: held
                .iter()
                .map(|c| format!("{}/{}", c.check, c.family))
                .collect(),
            rest: rest.into_iter().cloned().collect(),
        }
    }

    /// In one line, such as "96 passed, 1 failed, 2 skipped".
    pub fn counts(&self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}
