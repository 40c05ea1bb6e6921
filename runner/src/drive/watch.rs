//! Watching a started workload: its output, its end, the timeout and the wish to end it, whichever comes first.
//!
//! Invariants: nothing is read while something waits to be sent, so a slow reader slows the workload down. From the
//! moment at which it shall end nobody slows anything down any more: an engine reports no end before all output is
//! fetched, so a reader that stalls would keep sandbox and network beyond the timeout. Nor does the engine: one that
//! does not tell the end of what it was asked to kill is not waited for ([`Over::Unanswered`]). The first cause is the one
//! that counts. How it ended comes from the backend, never from what it printed.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;

use super::feed::Feeding;
use super::{Events, failure};
use crate::Runner;
use crate::output::Meter;
use crate::run::{EndReason, Event, Failure};
use crate::runs::Ends;
use crate::sandbox::{Asked, Backend, Exit, Output, SandboxId};

/// Between asking a workload to end and ending it.
const GRACE: Duration = Duration::from_secs(5);
/// An engine tells the end of what it has killed within this, or is not waited for.
const KILLING: Duration = Duration::from_secs(3);
/// Output that is still in the engine's buffers when the workload is gone comes within this.
const LAST_OUTPUT: Duration = Duration::from_secs(3);
/// A reader that is behind gets at least this long to fetch the rest.
const SLOW_READER: Duration = Duration::from_secs(30);

/// Events that are kept for a reader that is behind when the workload shall end; each has up to some 32 KiB.
const KEPT: usize = 64;

/// How watching came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    /// Its last process is gone.
    Gone(Exit),
    /// It was to be killed, and the engine has not said that it is gone.
    Unanswered,
}

/// How far ending it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    NotYet,
    Asked,
    Killed,
}

/// Watches a started workload.
pub(super) struct Watch<'a> {
    pub(super) runner: &'a Runner,
    pub(super) id: &'a SandboxId,
    pub(super) ends: &'a Ends,
    pub(super) events: &'a Events,
    pub(super) meter: Meter,
}

impl Ending {
    /// The next step, and until when the engine has time for it.
    fn further(self) -> (Self, Instant) {
        match self {
            Self::NotYet => (Self::Asked, Instant::now() + GRACE),
            Self::Asked | Self::Killed => (Self::Killed, Instant::now() + KILLING),
        }
    }

    fn act<'a>(self, backend: &'a dyn Backend, id: &'a SandboxId) -> Asked<'a, ()> {
        match self {
            Self::NotYet | Self::Asked => backend.ask_to_end(id),
            Self::Killed => backend.kill(id),
        }
    }
}

impl Watch<'_> {
    /// Waits for the end, whatever brings it, and passes output on until then.
    pub(super) async fn until_end(
        mut self,
        mut output: Output,
        feeding: Feeding,
        timeout: Duration,
    ) -> Result<(Over, EndReason), Failure> {
        let backend = self.runner.pods.backend.clone();
        let mut ended = backend.wait(self.id);
        let mut feeding = pin!(feeding.pass());
        // Beside the reading: an engine may answer only when its output is fetched.
        let mut acting = FuturesUnordered::<Asked<'_, ()>>::new();
        let mut stop_at = Instant::now() + timeout;
        let (mut ending, mut reason) = (Ending::NotYet, None);
        let mut waiting = VecDeque::new();
        let mut more = true;
        let exit = loop {
            tokio::select! {
                exit = &mut ended => break Some(exit),
                never = &mut feeding => match never {},
                () = tokio::time::sleep_until(stop_at) => {
                    if ending == Ending::Killed {
                        break None;
                    }
                    reason.get_or_insert(EndReason::TimedOut);
                    (ending, stop_at) = ending.further();
                    acting.push(ending.act(&*backend, self.id));
                }
                cause = self.ends.asked(), if reason.is_none() => {
                    reason = Some(cause);
                    (ending, stop_at) = ending.further();
                    acting.push(ending.act(&*backend, self.id));
                }
                () = self.events.closed(), if reason.is_none() => {
                    reason = Some(EndReason::Cancelled);
                    (ending, stop_at) = Ending::Asked.further();
                    acting.push(ending.act(&*backend, self.id));
                }
                Some(done) = acting.next(), if !acting.is_empty() => if let Err(error) = done {
                    tracing::warn!(%error, "ending a workload");
                },
                // Nothing is read while something waits to be sent: a slow reader slows the workload down.
                permit = self.events.reserve(), if !waiting.is_empty() => match (permit, waiting.pop_front()) {
                    (Ok(permit), Some(event)) => permit.send(event),
                    _ => waiting.clear(),
                },
                chunk = output.next(), if more && (waiting.is_empty() || reason.is_some()) => match chunk {
                    // Of the reader's making: it did not fetch what came before.
                    Some(Ok(_)) if waiting.len() >= KEPT => {}
                    Some(Ok(chunk)) => waiting.extend(self.meter.pass(chunk)),
                    Some(Err(error)) => { tracing::debug!(%error, "reading output"); more = false; }
                    None => more = false,
                },
            }
        };
        let patience = if reason.is_none() {
            stop_at.max(Instant::now() + SLOW_READER)
        } else {
            Instant::now() + LAST_OUTPUT
        };
        let more = more && exit.is_some();
        self.pass_rest(waiting, output, more, patience).await;
        let Some(exit) = exit else {
            return Ok((Over::Unanswered, reason.unwrap_or(EndReason::TimedOut)));
        };
        let exit = exit.map_err(|e| failure("engine", &e))?;
        let by_itself = if exit.out_of_memory && exit.code != 0 {
            EndReason::OutOfMemory
        } else {
            EndReason::Exited
        };
        Ok((Over::Gone(exit), reason.unwrap_or(by_itself)))
    }

    /// Passes on what is still in buffers. Nothing runs any more, so a reader gets time; but one that never reads must
    /// not keep a network alive, and the engine may hold the pipe open.
    async fn pass_rest(
        &mut self,
        waiting: VecDeque<Event>,
        mut output: Output,
        more: bool,
        until: Instant,
    ) {
        let (events, ends, meter) = (self.events, self.ends, &mut self.meter);
        let rest = async {
            for event in waiting {
                events.send(event).await.ok()?;
            }
            while more && let Some(Ok(chunk)) = output.next().await {
                for event in meter.pass(chunk) {
                    events.send(event).await.ok()?;
                }
            }
            Some(())
        };
        tokio::select! {
            _ = rest => {}
            () = tokio::time::sleep_until(until) => tracing::info!("dropping output that nobody fetched in time"),
            // Asked to end a run that has ended: whoever asks does not want the rest, unless it is why it ended.
            () = async { ends.asked().await; tokio::time::sleep(LAST_OUTPUT).await } => {}
        }
    }
}
