//! What a runner and its console say to each other, as JSON over HTTP. The runner asks, the console answers:
//!
//! | request | body | answer |
//! |---|---|---|
//! | `POST /runner/v1/hello` | [`Hello`] | [`Welcome`] |
//! | `POST /runner/v1/claim` | [`Claim`] | [`Work`], or nothing after a while |
//! | `POST /runner/v1/keep` | [`Keep`] | [`Kept`], as soon as one is to end |
//! | `POST /runner/v1/runs/{run}/begin` | [`Fenced`] | [`Begin`] |
//! | `POST /runner/v1/runs/{run}/tell` | [`Tell`] | [`Heard`] |
//! | `POST /runner/v1/runs/{run}/finish` | [`Finish`] | nothing |
//!
//! Every request but the first names the session that the hello began: the newest process with a token is the runner,
//! earlier ones are told that they are not (409 `superseded`). What is told carries a cursor: told again it is kept once,
//! and a runner that was cut off goes on where the console says. 410 `stale`: the run is not this runner's any more.

use bytes::Bytes;
use gateway::record::Line;
use serde::{Deserialize, Serialize};

use crate::job::JobRequest;
use crate::run::{EndReason, base64_bytes};
use crate::sandbox::Isolation;

/// The header that names the session.
pub const SESSION: &str = "sallyport-session";
/// What is told at once: small enough for any proxy, large enough that a run that prints is not slowed down.
pub const MOST_BYTES: usize = 256 << 10;
/// Pieces and steps that are told at once.
pub const MOST_LINES: usize = 200;
/// Records that are told at once: each may hold a name and a path.
pub const MOST_FLOWS: usize = 40;

/// Who asks for work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Its version.
    pub version: String,
    /// The name of this process, made up by it.
    pub session: String,
    /// Its public key ([`crate::sealed::PublicKey`]).
    pub key: String,
    /// Which engine.
    pub engine: String,
    /// Isolation classes that the host has.
    pub isolation: Vec<Isolation>,
    /// Runs at once.
    pub most: u32,
}

/// It may.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// The runner's id.
    pub runner: String,
    /// A run whose runner is silent for so long is given up.
    pub lease_ms: u64,
}

/// Asks for work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// The runs that it has. Whatever else was given to it got lost on the way.
    pub holding: Vec<String>,
}

/// A run to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Work {
    /// Which.
    pub run: String,
    /// The number of the claim.
    pub fence: i64,
    /// What to run.
    pub job: JobRequest,
    /// What the command reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Data>,
    /// Variables that are secret: a JSON object, sealed to the runner's key with [`context`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<Data>,
}

/// What a run's secrets are bound to.
pub fn context(run: &str, fence: i64) -> Vec<u8> {
    format!("run {run} claim {fence}").into_bytes()
}

/// Bytes, as base64.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Data(#[serde(with = "base64_bytes")] pub Bytes);

/// Names a claim.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fenced {
    /// The number of the claim.
    pub fence: i64,
}

/// Says that runs are alive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Keep {
    /// Which, with the numbers of their claims.
    pub runs: Vec<(String, i64)>,
    /// Those of them that are ending already: nothing is to be waited for because of them.
    pub ending: Vec<String>,
}

/// Which of them are to end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Somebody cancelled these.
    pub cancelled: Vec<String>,
    /// These are not this runner's any more.
    pub stale: Vec<String>,
}

/// Whether a run may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Begin {
    /// It may.
    Yes,
    /// Somebody cancelled it: finish it so.
    Cancelled,
}

/// What a run printed, did and reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tell {
    /// The number of the claim.
    pub fence: i64,
    /// The number of the first byte of `output`.
    pub starts: i64,
    /// What it printed.
    #[serde(default)]
    pub output: Vec<Printed>,
    /// Its timeline, numbered from 1.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// The gateway's records of its network.
    #[serde(default)]
    pub flows: Vec<Line>,
}

/// A piece of output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Printed {
    /// Whether it was printed to standard error.
    pub error: bool,
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// The bytes.
    pub data: Data,
}

/// An entry of the timeline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Its number.
    pub seq: i64,
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// What kind: `preparing`, `started`, `output_limit`, `flows`, `ended`, `failed`.
    pub kind: String,
    /// What.
    pub data: serde_json::Value,
}

/// Up to where it was heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Heard {
    /// The number of the next byte of output.
    pub output: i64,
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finish {
    /// The number of the claim.
    pub fence: i64,
    /// How.
    pub end: Ending,
}

/// How it ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It ran.
    Ended {
        /// What the command exited with.
        code: i64,
        /// What ended it.
        reason: EndReason,
    },
    /// It could not be run.
    Failed {
        /// A word of [`crate::run::Failure`].
        code: String,
        /// Why, for people.
        message: String,
    },
    /// It was cancelled before it began.
    Cancelled,
}
