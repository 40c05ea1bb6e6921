//! Why a request to the gateway has no answer, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::super::api::Problem;
use super::super::exchange::ExchangeError;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there, or the socket may not be opened.
    #[error("connecting to the gateway at {path}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The gateway said no; the problem says why.
    #[error(transparent)]
    Refused(#[from] Problem),
    /// The connection broke.
    #[error("speaking to the gateway")]
    Http(#[from] hyper::Error),
    /// The answer is not what the API promises (another version?).
    #[error("reading the gateway's answer: {0}")]
    Malformed(String),
    /// No answer in time.
    #[error("the gateway did not answer within {0:?}")]
    Late(Duration),
}

impl From<ExchangeError> for ClientError {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Connect { path, source } => Self::Connect { path, source },
            ExchangeError::Http(error) => Self::Http(error),
            ExchangeError::Malformed(what) => Self::Malformed(what),
            ExchangeError::Late(patience) => Self::Late(patience),
        }
    }
}

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
