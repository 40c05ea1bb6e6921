//! Keeping the journal: syncs each second, signs the head, anchors it each minute, removes what is too old.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::age::Ages;
use super::chain::{self, Position};
use super::head::About;
use super::journal::Journal;
use super::segment::{self, Lines, Segment};
use crate::context::now_ms;

/// How often written lines are forced to disk: the loss window of a power cut.
pub const SYNC: Duration = Duration::from_secs(1);
/// How often the head is anchored outside the journal, in syncs.
const ANCHOR_EACH: u32 = 60;
/// Name of the signed head in the journal's folder.
pub const HEAD: &str = "head.json";
/// Name of the signed statement about what retention removed.
pub const CHECKPOINT: &str = "checkpoint.json";
/// Name of the file with the time that is believed.
pub const CLOCK: &str = "clock.json";

impl Journal {
    /// Keeps the journal until cancelled; a failure is logged once and tried again each second.
    pub async fn keep(self: Arc<Self>) {
        let mut tick = tokio::time::interval(SYNC);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut healthy = true;
        for count in 0_u32.. {
            tick.tick().await;
            let journal = self.clone();
            let anchor = count % ANCHOR_EACH == ANCHOR_EACH - 1;
            let kept = tokio::task::spawn_blocking(move || journal.tick(anchor)).await;
            match kept {
                Ok(Ok(())) => healthy = true,
                Ok(Err(error)) => {
                    if std::mem::take(&mut healthy) {
                        tracing::error!(%error, "the journal could not be synced");
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// One second's work.
    pub fn tick(&self, anchor: bool) -> io::Result<()> {
        self.settle(false);
        self.retry();
        self.state_head(About::Head)?;
        if anchor {
            self.anchor()?;
            self.expire(self.believed_ms())?;
            self.ages().write(&self.config.dir.join(CLOCK))?;
        }
        Ok(())
    }

    /// The time by which old things are called old.
    pub fn believed_ms(&self) -> i64 {
        self.ages().now(Instant::now(), now_ms())
    }

    fn ages(&self) -> MutexGuard<'_, Ages> {
        self.ages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes everything out and states that nothing was lost. Nothing may be appended afterwards.
    pub fn close(&self) -> io::Result<()> {
        self.settle(true);
        {
            let tail = self.tail();
            tail.file.set_len(tail.length)?;
        }
        self.state_head(About::CleanEnd)?;
        self.anchor()
    }

    /// Forces lines to disk, then signs that they are there: the head never speaks of what a power cut can take.
    pub(super) fn state_head(&self, about: About) -> io::Result<()> {
        let (file, position) = {
            let tail = self.tail();
            (tail.file.clone(), tail.position)
        };
        let mut stated = self.stated.lock().unwrap_or_else(PoisonError::into_inner);
        if about == About::Head && *stated == Some(position) {
            return Ok(());
        }
        file.sync_data()?;
        self.signatory
            .sign(about, position, now_ms())
            .write(&self.config.dir.join(HEAD))?;
        *stated = Some(position);
        Ok(())
    }

    fn anchor(&self) -> io::Result<()> {
        let Some(position) = *self.stated.lock().unwrap_or_else(PoisonError::into_inner) else {
            return Ok(());
        };
        let now = now_ms();
        let mut line = serde_json::to_string(&self.signatory.sign(About::Head, position, now))?;
        if let Some(syslog) = &self.config.syslog
            && let Err(error) = syslog.send(&line, now)
        {
            self.meters().anchor_lost();
            // The next one covers everything that this one would have.
            tracing::warn!(%syslog, %error, "the head of the record was not anchored in syslog");
        }
        line.push('\n');
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o640)
            .open(&self.config.anchors)?;
        file.write_all(line.as_bytes())?;
        file.sync_data()
    }

    /// Removes the oldest segments that are too old or too many; a signed checkpoint says first where the rest begins.
    pub fn expire(&self, now: i64) -> io::Result<()> {
        let segments = segment::list(&self.config.dir)?;
        let current = self.tail().index;
        let mut total: u64 = 0;
        for s in &segments {
            total += fs::metadata(&s.path)?.len();
        }
        for pair in segments.windows(2) {
            let [oldest, next] = pair else { break };
            // A segment's age is that of its youngest line: the next one's first, or that of the writing end.
            let ended = segment::first(next)?.map_or(now, |(_, t)| t);
            let expired = now - ended > self.config.keep_ms || total > self.config.keep_bytes;
            if !expired || oldest.index >= current {
                break;
            }
            let Some(last) = last_line(oldest)? else {
                break;
            };
            self.signatory
                .sign(About::Checkpoint, last, now)
                .write(&self.config.dir.join(CHECKPOINT))?;
            total -= fs::metadata(&oldest.path)?.len();
            fs::remove_file(&oldest.path)?;
        }
        File::open(&self.config.dir)?.sync_all()
    }
}

fn last_line(segment: &Segment) -> io::Result<Option<Position>> {
    let mut lines = Lines::open(&segment.path, 0)?;
    let mut last = None;
    while let Some(line) = lines.next_line()? {
        last = chain::parse(line).map(|p| p.position());
    }
    Ok(last)
}
