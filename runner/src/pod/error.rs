//! Why a pod could not be had, and how callers see that.

use std::io;
use std::path::PathBuf;

use gateway::control::ClientError;
use netpolicy::ids::{Generation, NetworkId, PolicyHash};

use crate::run::Failure;
use crate::sandbox::SandboxError;

/// Why a pod could not be had.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// The engine.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The gateway.
    #[error("{act}: {source}")]
    Gateway {
        /// What was asked of it.
        act: &'static str,
        /// Its answer.
        #[source]
        source: ClientError,
    },
    /// The host's files.
    #[error("preparing {path}: {source}")]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The holder sent nothing, or nonsense.
    #[error("receiving the sandbox's network namespace: {0}")]
    Handover(io::Error),
    /// The gateway enforces something else than was asked for.
    #[error("the gateway acknowledged policy {got} where {wanted} was asked for")]
    OtherPolicy {
        /// What was asked for.
        wanted: PolicyHash,
        /// What is enforced.
        got: PolicyHash,
    },
    /// The gateway speaks of another network than the one that was asked for.
    #[error("the gateway acknowledged network {got} where {wanted} was asked for")]
    OtherNetwork {
        /// What was asked for.
        wanted: NetworkId,
        /// What it names.
        got: NetworkId,
    },
    /// The gateway's word is older than the order: it may be about the policy of before.
    #[error(
        "the gateway acknowledged generation {} of a policy that had generation {} before it was replaced", got.0, before.0
    )]
    OldGeneration {
        /// Before the policy was replaced.
        before: Generation,
        /// After it.
        got: Generation,
    },
    /// No such preset.
    #[error("there is no policy preset called {0:?}")]
    NoSuchPreset(String),
}

impl From<PodError> for Failure {
    fn from(error: PodError) -> Self {
        let (code, hint, mistakes) = match &error {
            PodError::Sandbox(source) => ("engine", source.hint(), Vec::new()),
            PodError::Gateway { source, .. } => {
                let problem = source.problem();
                let policy = problem.is_some_and(|p| {
                    matches!(p.code.as_str(), "policy_invalid" | "not_enforced_yet")
                });
                let mistakes = problem.map(|p| p.mistakes.clone()).unwrap_or_default();
                (
                    if policy { "policy" } else { "gateway" },
                    source.hint(),
                    mistakes,
                )
            }
            PodError::NoSuchPreset(_) => (
                "policy",
                Some("`sallyport policy presets` lists them".to_owned()),
                Vec::new(),
            ),
            PodError::OtherPolicy { .. }
            | PodError::OtherNetwork { .. }
            | PodError::OldGeneration { .. } => (
                "gateway",
                Some("nothing was started; are gateway and runner of one version?".to_owned()),
                Vec::new(),
            ),
            PodError::Folder { .. } | PodError::Handover(_) => ("internal", None, Vec::new()),
        };
        Self {
            code: code.to_owned(),
            message: error.to_string(),
            hint,
            mistakes,
        }
    }
}
