//! The one place that spawns: every task is named, owned by a tracker, cancelled and joined.
//!
//! A task whose end would go unnoticed (a door, a watcher) is [`Tasks::keep`]: if it ends or panics while the gateway
//! runs, that is told to whoever listens on [`Tasks::fallen`], and the gateway seals.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Owns every task of one gateway.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    fallen: Arc<watch::Sender<Option<&'static str>>>,
}

/// Tells of a task's end however it comes, a panic included.
struct Watched {
    name: &'static str,
    tasks: Tasks,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.tasks.stop.is_cancelled() {
            self.tasks.fell(self.name);
        }
    }
}

impl Tasks {
    /// Runs a task until it ends or the gateway stops.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one place that spawns"
        )]
        drop(tokio::spawn(self.tracker.track_future(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
            tracing::trace!(task = name, "task ended");
        })));
    }

    /// Runs a task that must not end before the gateway does.
    pub fn keep(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let watched = Watched { name, tasks: self.clone() };
        self.spawn(name, async move {
            let _watched = watched;
            task.await;
        });
    }

    /// Says that something which must run does not.
    pub fn fell(&self, name: &'static str) {
        tracing::error!(task = name, "a task that must run has ended");
        self.fallen.send_replace(Some(name));
    }

    /// The last task that ended and must not have.
    pub fn fallen(&self) -> watch::Receiver<Option<&'static str>> {
        self.fallen.subscribe()
    }

    /// Fires when the gateway stops.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Cancels everything and waits for it.
    pub async fn shut_down(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kept_task_that_ends_or_panics_is_told_of() {
        for panics in [false, true] {
            let tasks = Tasks::default();
            let mut fallen = tasks.fallen();
            tasks.keep("door", async move { assert!(!panics, "a door trips over a packet") });
            assert_eq!(*fallen.wait_for(Option::is_some).await.unwrap(), Some("door"));
        }
    }

    #[tokio::test]
    async fn the_end_of_the_gateway_and_of_other_tasks_is_nothing_to_tell() {
        let tasks = Tasks::default();
        let fallen = tasks.fallen();
        tasks.keep("door", std::future::pending());
        tasks.spawn("flow", async {});
        tasks.shut_down().await;
        assert_eq!(*fallen.borrow(), None);
    }
}
