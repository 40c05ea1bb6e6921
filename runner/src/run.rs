//! Runs: their identity, their events as callers see them, and how they end.
//!
//! Owns the wire types of a run's life. Exactly one [`Event::Ended`] or [`Event::Failed`] closes a stream, whatever
//! raced. Refuses to own how a run is driven.

use std::fmt;
use std::str::FromStr;

use netpolicy::ids::{NetworkId, PolicyHash};
use serde::{Deserialize, Serialize};

use crate::sandbox::Isolation;
use crate::summary::Summary;

/// A run's identity: sixteen hex digits, never used twice.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(Box<str>);

/// The text is no [`RunId`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a run's id has 16 lower-case hex digits")]
pub struct RunIdError;

impl RunId {
    /// A fresh one.
    pub fn allot() -> Self {
        let text = uuid::Uuid::new_v4().simple().to_string();
        Self(text.get(..16).unwrap_or(&text).into())
    }

    /// The text form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = RunIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = text.len() == 16
            && text
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(RunIdError)
        }
    }
}

impl TryFrom<String> for RunId {
    type Error = RunIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0.into()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The command ended by itself.
    Exited,
    /// The memory limit ended it.
    OutOfMemory,
    /// The timeout ended it.
    TimedOut,
    /// Someone cancelled it, or whoever asked for it went away.
    Cancelled,
    /// Its network is gone from the gateway.
    NetworkLost,
    /// The runner stopped.
    RunnerStopped,
}

impl EndReason {
    /// The exit code that callers report: the command's own, or the one that says what ended it.
    pub fn exit_code(self, command: i64) -> i64 {
        match self {
            Self::Exited | Self::OutOfMemory => command,
            Self::TimedOut => 124,
            Self::Cancelled | Self::NetworkLost | Self::RunnerStopped => 125,
        }
    }
}

/// One line of a run's stream.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run has an identity; cancel it by this.
    Accepted {
        /// Which.
        run: RunId,
    },
    /// Something takes its time before the command starts.
    Preparing {
        /// What, for people.
        step: String,
    },
    /// The network is enforced for exactly this policy and the command is starting.
    Started(Started),
    /// Standard output.
    Stdout(Data),
    /// Standard error.
    Stderr(Data),
    /// From here on output is dropped.
    OutputLimit {
        /// Bytes that were passed on.
        bytes: u64,
    },
    /// What the network saw. Precedes the last event, when the record could be read.
    Flows(Summary),
    /// It is over. Last event.
    Ended {
        /// What a caller should exit with.
        code: i64,
        /// Why.
        reason: EndReason,
        /// What could not be cleaned up, if anything; the reaper tries again.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        leftovers: Vec<String>,
    },
    /// It could not be run (exit code 125). Last event.
    Failed(Failure),
}

/// What a run runs under.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Started {
    /// Its network.
    pub network: NetworkId,
    /// Hash of the effective policy that is enforced.
    pub policy: PolicyHash,
    /// Hash of the job policy's own text.
    pub job_policy: PolicyHash,
    /// Isolation class.
    pub isolation: Isolation,
    /// Engine.
    pub engine: String,
    /// Exactly which image.
    pub image: String,
    /// What holds less here than was asked for, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Bytes of output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Data {
    /// Any bytes; base64 on the wire, because output need not be text.
    #[serde(with = "base64_bytes")]
    pub data: bytes::Bytes,
}

/// Why a run could not be run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Stable word for programs: `bad_request`, `busy`, `image`, `isolation`, `engine`, `gateway`, `policy`, `packages`,
    /// `internal`, `cancelled`.
    pub code: String,
    /// What is wrong, lower case.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Every single mistake, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<String>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            hint: None,
            mistakes: Vec::new(),
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

pub(crate) mod base64_bytes {
    //! Bytes as base64 text.

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD
            .decode(text.as_bytes())
            .map(Bytes::from)
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_keeps_every_byte() {
        let bytes: Vec<u8> = (0..=255).collect();
        let line = serde_json::to_string(&Event::Stdout(Data {
            data: bytes.clone().into(),
        }))
        .unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(
            serde_json::from_str::<Event>(&line).unwrap(),
            Event::Stdout(Data { data: bytes.into() })
        );
    }

    #[test]
    fn run_ids_are_fresh_and_fit_network_names() {
        let (one, other) = (RunId::allot(), RunId::allot());
        assert_ne!(one, other);
        assert_eq!(one.as_str().parse::<RunId>(), Ok(one.clone()));
        assert!(format!("run-{one}").parse::<NetworkId>().is_ok());
        assert!("../../etc/passwd00".parse::<RunId>().is_err());
    }
}
