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
use tokio::sync::Notify;

use crate::pod::{Pod, Pods};
use crate::run::RunId;

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
}

impl Pool {
    /// An empty pool that wants to hold this many.
    pub fn new(size: usize) -> Self {
        Self { size, ready: Mutex::default(), taken: Notify::new() }
    }

    fn with<T>(&self, act: impl FnOnce(&mut VecDeque<Pod>) -> T) -> T {
        act(&mut self.ready.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a pod, if one is ready for this workspace: names get their addresses by workspace, so only the default
    /// one has a pool.
    pub fn take(&self, workspace: &str) -> Option<Pod> {
        if workspace != default_workspace() {
            return None;
        }
        let pod = self.with(VecDeque::pop_front);
        self.taken.notify_one();
        pod
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

    /// Takes every pod out.
    pub fn drain(&self) -> Vec<Pod> {
        self.with(|ready| ready.drain(..).collect())
    }

    /// Keeps the pool full until dropped. `claims` names runs that are being made, before anything of them exists.
    pub async fn fill(&self, pods: &Pods, claims: &crate::runs::Runs) {
        let mut pause = FIRST_PAUSE;
        loop {
            while self.with(|ready| ready.len()) < self.size {
                let run = RunId::allot();
                let claim = claims.reserve(&run);
                match pods.wire(&run, &default_workspace(), &PolicySource::Preset(SEALED.to_owned())).await {
                    Ok(pod) => {
                        pause = FIRST_PAUSE;
                        self.with(|ready| ready.push_back(pod));
                        drop(claim);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "filling the pool");
                        drop(claim);
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
            }
            self.taken.notified().await;
        }
    }
}
