//! Watchers of the kernel: they see every change, or the gateway is sealed until they do again.
//!
//! Owns: what happens when one ends, fails or panics: the gateway is sealed with that as its cause, the watcher begins
//! again after a pause, and only then is the cause taken back. What was missed meanwhile is found by the look that every
//! way out of a seal begins with. Refuses to own: what a watcher does with a change.

use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::control::problems::chain;
use crate::kernel::{Change, Enforcer, KernelError, Monitor};
use crate::posture::{Cause, Posture};
use crate::tasks::Panicked;
use crate::uplink::follow::Follower;

/// The first pause before a new beginning, and the longest: a watcher that fails at once each time opens the gateway for
/// a moment each time, which is safe and of no use.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Something that must see every change.
pub(super) trait Watcher: Send + 'static {
    /// Name of its task, and of its hold on the posture.
    const NAME: &'static str;
    /// What is lost without it.
    const LOST: &'static str;

    /// Watches for as long as it can; says why it cannot any longer.
    fn watch(&mut self) -> impl Future<Output = String> + Send;

    /// Subscribes afresh.
    fn renew(&mut self) -> impl Future<Output = Result<(), KernelError>> + Send;
}

/// Keeps a watcher going until the gateway stops.
pub(super) fn keep<W: Watcher>(ctx: &Context, posture: &Arc<Posture>, mut watcher: W) {
    let (tasks, posture) = (ctx.tasks.clone(), posture.clone());
    ctx.tasks.keep(W::NAME, async move {
        let mut pause = PAUSE;
        loop {
            let began = tokio::time::Instant::now();
            let why = match tasks.caught(W::NAME, watcher.watch()).await {
                Ok(why) => why,
                Err(Panicked) => "it panicked".to_owned(),
            };
            let cause = Cause::new(
                format!("{}: {why}", W::LOST),
                "Sallyport begins again by itself; if this comes back, restart the gateway and report what its log says",
            );
            hold(posture.clone(), W::NAME, cause).await;
            if began.elapsed() > LONGEST_PAUSE {
                pause = PAUSE;
            }
            loop {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                match tasks.caught(W::NAME, watcher.renew()).await {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => {
                        tracing::error!(task = W::NAME, error = %chain(&error), "a watcher cannot begin again");
                    }
                    Err(Panicked) => {}
                }
            }
            posture.release(W::NAME);
        }
    });
}

/// Seals off the runtime's threads; if the runtime is ending there is nothing left to seal.
pub(super) async fn hold(posture: Arc<Posture>, holder: &'static str, cause: Cause) {
    let _ = tokio::task::spawn_blocking(move || posture.hold(holder, &cause)).await;
}

impl Watcher for Follower {
    const NAME: &'static str = "uplink";
    const LOST: &'static str = "the uplink can no longer be followed";

    async fn watch(&mut self) -> String {
        match self.run().await {
            Ok(()) => "it ended".to_owned(),
            Err(error) => chain(&error),
        }
    }

    async fn renew(&mut self) -> Result<(), KernelError> {
        self.begin_again().await
    }
}

/// Wakes the posture machine when somebody else changes the gateway namespace.
pub(super) struct NamespaceWatcher {
    pub(super) monitor: Monitor,
    pub(super) enforcer: Enforcer,
    pub(super) posture: Arc<Posture>,
}

impl Watcher for NamespaceWatcher {
    const NAME: &'static str = "monitor";
    const LOST: &'static str = "changes of the gateway namespace can no longer be watched";

    async fn watch(&mut self) -> String {
        loop {
            match self.monitor.changed().await {
                Ok(changes) => {
                    match changes.as_slice() {
                        // mostly about other namespaces
                        [Change::Programs] => {}
                        [Change::Overflow] => {
                            tracing::info!(
                                "more changed in the gateway namespace than there were notices of; it is looked at again"
                            );
                        }
                        _ => {
                            tracing::warn!(?changes, "somebody else changed the gateway namespace");
                        }
                    }
                    self.posture.wake();
                }
                Err(error) => return error.to_string(),
            }
        }
    }

    async fn renew(&mut self) -> Result<(), KernelError> {
        let enforcer = self.enforcer.clone();
        let opened = tokio::task::spawn_blocking(move || Monitor::open(&enforcer)).await;
        self.monitor = opened.map_err(|error| KernelError::Io {
            act: "opening the monitor".to_owned(),
            source: std::io::Error::other(error),
        })??;
        Ok(())
    }
}
