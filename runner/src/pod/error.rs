//! Why a pod could not be had, and how callers see that.

use std::io;
use std::path::PathBuf;

use gateway::control::ClientError;
use netpolicy::ids::PolicyHash;

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
            PodError::Folder { .. } | PodError::Handover(_) | PodError::OtherPolicy { .. } => {
                ("internal", None, Vec::new())
            }
        };
        Self {
            code: code.to_owned(),
            message: error.to_string(),
            hint,
            mistakes,
        }
    }
}
