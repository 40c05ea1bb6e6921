//! The one place that spawns: every task is named, owned by a tracker, cancelled and joined.
//!
//! A panic ends its own task and is counted. A task whose end would go unnoticed (a door, a watcher) is
//! [`Tasks::keep`]: if it ends or panics while the gateway runs, that is told to whoever listens on
//! [`Tasks::fallen`], and the gateway seals.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Owns every task of one gateway.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    panics: Arc<AtomicU64>,
    fallen: Arc<watch::Sender<Option<&'static str>>>,
    /// What a test has laid in the way; no other build has it.
    #[cfg(test)]
    tripwire: Arc<std::sync::Mutex<Option<&'static str>>>,
}

/// A task panicked; the log has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Panicked;

/// How a task ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    /// The gateway stops.
    Stopped,
    /// By itself, or by a panic.
    Early,
}

impl Tasks {
    /// Runs a task until it ends or the gateway stops.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let tasks = self.clone();
        // boxed: the runtime moves a task several times before it runs, and a flow's is kilobytes
        let task = Box::pin(task);
        self.track(async move {
            tasks.guard(name, task).await;
        });
    }

    /// Runs a task that must not end before the gateway does.
    pub fn keep(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let tasks = self.clone();
        self.track(async move {
            if tasks.guard(name, task).await == Ended::Early {
                tasks.fell(name);
            }
        });
    }

    /// Runs a part of a task whose panic that task outlives, for parts that can begin again.
    pub async fn caught<T>(
        &self,
        name: &'static str,
        part: impl Future<Output = T>,
    ) -> Result<T, Panicked> {
        // Unwind safe: nothing of the part is looked at again after a panic, and what it shared is behind locks that
        // shrug off poison or in guards that put things right on drop.
        let outcome = AssertUnwindSafe(part).catch_unwind().await;
        outcome.map_err(|_| {
            self.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!(task = name, "a task panicked");
            Panicked
        })
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

    /// Tasks that ended by a panic.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Does one piece of a task that goes on if it panics. `None`: it did, and that is counted; the first time is logged.
    ///
    /// For what a stranger sent: one packet that trips its reader must not end the door that reads all packets.
    pub fn contain<T>(&self, what: &'static str, piece: impl FnOnce() -> T) -> Option<T> {
        // Unwind safe for the reasons that `guard` gives; what the piece was writing is thrown away by the caller.
        if let Ok(done) = std::panic::catch_unwind(AssertUnwindSafe(piece)) {
            return Some(done);
        }
        if self.panics.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(what, "one packet made its reader panic; the others go on");
        }
        None
    }

    /// The next to pass here with this word panics, once.
    #[cfg(test)]
    pub(crate) fn lay_tripwire(&self, what: &'static str) {
        *self.tripwire.lock().unwrap() = Some(what);
    }

    /// A place in the reading of a packet at which a test may have it panic.
    #[cfg(test)]
    pub(crate) fn pass_tripwire(&self, what: &'static str) {
        let mut laid = self.tripwire.lock().unwrap();
        if *laid == Some(what) {
            *laid = None;
            drop(laid);
            panic!("{what} trips its reader");
        }
    }

    /// Cancels everything and waits for it.
    pub async fn shut_down(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }

    fn track(&self, task: impl Future<Output = ()> + Send + 'static) {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one place that spawns"
        )]
        drop(tokio::spawn(self.tracker.track_future(task)));
    }

    async fn guard(&self, name: &'static str, task: impl Future<Output = ()> + Send) -> Ended {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ended::Stopped,
            // a panic is an end like another here
            _ = self.caught(name, task) => {}
        }
        // what a task waits for may be another task that was stopped a moment earlier
        if self.stop.is_cancelled() {
            Ended::Stopped
        } else {
            Ended::Early
        }
    }
}

/// Gives everything else its turn, and sockets and clocks a look: for a door after each batch of packets.
///
/// While packets come faster than they are judged, a door's reads never wait, and the runtime looks at sockets and clocks
/// only between so many turns of tasks: a flood would keep every other flow asleep for seconds.
pub async fn in_turn() {
    tokio::task::yield_now().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_one_task_is_counted_and_the_others_go_on() {
        let tasks = Tasks::default();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        tasks.spawn("panics", async { panic!("on purpose") });
        tasks.spawn("goes on", async { sender.send(()).unwrap() });
        receiver.await.unwrap();
        tasks.shut_down().await;
        assert_eq!(tasks.panics(), 1);
    }

    #[test]
    fn a_contained_panic_is_counted_and_ends_nothing() {
        let tasks = Tasks::default();
        let fallen = tasks.fallen();
        let read = |octet: u8| {
            assert!(octet != 7, "trips its reader");
            octet
        };
        let done = [6, 7, 8].map(|octet| tasks.contain("packet", || read(octet)));
        assert_eq!(done, [Some(6), None, Some(8)]);
        assert_eq!((tasks.panics(), *fallen.borrow()), (1, None));
    }

    #[tokio::test]
    async fn a_kept_task_that_ends_or_panics_is_told_of() {
        for panics in [false, true] {
            let tasks = Tasks::default();
            let mut fallen = tasks.fallen();
            tasks.keep("door", async move {
                assert!(!panics, "a door trips over a packet");
            });
            assert_eq!(
                *fallen.wait_for(Option::is_some).await.unwrap(),
                Some("door")
            );
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
