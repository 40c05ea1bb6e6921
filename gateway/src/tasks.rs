//! The one place that spawns: every task is named, owned by a tracker, cancelled and joined.

use std::future::Future;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Owns every task of one gateway.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
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
