//! What a run has to tell its console and has not been heard yet: output, timeline, flows, each with its cursor.
//!
//! Bounded: whoever prints into a full one waits, so a console that is away slows the run down instead of losing what it
//! prints. What was heard is forgotten; what was not is told again. An abandoned one takes everything and keeps nothing.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use gateway::record::Line;
use tokio::sync::Notify;

use crate::protocol::{Data, MOST_BYTES, MOST_FLOWS, MOST_LINES, Printed, Step, Tell};

/// Output that waits for the console.
const ROOM: usize = 4 << 20;
/// Records that wait for the console; the journal has the rest.
const LINES: usize = 2000;
/// Timeline entries that wait; a run has few.
const STEPS: usize = 1000;

/// See the module.
#[derive(Debug, Default)]
pub struct Tale {
    inner: Mutex<Inner>,
    /// Told when there is something to tell, or it is closed.
    grown: Notify,
    /// Told when there is room again.
    room: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// The number of the first byte of `output`.
    starts: i64,
    output: VecDeque<Printed>,
    bytes: usize,
    steps: VecDeque<Step>,
    /// The number of the last step.
    numbered: i64,
    flows: VecDeque<Line>,
    /// The network's last record was seen.
    network_over: bool,
    closed: bool,
    abandoned: bool,
}

/// What is told at once.
#[derive(Debug)]
pub struct Batch {
    /// It.
    pub tell: Tell,
    steps: usize,
    flows: usize,
}

impl Tale {
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until something is let in.
    async fn until_let_in(&self, mut offer: impl FnMut(&mut Inner) -> bool) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            if self.with(|inner| inner.abandoned || offer(inner)) {
                self.grown.notify_one();
                return;
            }
            room.await;
        }
    }

    /// Takes what was printed.
    pub async fn print(&self, error: bool, data: Bytes, at: i64) {
        // an engine's piece is small; one that is not is told in parts
        for part in data.chunks(MOST_BYTES) {
            let part = data.slice_ref(part);
            self.until_let_in(|inner| {
                if inner.bytes >= ROOM {
                    return false;
                }
                inner.bytes += part.len();
                inner.output.push_back(Printed {
                    error,
                    at,
                    data: Data(part.clone()),
                });
                true
            })
            .await;
        }
    }

    /// Takes an entry of the timeline.
    pub fn step(&self, kind: &str, data: serde_json::Value, at: i64) {
        self.with(|inner| {
            if inner.steps.len() < STEPS {
                inner.numbered += 1;
                inner.steps.push_back(Step {
                    seq: inner.numbered,
                    at,
                    kind: kind.to_owned(),
                    data,
                });
            }
        });
        self.grown.notify_one();
    }

    /// Takes a record.
    pub async fn flow(&self, line: Line) {
        let mut line = Some(line);
        self.until_let_in(|inner| {
            if inner.flows.len() < LINES {
                inner.flows.extend(line.take());
            }
            line.is_none()
        })
        .await;
    }

    /// The network's last record was taken.
    pub fn network_is_over(&self) {
        self.with(|inner| inner.network_over = true);
        self.grown.notify_one();
    }

    /// Whether it was.
    pub fn is_network_over(&self) -> bool {
        self.with(|inner| inner.network_over)
    }

    /// Nothing more comes.
    pub fn close(&self) {
        self.with(|inner| inner.closed = true);
        self.grown.notify_one();
    }

    /// Nobody is to hear it.
    pub fn abandon(&self) {
        self.with(|inner| {
            inner.abandoned = true;
            inner.output.clear();
            inner.flows.clear();
            inner.steps.clear();
        });
        self.room.notify_waiters();
        self.grown.notify_one();
    }

    /// Whether it was abandoned.
    pub fn is_abandoned(&self) -> bool {
        self.with(|inner| inner.abandoned)
    }

    /// Waits for something to tell; `None`: all was told and nothing more comes.
    pub async fn batch(&self, fence: i64) -> Option<Batch> {
        loop {
            let grown = self.grown.notified();
            let (batch, over) =
                self.with(|inner| (inner.batch(fence), inner.closed || inner.abandoned));
            if batch.is_some() || over {
                return batch;
            }
            grown.await;
        }
    }

    /// Forgets what was heard: a batch, and output up to a number.
    pub fn heard(&self, batch: &Batch, output: i64) {
        self.with(|inner| {
            while let Some(first) = inner.output.front() {
                let after = inner.starts + length(first);
                if after > output {
                    break;
                }
                inner.starts = after;
                inner.bytes = inner.bytes.saturating_sub(first.data.0.len());
                inner.output.pop_front();
            }
            inner.steps.drain(..batch.steps.min(inner.steps.len()));
            inner.flows.drain(..batch.flows.min(inner.flows.len()));
        });
        self.room.notify_waiters();
    }
}

fn length(piece: &Printed) -> i64 {
    i64::try_from(piece.data.0.len()).unwrap_or(i64::MAX)
}

impl Inner {
    fn batch(&self, fence: i64) -> Option<Batch> {
        if self.abandoned {
            return None;
        }
        let mut bytes = 0;
        let fits = self.output.iter().take_while(|piece| {
            bytes += piece.data.0.len();
            bytes <= MOST_BYTES
        });
        let output: Vec<Printed> = fits.take(MOST_LINES).cloned().collect();
        let steps: Vec<Step> = self.steps.iter().take(MOST_LINES).cloned().collect();
        let flows: Vec<Line> = self.flows.iter().take(MOST_FLOWS).cloned().collect();
        if output.is_empty() && steps.is_empty() && flows.is_empty() {
            return None;
        }
        Some(Batch {
            steps: steps.len(),
            flows: flows.len(),
            tell: Tell {
                fence,
                starts: self.starts,
                output,
                steps,
                flows,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_was_not_heard_is_told_again_and_what_was_is_not() {
        let tale = Tale::default();
        tale.print(false, "one".into(), 1).await;
        tale.step("preparing", serde_json::json!({}), 1);
        let first = tale.batch(7).await.unwrap();
        assert_eq!(
            (first.tell.fence, first.tell.starts, first.tell.output.len()),
            (7, 0, 1)
        );
        tale.print(true, "two".into(), 2).await;
        let again = tale.batch(7).await.unwrap();
        assert_eq!(
            (
                again.tell.starts,
                again.tell.output.len(),
                again.tell.steps.len()
            ),
            (0, 2, 1)
        );
        // the first was heard
        tale.heard(&first, 3);
        let rest = tale.batch(7).await.unwrap();
        assert_eq!(
            (
                rest.tell.starts,
                rest.tell.output.len(),
                rest.tell.steps.len()
            ),
            (3, 1, 0)
        );
        tale.close();
        tale.heard(&rest, 6);
        assert!(tale.batch(7).await.is_none());
    }

    #[tokio::test]
    async fn a_console_that_is_away_slows_a_run_down_and_an_abandoned_run_goes_on() {
        let tale = Tale::default();
        for _ in 0..ROOM / MOST_BYTES {
            tale.print(false, vec![0; MOST_BYTES].into(), 1).await;
        }
        let more = tale.print(false, "x".into(), 1);
        tokio::pin!(more);
        assert!(
            tokio::time::timeout(Duration::from_millis(50), &mut more)
                .await
                .is_err()
        );
        let batch = tale.batch(1).await.unwrap();
        tale.heard(&batch, i64::try_from(MOST_BYTES).unwrap());
        more.await;
        tale.abandon();
        for _ in 0..100 {
            tale.print(false, vec![0; MOST_BYTES].into(), 1).await;
        }
        assert!(tale.batch(1).await.is_none());
    }
}
