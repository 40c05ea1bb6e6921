//! Wired holders kept ready, so that a run starts without waiting for one.
//!
//! Each is attached under the preset `none`, with a run id allotted when it is made; assigning the job's policy is the
//! acknowledgement. None is ever used twice. Failure stance: a pool that cannot be filled makes starts slower, with a
//! pause between tries; it never makes a run fail.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gateway::control::PolicySource;
use gateway::control::api::default_workspace;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::pod::{Pod, Pods};
use crate::run::RunId;
use crate::runs::{Reserved, Runs};

/// What pooled pods are attached under.
const SEALED: &str = "none";
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Ready pods.
#[derive(Debug)]
pub struct Pool {
    size: usize,
    ready: Mutex<VecDeque<Pod>>,
    taken: Notify,
    filling: watch::Sender<bool>,
}

impl Pool {
    /// An empty pool that wants to hold this many.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            ready: Mutex::default(),
            taken: Notify::new(),
            filling: watch::Sender::new(false),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut VecDeque<Pod>) -> T) -> T {
        act(&mut self.ready.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a pod, if one is ready for this workspace: names get their addresses by workspace, so only the default
    /// one has a pool. The id stays somebody's in between, or the reaper would find it ownerless. The next pod is made
    /// when the taker says [`Pool::refill`]: making one takes the engine as long as starting the run that is waited for.
    pub fn take<'a>(&self, workspace: &str, runs: &'a Runs) -> Option<(Pod, Reserved<'a>)> {
        if workspace != default_workspace() {
            return None;
        }
        self.with(|ready| {
            let pod = ready.pop_front()?;
            let reserved = runs.reserve(&pod.run);
            Some((pod, reserved))
        })
    }

    /// Makes up for what was taken.
    pub fn refill(&self) {
        self.taken.notify_one();
    }

    /// Runs whose pods are ready, which are nobody's leftovers.
    pub fn runs(&self) -> Vec<RunId> {
        self.with(|ready| ready.iter().map(|pod| pod.run.clone()).collect())
    }

    /// Takes a pod out whose network or holder is gone.
    pub fn take_out(&self, run: &RunId) -> Option<Pod> {
        self.taken.notify_one();
        self.with(|ready| {
            let at = ready.iter().position(|pod| &pod.run == run)?;
            ready.remove(at)
        })
    }

    /// Waits until filling has stopped and takes every pod out.
    pub async fn close(&self) -> Vec<Pod> {
        let mut filling = self.filling.subscribe();
        // The sender lives as long as this pool, so waiting cannot fail.
        let _ = filling.wait_for(|filling| !filling).await;
        self.with(|ready| ready.drain(..).collect())
    }

    /// Keeps the pool full until `stop` fires; a pod in the making is finished. `runs` keeps the ids of pods in the
    /// making from the reaper.
    pub async fn fill(&self, pods: &Pods, runs: &Runs, stop: &CancellationToken) {
        self.filling.send_replace(true);
        let mut pause = FIRST_PAUSE;
        while !stop.is_cancelled() {
            if self.with(|ready| ready.len()) >= self.size {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = self.taken.notified() => {}
                }
                continue;
            }
            let run = RunId::allot();
            let reserved = runs.reserve(&run);
            match pods
                .wire(
                    &run,
                    &default_workspace(),
                    &PolicySource::Preset(SEALED.to_owned()),
                )
                .await
            {
                Ok(pod) => {
                    pause = FIRST_PAUSE;
                    self.with(|ready| ready.push_back(pod));
                    drop(reserved);
                }
                Err(error) => {
                    tracing::warn!(%error, "filling the pool");
                    drop(reserved);
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        self.filling.send_replace(false);
    }
}
