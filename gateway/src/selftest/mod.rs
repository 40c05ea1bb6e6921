//! The escape suite: from a probe sandbox everything forbidden is tried, and nothing of it may arrive anywhere.
//!
//! Two sandboxes are attached and taken away again. The first, under the widest policy, puts each kind of [`frames`] on
//! its link and tries what [`programs`] can; witnesses in the uplink and in the second sandbox, and listeners of the
//! machine, must see none of it ([`watch`]). Then a policy permits one of these listeners, and it must be reached: a dead
//! network proves nothing. Nothing is sent to other machines. The suite runs before the gateway enforces, also after
//! each repair of the kernel's part, on a schedule, and on demand; a failed check seals. Failure stance: what could not
//! be tried has not passed. Where the kernel can hold no rules, sandboxes have a socket instead of a link, and [`socket`]
//! tries that.

mod acts;
pub mod contained;
pub mod frames;
pub mod kept;
mod programs;
pub mod report;
pub mod sandbox;
mod socket;
mod suite;
mod table;
mod target;
#[cfg(test)]
pub mod tests;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::context::now_ms;
use crate::control::api::Via;
use crate::network::registry::{ChangeError, Registry};
use crate::posture::{Cause, Posture};
use crate::record::{Entry, Journal, Unwritable};
use kept::Kept;
use report::{SelftestDone, SelftestReport};

/// What was seen: as promised, or not.
pub type Seen = Result<String, String>;

/// "At once" for an answer: a veth and a verdict, on a busy machine.
pub const AT_ONCE: Duration = Duration::from_secs(2);

/// The suite of one gateway.
#[derive(Debug)]
pub struct Selftest {
    registry: Arc<Registry>,
    journal: Arc<Journal>,
    /// What rows of containers failed for.
    kept: Kept,
    /// One report, or one wish to try again, at a time: a seal and its note are one.
    reporting: Mutex<()>,
    newest: Mutex<Option<SelftestDone>>,
    /// What the gate failed for, as long as it fails for the same rows: said once, not each second.
    closed: Mutex<Option<Cause>>,
    /// One at a time: two would only slow each other down.
    running: Mutex<()>,
    /// What a test breaks as soon as the probes are attached.
    #[cfg(test)]
    pub hole: Mutex<Option<tests::Hole>>,
}

impl Selftest {
    /// Over a gateway's own parts.
    pub fn new(registry: Arc<Registry>, journal: Arc<Journal>, kept: Kept) -> Self {
        Self {
            registry,
            journal,
            kept,
            reporting: Mutex::default(),
            newest: Mutex::default(),
            closed: Mutex::default(),
            running: Mutex::default(),
            #[cfg(test)]
            hole: Mutex::default(),
        }
    }

    /// The writer of the probes' networks.
    #[cfg(test)]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The newest outcome.
    pub fn newest(&self) -> Option<SelftestDone> {
        self.newest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Before the posture opens: nobody's flows but the probe's are decided yet. Blocks for some tenths of a second.
    pub fn gate(&self) -> Result<(), Cause> {
        let (report, again) = self.perform("opening").map_err(|error| {
            let text = crate::control::problems::chain(&error);
            Cause::new(
                format!("the selftest could not run: {text}"),
                "sallyport doctor",
            )
        })?;
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if !again || closed.is_none() {
            *closed = cause(&report);
        }
        closed.clone().map_or(Ok(()), Err)
    }

    /// The whole table, on a blocking thread; what fails seals.
    pub async fn run(
        self: &Arc<Self>,
        posture: &Arc<Posture>,
        why: &'static str,
    ) -> Result<SelftestReport, ChangeError> {
        let (suite, posture) = (self.clone(), posture.clone());
        let table = tokio::task::spawn_blocking(move || {
            let enforced = posture.enforced();
            let (report, _) = suite.perform(why)?;
            if let Some(cause) = cause(&report) {
                posture.fail(enforced, &cause);
            }
            Ok(report)
        });
        table
            .await
            .unwrap_or_else(|e| Err(ChangeError::State(std::io::Error::other(e))))
    }

    /// Runs the suite and keeps what came out; whether it failed as it had failed before.
    fn perform(&self, why: &str) -> Result<(SelftestReport, bool), ChangeError> {
        let _one = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let report = suite::run(self)?;
        let again = self.keep(SelftestDone::of(&report, why, now_ms()));
        Ok((report, again))
    }

    /// Writes an outcome down and shows it from now on. A gate that fails as before writes nothing: it is tried each
    /// second.
    fn keep(&self, done: SelftestDone) -> bool {
        let before = {
            let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
            newest.replace(done.clone())
        };
        let again = |before: SelftestDone| {
            let rows = |done: &SelftestDone| -> Vec<String> {
                let name = |c: &report::Check| format!("{}/{}", c.check, c.family);
                done.rest.iter().map(name).collect()
            };
            before.failed > 0 && done.failed > 0 && rows(&before) == rows(&done)
        };
        let again = before.is_some_and(again);
        if done.why == "opening" && again {
            return again;
        }
        if done.failed > 0 {
            tracing::error!(counts = %done.counts(), "a selftest failed");
        } else {
            tracing::info!(counts = %done.counts(), took_ms = done.took_ms, "the selftest passed");
        }
        if let Err(error) = self.journal.append(Entry::Selftest(Box::new(done))) {
            tracing::error!(%error, "a selftest was not recorded");
        }
        again
    }

    /// Writes the outcome of probes in containers down.
    fn reports_alone(&self) -> MutexGuard<'_, ()> {
        self.reporting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_contained(&self, done: SelftestDone) -> Result<(), Unwritable> {
        if done.failed > 0 {
            tracing::error!(counts = %done.counts(), class = %done.variant, "a selftest in a container failed");
        }
        self.journal.append(Entry::Selftest(Box::new(done)))
    }
}

/// Why a table seals, if it does.
pub fn cause(report: &SelftestReport) -> Option<Cause> {
    let text = match report.first_failed() {
        Some(row) => format!(
            "the selftest failed: {} ({}, {}, {}): {}",
            row.promise, row.check, row.family, row.variant, row.detail
        ),
        None if report.passed() => return None,
        None => "the selftest could try nothing".to_owned(),
    };
    Some(Cause::new(
        text,
        "nothing is let out meanwhile; `sallyport selftest` shows the whole table",
    ))
}

/// Runs the suite on a schedule until cancelled.
pub async fn keep(selftest: Arc<Selftest>, posture: Arc<Posture>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if posture.enforced().is_none() && posture.via() == Via::Link {
            // it runs anyway before the gateway enforces again
            continue;
        }
        if let Err(error) = selftest.run(&posture, "schedule").await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the selftest could not run"
            );
        }
    }
}
