//! The runs of this runner: who is live, who may cancel, what ended lately.
//!
//! Owns the table that makes a run somebody's: what is in it is not reaped. A run is entered before anything of it
//! exists and leaves when everything of it is gone, or when only an engine that does not answer keeps it from being
//! gone: then it is over, and its place stays taken until it is buried. Exactly one end is kept, whatever raced.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::run::{EndReason, RunId};

/// Ended runs that a list still shows.
const REMEMBERED: usize = 200;

/// Pieces of input between whoever gives it and the engine; small, so that a command that does not read slows them down.
const INPUT_WAITING: usize = 2;

/// A run as lists show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunView {
    /// Which.
    pub run: RunId,
    /// Where it is.
    pub state: RunState,
    /// Image as asked for.
    pub image: String,
    /// First word of the command.
    pub program: String,
    /// Workspace.
    pub workspace: String,
}

/// Where a run is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum RunState {
    /// Before its command starts.
    Preparing,
    /// Its command runs.
    Running,
    /// Over.
    Ended {
        /// Exit code for callers.
        code: i64,
        /// Why.
        reason: EndReason,
    },
    /// Could not be run.
    Failed {
        /// Why.
        message: String,
    },
}

#[derive(Debug)]
struct Live {
    view: RunView,
    ends: Ends,
    /// Where its input is given, until somebody gives it.
    giving: Option<mpsc::Sender<Bytes>>,
}

/// How a run is ended from outside: the first cause counts.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    cause: std::sync::Arc<std::sync::OnceLock<EndReason>>,
    asked: CancellationToken,
}

impl Ends {
    /// Asks the run to end.
    pub fn end(&self, cause: EndReason) {
        let _ = self.cause.set(cause);
        self.asked.cancel();
    }

    /// Waits until someone asks, and says why.
    pub async fn asked(&self) -> EndReason {
        self.asked.cancelled().await;
        self.cause.get().copied().unwrap_or(EndReason::Cancelled)
    }

    /// Why it was asked to end, if it was.
    pub fn cause(&self) -> Option<EndReason> {
        self.cause.get().copied()
    }
}

#[derive(Debug, Default)]
struct Table {
    live: HashMap<RunId, Live>,
    reserved: HashSet<RunId>,
    /// Over, but the engine has not removed them: what they spend is still spent.
    burying: HashSet<RunId>,
    ended: VecDeque<RunView>,
}

/// The table.
#[derive(Debug)]
pub struct Runs {
    table: Mutex<Table>,
    most: usize,
    count: watch::Sender<usize>,
}

/// As many runs as may be are live, or not yet buried.
#[derive(Debug, PartialEq, Eq)]
pub struct Busy {
    /// Live ones.
    pub live: usize,
    /// Ended ones that the engine has not removed yet.
    pub burying: usize,
}

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} runs are live", self.live)?;
        if self.burying > 0 {
            let burying = self.burying;
            write!(f, " and {burying} ended ones not removed by the engine yet")?;
        }
        f.write_str(", which is as many as `runner.max_runs` permits")
    }
}

/// A run id that is somebody's although no run is live under it (a pod in the making). Given back on drop.
#[derive(Debug)]
pub struct Reserved<'a> {
    runs: &'a Runs,
    run: RunId,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.runs.with(|table| table.reserved.remove(&self.run));
    }
}

impl Runs {
    /// An empty table.
    pub fn new(most: usize) -> Self {
        Self {
            table: Mutex::default(),
            most,
            count: watch::Sender::new(0),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut table);
        let live = table.live.len();
        self.count
            .send_if_modified(|count| std::mem::replace(count, live) != live);
        result
    }

