//! Asking an engine: every question has a limit, every failure says what was being done, and what is gone already
//! counts as removed.

use std::time::Duration;

use bollard::errors::Error;

use crate::sandbox::SandboxError;

/// Ordinary requests take milliseconds, under a storm of starts seconds.
const PATIENCE: Duration = Duration::from_mins(1);

pub(super) fn engine(act: &'static str) -> impl FnOnce(Error) -> SandboxError {
    move |source| SandboxError::Engine {
        act,
        source: Box::new(source),
    }
}

pub(super) fn host(act: &'static str) -> impl FnOnce(std::io::Error) -> SandboxError {
    move |source| SandboxError::Host { act, source }
}

pub(super) fn status(error: &Error) -> Option<u16> {
    if let Error::DockerResponseServerError { status_code, .. } = error {
        Some(*status_code)
    } else {
        None
    }
}

/// Gone, or not running any more: what was to be reached is reached.
pub(super) fn settled(result: Result<(), Error>, act: &'static str) -> Result<(), SandboxError> {
    match result {
        Err(error) if matches!(status(&error), Some(404 | 409 | 304)) => Ok(()),
        other => other.map_err(engine(act)),
    }
}

pub(super) async fn within<T>(
    act: &'static str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, SandboxError> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(result) => result.map_err(engine(act)),
        Err(_) => Err(SandboxError::Late {
            act,
            limit: PATIENCE,
        }),
    }
}

/// Podman answers 500 where Docker answers 409 when a container is not running.
pub(super) fn settled_or_stopped(
    result: Result<(), Error>,
    act: &'static str,
) -> Result<(), SandboxError> {
    match result {
        Err(Error::DockerResponseServerError {
            status_code: 500,
            message,
        }) if message.contains("not running") || message.contains("state") => Ok(()),
        other => settled(other, act),
    }
}
