//! What sandboxes stand on: kernel, engine, isolation classes. When it changed, the gateway proves itself again first.
//!
//! Owns `STATE_DIR/fingerprint.json`: what it was when the newest selftest passed. The gateway does not know the engine
//! and must not, so the runner, which does, asks it for a selftest before it takes runs, and again when the engine was
//! restarted or upgraded under it; then it tries its containers ([`selftest`]). Failure stance: only what passed is
//! noted, so whatever came between is asked for again; a failed one seals the gateway by itself, and a gateway that does
//! not answer gives no network to any run.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway::control::Client;
use gateway::control::api::{Outcome, Why};
use serde::{Deserialize, Serialize};

use crate::Runner;
use crate::sandbox::{Facts, Isolation};
use crate::selftest;

/// Who starts a runner waits a minute for it; containers that take longer are tried while it runs.
const LONGEST_START: Duration = Duration::from_secs(40);
/// How often an engine is asked what it is; that it hangs up is heard at once.
const LOOK: Duration = Duration::from_secs(30);
/// Before an engine that hung up is spoken to again.
const STEP: Duration = Duration::from_secs(1);
/// An engine's conversation that lasted for less never began.
const LASTING: Duration = Duration::from_secs(1);

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

/// What stands when a runner starts: where it is not what was noted, the gateway proves itself before runs are taken.
pub async fn at_start(runner: &Arc<Runner>) -> Standing {
    let now = Fingerprint::of(runner.pods.backend.facts());
    let (folder, gateway) = (&runner.config.state_dir, &runner.pods.gateway);
    match noted(folder) {
        Some(before) if before.fingerprint == now => return Standing::Proved(now),
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
                keep(folder, now.clone(), done);
                return Standing::Proved(now);
            }
        }
    }
    let Some(passed) = itself(gateway).await else {
        return Standing::Unproved;
    };
    let tried = contained(runner, now.clone(), passed);
    match tokio::time::timeout(LONGEST_START, tried).await {
        Ok(standing) => standing,
        Err(_) => Standing::Contained(now, passed),
    }
}

/// How far a proof has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// All of it, under this fingerprint.
    Proved(Fingerprint),
    /// The gateway's own part; containers are to be tried.
    Contained(Fingerprint, (usize, u64)),
    /// Nothing of it.
    Unproved,
}

/// Has a gateway prove itself; rows and milliseconds, if all passed.
async fn itself(gateway: &Client) -> Option<(usize, u64)> {
    match gateway.selftest().await {
        Ok(report) if report.passed() => Some((report.count(Outcome::Passed), report.took_ms)),
        // the gateway seals and says why
        Ok(_) => {
            tracing::error!("the selftest failed after kernel or engine changed");
            None
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the gateway could not be asked for a selftest");
            None
        }
    }
}

/// Tries containers under what stands now; what it is then.
async fn contained(runner: &Arc<Runner>, now: Fingerprint, passed: (usize, u64)) -> Standing {
    let rows = selftest::perform(runner, Why::Engine, &[]).await;
    let count = |outcome| rows.iter().filter(|row| row.outcome == outcome).count();
    if count(Outcome::Failed) > 0 {
        // sealed until somebody mends it and asks again: trying it over and over proves nothing new
        tracing::error!("a sandbox in a container was not held back");
    } else {
        let (rows, took_ms) = passed;
        let rows = rows + count(Outcome::Passed);
        keep(&runner.config.state_dir, now.clone(), (rows, took_ms));
    }
    Standing::Proved(now)
}

/// Watches the engine of a running runner: when it was restarted or is another one, gateway and containers are tried
/// again. Runs go on meanwhile; what fails seals.
pub async fn watch(runner: &Arc<Runner>, at_start: Standing) {
    let backend = &runner.pods.backend;
    let mut standing = at_start;
    let mut gone = backend.until_gone();
    let mut since = Instant::now();
    loop {
        if let Standing::Contained(now, passed) = standing {
            standing = contained(runner, now, passed).await;
        }
        if tokio::time::timeout(LOOK, &mut gone).await.is_ok() {
            // one that hangs up at once tells of no restart
            if since.elapsed() >= LASTING {
                tracing::info!("the engine ended its conversation: it was restarted");
                standing = Standing::Unproved;
            }
            tokio::time::sleep(STEP).await;
            since = Instant::now();
            gone = backend.until_gone();
        }
        // one that is starting answers soon
        let Ok(facts) = backend.look_again().await else {
            continue;
        };
        let now = Fingerprint::of(&facts);
        if standing == Standing::Proved(now.clone()) {
            continue;
        }
        tracing::info!(
            ?now,
            "engine or kernel may have changed: asking for a selftest"
        );
        standing = match itself(&runner.pods.gateway).await {
            Some(passed) => Standing::Contained(now, passed),
            None => Standing::Unproved,
        };
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