    /// Keeps an id from the reaper.
    pub fn reserve(&self, run: &RunId) -> Reserved<'_> {
        self.with(|table| table.reserved.insert(run.clone()));
        Reserved {
            runs: self,
            run: run.clone(),
        }
    }

    /// Enters a run.
    pub fn enter(&self, view: RunView) -> Result<Ends, Busy> {
        self.with(|table| {
            let (live, burying) = (table.live.len(), table.burying.len());
            if live + burying >= self.most {
                return Err(Busy { live, burying });
            }
            let ends = Ends::default();
            table.live.insert(
                view.run.clone(),
                Live {
                    view,
                    ends: ends.clone(),
                    giving: None,
                },
            );
            Ok(ends)
        })
    }

    /// Lets somebody, once, give a live run its input, and returns where it arrives.
    pub fn expect_input(&self, run: &RunId) -> mpsc::Receiver<Bytes> {
        let (giving, arriving) = mpsc::channel(INPUT_WAITING);
        self.with(|table| {
            if let Some(live) = table.live.get_mut(run) {
                live.giving = Some(giving);
            }
        });
        arriving
    }

    /// Where a live run's input is given, if it takes any and nobody gives it yet.
    pub fn give_input(&self, run: &RunId) -> Option<mpsc::Sender<Bytes>> {
        self.with(|table| table.live.get_mut(run)?.giving.take())
    }

    /// Its command runs.
    pub fn running(&self, run: &RunId) {
        self.with(|table| {
            if let Some(live) = table.live.get_mut(run) {
                live.view.state = RunState::Running;
            }
        });
    }

    /// It is over and everything of it is gone.
    pub fn leave(&self, run: &RunId, state: RunState) {
        self.with(|table| {
            if let Some(mut live) = table.live.remove(run) {
                live.view.state = state;
                table.ended.push_front(live.view);
                table.ended.truncate(REMEMBERED);
            }
        });
    }

    /// Asks a live run to end; false if there is none of this id.
    pub fn end(&self, run: &RunId, cause: EndReason) -> bool {
        let ends = self.with(|table| table.live.get(run).map(|live| live.ends.clone()));
        if let Some(ends) = &ends {
            ends.end(cause);
        }
        ends.is_some()
    }

    /// Asks every live run to end and waits until they are gone.
    pub async fn end_all(&self, cause: EndReason) {
        let all = self.with(|table| {
            table
                .live
                .values()
                .map(|live| live.ends.clone())
                .collect::<Vec<_>>()
        });
        for ends in all {
            ends.end(cause);
        }
        // The sender lives as long as this table, so waiting cannot fail.
        let _ = self.count.subscribe().wait_for(|live| *live == 0).await;
    }

    /// Whether this id is somebody's.
    pub fn knows(&self, run: &RunId) -> bool {
        self.with(|table| {
            table.live.contains_key(run)
                || table.reserved.contains(run)
                || table.burying.contains(run)
        })
    }

    /// Keeps a run's place and its remains until [`Runs::buried`]: it is about to be over.
    pub fn bury(&self, run: &RunId) {
        self.with(|table| table.burying.insert(run.clone()));
    }

    /// Nothing is left of it, or whoever buried it has stopped: what there is is the reaper's.
    pub fn buried(&self, run: &RunId) {
        self.with(|table| table.burying.remove(run));
    }

    /// Runs whose command runs, so whose network must exist.
    pub fn running_ids(&self) -> Vec<RunId> {
        self.with(|table| {
            let running = table
                .live
                .values()
                .filter(|live| live.view.state == RunState::Running);
            running.map(|live| live.view.run.clone()).collect()
        })
    }

    /// Live runs, then ended ones, newest first.
    pub fn list(&self) -> Vec<RunView> {
        self.with(|table| {
            let mut live: Vec<_> = table.live.values().map(|live| live.view.clone()).collect();
            live.sort_by(|a, b| a.run.cmp(&b.run));
            live.extend(table.ended.iter().cloned());
            live
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(run: &RunId) -> RunView {
        RunView {
            run: run.clone(),
            state: RunState::Preparing,
            image: "i".to_owned(),
            program: "p".to_owned(),
            workspace: "default".to_owned(),
        }
    }

    #[tokio::test]
    async fn first_cause_counts() {
        let runs = Runs::new(2);
        let run = RunId::allot();
        let ends = runs.enter(view(&run)).unwrap();
        assert!(runs.end(&run, EndReason::TimedOut));
        assert!(runs.end(&run, EndReason::Cancelled));
        assert_eq!(ends.asked().await, EndReason::TimedOut);
    }

    #[test]
    fn ceiling_holds_and_ended_runs_make_room() {
        let runs = Runs::new(1);
        let (one, other) = (RunId::allot(), RunId::allot());
        runs.enter(view(&one)).unwrap();
        let busy = runs.enter(view(&other)).unwrap_err();
        assert_eq!((busy.live, busy.burying), (1, 0));
        runs.leave(
            &one,
            RunState::Ended {
                code: 0,
                reason: EndReason::Exited,
            },
        );
        runs.enter(view(&other)).unwrap();
        assert_eq!(runs.list().len(), 2);
        assert!(!runs.end(&one, EndReason::Cancelled));
    }

    #[test]
    fn a_run_that_the_engine_does_not_bury_keeps_its_place_and_is_not_reaped() {
        let runs = Runs::new(1);
        let (one, other) = (RunId::allot(), RunId::allot());
        runs.enter(view(&one)).unwrap();
        runs.bury(&one);
        let message = String::new();
        runs.leave(&one, RunState::Failed { message });
        let busy = runs.enter(view(&other)).unwrap_err();
        assert_eq!((busy.live, busy.burying), (0, 1));
        assert!(busy.to_string().contains("1 ended ones"), "{busy}");
        assert!(runs.knows(&one));
        runs.buried(&one);
        runs.enter(view(&other)).unwrap();
        assert!(!runs.knows(&one));
    }

    #[test]
    fn reserved_ids_are_somebodys_until_given_back() {
        let runs = Runs::new(1);
        let run = RunId::allot();
        let reserved = runs.reserve(&run);
        assert!(runs.knows(&run) && runs.list().is_empty());
        drop(reserved);
        assert!(!runs.knows(&run));
    }
}
