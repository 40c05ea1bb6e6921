//! What sandboxes stand on: kernel, engine, isolation classes. When it changed, the gateway proves itself again first.
//!
//! Owns `STATE_DIR/fingerprint.json`: what it was when the newest selftest passed. The gateway does not know the engine
//! and must not, so the runner, which does, asks it for a selftest before it takes runs. Failure stance: only a selftest
//! that passed is noted, so whatever came between is asked for again at the next start; a failed one seals the gateway
//! by itself, and a gateway that does not answer gives no network to any run.

use std::io;
use std::path::{Path, PathBuf};

use gateway::control::Client;
use serde::{Deserialize, Serialize};

use crate::sandbox::{Facts, Isolation};

/// Of one machine at one time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Release of the running kernel.
    pub kernel: String,
    /// Engine and version.
    pub engine: String,
    /// Isolation classes that it has.
    pub isolation: Vec<Isolation>,
}

/// What was noted, with the selftest's result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Noted {
    #[serde(flatten)]
    fingerprint: Fingerprint,
    /// How many rows passed.
    passed: usize,
    /// Milliseconds that the selftest took.
    took_ms: u64,
}

impl Fingerprint {
    /// Of this machine.
    pub fn of(facts: &Facts) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            kernel: kernel.trim().to_owned(),
            engine: facts.name.clone(),
            isolation: facts.isolation.clone(),
        }
    }
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("fingerprint.json")
}

/// What was noted; a file that is not understood is as good as none.
fn noted(state_dir: &Path) -> Option<Noted> {
    let text = std::fs::read_to_string(path(state_dir)).ok()?;
    serde_json::from_str(&text).ok()
}

fn note(state_dir: &Path, noted: &Noted) -> io::Result<()> {
    std::fs::write(path(state_dir), serde_json::to_vec(noted)?)
}

/// The outcome of the selftest that a gateway opened with, if it passed: rows and milliseconds.
async fn opened(gateway: &Client) -> Option<(usize, u64)> {
    let done = gateway.posture().await.ok()?.selftest?;
    (done.failed == 0 && done.passed > 0).then_some((done.passed, done.took_ms))
}

fn keep(state_dir: &Path, fingerprint: Fingerprint, (passed, took_ms): (usize, u64)) {
    let noted = Noted {
        fingerprint,
        passed,
        took_ms,
    };
    if let Err(error) = note(state_dir, &noted) {
        tracing::warn!(%error, "noting what the selftest passed on");
    }
}

/// Has the gateway prove itself, if it has not under this fingerprint.
pub async fn prove(state_dir: &Path, now: Fingerprint, gateway: &Client) {
    let before = noted(state_dir);
    if before
        .as_ref()
        .is_some_and(|noted| noted.fingerprint == now)
    {
        return;
    }
    match &before {
        Some(before) => {
            tracing::info!(
                ?before,
                ?now,
                "kernel or engine changed: asking for a selftest"
            );
        }
        // the first start: the gateway has proved itself on this kernel when it opened
        None => {
            if let Some(done) = opened(gateway).await {
                return keep(state_dir, now, done);
            }
        }
    }
    match gateway.selftest().await {
        Ok(report) if report.passed() => {
            let passed = report.count(gateway::control::api::Outcome::Passed);
            keep(state_dir, now, (passed, report.took_ms));
        }
        // the gateway seals and says why
        Ok(_) => tracing::error!("the selftest failed after kernel or engine changed"),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the gateway could not be asked for a selftest");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Noted {
        Noted {
            fingerprint: Fingerprint {
                kernel: "6.1".to_owned(),
                engine: "Docker 27".to_owned(),
                isolation: vec![Isolation::Hardened],
            },
            passed: 7,
            took_ms: 3,
        }
    }

    #[test]
    fn what_is_noted_is_found_again_and_a_damaged_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(noted(folder.path()), None);
        note(folder.path(), &some()).unwrap();
        assert_eq!(noted(folder.path()), Some(some()));
        std::fs::write(path(folder.path()), "{").unwrap();
        assert_eq!(noted(folder.path()), None);
    }

    #[test]
    fn another_kernel_engine_or_class_is_another_fingerprint() {
        let one = some().fingerprint;
        let mut others = [one.clone(), one.clone(), one.clone()];
        others[0].kernel.push('1');
        others[1].engine.push('1');
        others[2].isolation.push(Isolation::Gvisor);
        assert!(others.iter().all(|other| *other != one));
    }
}
