//! Follows the event log for all readers of this console: one task reads what is new, once, and keeps the newest.
//!
//! Woken by every commit of this process, by other consoles through LISTEN and NOTIFY, and by a clock, so that a lost
//! notice or a cut connection delays events and loses none. Bounded: readers who are behind what is kept ask the store.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::app::App;
use crate::store::events::{self, Event};

/// Kept in memory, at most.
const EVENTS: usize = 4096;
/// What they say is at most so long together.
const BYTES: usize = 8 << 20;
/// What events about a run's state are of, for its workspace.
const RUN: &str = "run";
/// Without any notice it looks so often.
const LOOKS: Duration = Duration::from_secs(2);
/// After a store that did not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// The end of the log, as far as this console has read it.
#[derive(Debug, Default)]
pub struct Tail {
    kept: Mutex<Kept>,
    newest: watch::Sender<i64>,
    /// The newest event about a run: there may be work, or less to do.
    work: watch::Sender<i64>,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Every event after this number, up to the newest, is in `events`.
    floor: i64,
}

/// What comes after a number.
#[derive(Debug)]
pub enum After {
    /// These, all of them up to the newest.
    Events(Vec<Arc<Event>>, i64),
    /// It is older than what is kept here.
    Behind,
}

impl Tail {
    /// Tells when there is something new.
    pub fn newest(&self) -> watch::Receiver<i64> {
        self.newest.subscribe()
    }

    /// Tells when something happened to a run, in whichever console: whoever waits for work looks then.
    pub fn work(&self) -> watch::Receiver<i64> {
        self.work.subscribe()
    }

    /// The events after a number that a reader wants.
    pub fn after(&self, seq: i64, wanted: impl Fn(&str) -> bool) -> After {
        let newest = *self.newest.borrow();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if seq < kept.floor {
            return After::Behind;
        }
        let newer = kept.events.iter().rev().take_while(|event| event.seq > seq);
        let mut events: Vec<_> = newer
            .filter(|event| event.seq <= newest && wanted(&event.topic))
            .cloned()
            .collect();
        events.reverse();
        After::Events(events, newest.max(seq))
    }

    fn begin(&self, seq: i64) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.floor = seq;
        drop(kept);
        self.newest.send_replace(seq);
    }

    fn take(&self, events: Vec<Event>) {
        let Some(newest) = events.last().map(|event| event.seq) else {
            return;
        };
        let work = events.iter().rev().find(|event| event.kind == RUN);
        let work = work.map(|event| event.seq);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            kept.bytes += event.data.len();
            kept.events.push_back(Arc::new(event));
            while kept.events.len() > EVENTS || kept.bytes > BYTES {
                let Some(oldest) = kept.events.pop_front() else {
                    break;
                };
                kept.bytes -= oldest.data.len();
                kept.floor = oldest.seq;
            }
        }
        drop(kept);
        self.newest.send_replace(newest);
        if let Some(work) = work {
            self.work.send_replace(work);
        }
    }
}

/// Until the console stops.
pub async fn follow(app: App) {
    let mut rung = events::rung();
    let mut position = loop {
        match app.store.last_event().await {
            Ok(last) => break last,
            Err(error) => failed(&error).await,
        }
    };
    app.tail.begin(position);
    loop {
        rung.mark_unchanged();
        match app.store.events_since(position).await {
            Ok(batch) => {
                let full = i64::try_from(batch.len()).is_ok_and(|count| count >= events::MOST);
                position = batch.last().map_or(position, |event| event.seq);
                app.tail.take(batch);
                if !full {
                    let _ = timeout(LOOKS, rung.changed()).await;
                }
            }
            Err(error) => failed(&error).await,
        }
    }
}

/// Hears what other consoles append, until the console stops.
pub async fn listen(app: App) {
    loop {
        match app.store.listen().await {
            Ok(None) => return,
            Ok(Some(mut listener)) => {
                // what came while nobody listened
                events::ring();
                loop {
                    // `None`: the connection was cut, and is made again by the next call
                    match listener.try_recv().await {
                        Ok(_) => events::ring(),
                        Err(error) => {
                            failed(&error.into()).await;
                            break;
                        }
                    }
                }
            }
            Err(error) => failed(&error).await,
        }
    }
}

async fn failed(error: &crate::store::StoreError) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "following the event log"
    );
    sleep(PAUSE).await;
}
