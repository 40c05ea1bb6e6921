//! OpenTelemetry: the record as log records and spans, sent to a collector (OTLP over HTTP, JSON encoding).
//!
//! Follows the journal from its own cursor, as any reader does, so that a collector which is slow, away or hostile holds
//! back no flow and fills no memory: what it does not take stays in the journal and is sent later, at least once. Who is
//! too far behind loses the oldest, and that is counted. Sent from the uplink namespace, where no sandbox has a socket.
//! Owns when and what; [`form`] is how it looks, [`send`] how it goes.

mod form;
mod send;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::record::{Journal, Line, Reader};
use send::Sent;
pub use send::{Endpoint, EndpointError};

/// Records sent at once.
const BATCH: usize = 512;
/// How long records are gathered after the first.
const GATHER: Duration = Duration::from_millis(200);
/// Waits after failures: doubled each time, from and to.
const WAITS: [Duration; 2] = [Duration::from_millis(500), Duration::from_mins(1)];
/// Records that a collector may be behind; about a quarter of an hour of a busy gateway.
const MOST_BEHIND: u64 = 100_000;

/// Sends what is recorded from now on, until the gateway stops.
pub async fn follow(journal: Arc<Journal>, endpoint: Endpoint) {
    Follower::new(journal, endpoint, MOST_BEHIND, WAITS[0])
        .run()
        .await;
}

struct Follower {
    journal: Arc<Journal>,
    endpoint: Endpoint,
    most_behind: u64,
    wait: Duration,
    complained: bool,
    cursor: u64,
    /// Kept between batches: finding a place in a segment means reading it from its start.
    reader: Option<Reader>,
}

impl Follower {
    /// Begins after the last record that there is.
    fn new(journal: Arc<Journal>, endpoint: Endpoint, most_behind: u64, wait: Duration) -> Self {
        Self {
            cursor: journal.last(),
            journal,
            endpoint,
            most_behind,
            wait,
            complained: false,
            reader: None,
        }
    }

    async fn run(mut self) {
        let mut written = self.journal.written();
        loop {
            // Marked as seen before reading, so that what is written during the read wakes the wait after it.
            let last = *written.borrow_and_update();
            if last.saturating_sub(self.cursor) > self.most_behind {
                let skipped = last - self.cursor;
                tracing::warn!(
                    skipped,
                    "the collector is too far behind; records are passed over"
                );
                self.journal.meters().telemetry_lost(skipped);
                self.cursor = last;
                self.reader = None;
            }
            if let Some(lines) = self.batch().await {
                self.deliver(&lines).await;
                continue;
            }
            if written.changed().await.is_err() {
                return;
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// The next records, if there are any.
    async fn batch(&mut self) -> Option<Vec<Line>> {
        let (dir, cursor) = (self.journal.dir().to_owned(), self.cursor);
        let kept = self.reader.take();
        let read = tokio::task::spawn_blocking(move || {
            let mut reader = match kept {
                Some(reader) => reader,
                None => Reader::open(&dir, cursor)?,
            };
            let mut texts = Vec::new();
            while texts.len() < BATCH {
                let Some(text) = reader.next_line()? else {
                    break;
                };
                texts.push(text);
            }
            Ok::<_, std::io::Error>((reader, texts))
        });
        match read.await.ok()? {
            Ok((reader, texts)) => {
                self.cursor = reader.cursor();
                self.reader = Some(reader);
                // What cannot be read is for `record verify` to find.
                let lines = texts.iter().flat_map(|text| serde_json::from_str(text));
                (!texts.is_empty()).then(|| lines.collect())
            }
            Err(error) => {
                tracing::error!(%error, "the journal cannot be read for the collector");
                None
            }
        }
    }

    /// Sends a batch, as often as it takes, unless the journal runs away meanwhile.
    async fn deliver(&mut self, lines: &[Line]) {
        for (path, body) in [
            ("/v1/logs", form::logs(lines)),
            ("/v1/traces", form::traces(lines)),
        ] {
            let Some(body) = body.map(Bytes::from) else {
                continue;
            };
            let first = lines.first().map_or(0, |l| l.seq);
            loop {
                match self.endpoint.post(path, body.clone()).await {
                    Ok(Sent::Taken) => {
                        self.wait = WAITS[0];
                        self.complained = false;
                        break;
                    }
                    Ok(Sent::Refused(status)) => {
                        tracing::warn!(
                            status,
                            path,
                            "the collector refuses records; they are passed over"
                        );
                        self.journal.meters().telemetry_lost(lines.len() as u64);
                        break;
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut self.complained, true) {
                            tracing::warn!(endpoint = %self.endpoint, %error, "the collector takes nothing; trying again");
                        }
                    }
                }
                if self.journal.last().saturating_sub(first) > self.most_behind {
                    self.journal.meters().telemetry_lost(lines.len() as u64);
                    return;
                }
                tokio::time::sleep(self.wait).await;
                self.wait = (self.wait * 2).min(WAITS[1]);
            }
        }
    }
}
