//! Why a request to the gateway has no answer, and what to do about it.

use std::io;

use super::super::api::Problem;
use super::super::exchange::{CallError, Refusal};

impl Refusal for Problem {
    const WHO: &'static str = "gateway";
}

/// Why a request has no answer.
pub type ClientError = CallError<Problem>;

impl ClientError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Connect { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some(
                    "this user may not use the control socket; see `gateway.control_users`"
                        .to_owned(),
                )
            }
            Self::Connect { .. } => Some(
                "is it running? `sallyport gateway` starts it, `gateway.control` names its socket"
                    .to_owned(),
            ),
            Self::Refused(problem) => problem.hint.clone(),
            Self::Malformed(_) => {
                Some("gateway and client should be of the same version".to_owned())
            }
            Self::Http(_) | Self::Late(_) => None,
        }
    }

    /// The problem, if the gateway itself refused.
    pub fn problem(&self) -> Option<&Problem> {
        if let Self::Refused(problem) = self {
            Some(problem)
        } else {
            None
        }
    }
}
