//! The control socket's own threads: whatever its users make wait, doors and watchers run elsewhere.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use super::server;
use super::verbs::Verbs;

/// Requests cost little; what blocks has threads of its own.
const THREADS: usize = 2;

/// A runtime for the control socket alone. Ends in the background when dropped.
#[derive(Debug)]
pub struct Threads(Option<Runtime>);

impl Threads {
    /// Starts them, in the namespace of the calling thread.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("control")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Serves the control socket on these threads; the gateway's tasks own that as they own every task.
    ///
    /// The listener becomes one of the runtime's here: a socket is woken by the threads of the runtime that it was made
    /// for, and those of the doors may be busy.
    pub fn serve(&self, verbs: Arc<Verbs>, listener: UnixListener) {
        let tasks = verbs.tasks().clone();
        let _here = self.0.as_ref().map(Runtime::enter);
        match tokio::net::UnixListener::from_std(listener) {
            Ok(listener) => tasks.keep("control", server::serve(verbs, listener)),
            Err(error) => {
                tracing::error!(%error, "the control socket cannot be served");
                tasks.fell("control");
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Dropping a runtime waits for it, which a thread of another one must not.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
