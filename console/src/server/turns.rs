//! Work that keeps a processor busy: a few pieces at a time, off the threads that answer everybody.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// One place for one kind of work.
#[derive(Clone, Debug)]
pub struct Turns {
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

/// Why a piece of work was not done.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// It panicked, or the console stops.
    #[error("working: {0}")]
    Failed(String),
    /// Too many pieces wait already.
    #[error("too much waits already")]
    Busy,
}

impl TurnError {
    fn of<E: fmt::Display>(error: E) -> Self {
        Self::Failed(format!("{error}"))
    }
}

impl Turns {
    /// So many pieces at once, and so many more that may wait.
    pub fn new(at_once: usize, waiting: usize) -> Self {
        Self {
            turns: Arc::new(Semaphore::new(at_once)),
            places: Arc::new(Semaphore::new(at_once + waiting)),
        }
    }

    /// Does a piece of work when it is its turn. Once begun it is done to its end, whoever waits for it.
    pub async fn take<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TurnError> {
        let place = self.places.clone().try_acquire_owned();
        let place = place.map_err(|_| TurnError::Busy)?;
        let turn = self.turns.clone().acquire_owned().await;
        let turn = turn.map_err(TurnError::of)?;
        tokio::task::spawn_blocking(move || {
            let _held = (place, turn);
            work()
        })
        .await
        .map_err(TurnError::of)
    }
}
