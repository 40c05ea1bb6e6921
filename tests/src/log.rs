//! What an origin saw: an append-only list that tests read and wait on.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A shared, growing list.
#[derive(Debug)]
pub struct Log<T>(Arc<(Mutex<Vec<T>>, Condvar)>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(Arc::new((Mutex::new(Vec::new()), Condvar::new())))
    }
}

impl<T: Clone> Log<T> {
    /// Adds an entry and wakes whoever waits.
    pub fn push(&self, entry: T) {
        self.0
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(entry);
        self.0.1.notify_all();
    }

    /// Everything so far.
    pub fn all(&self) -> Vec<T> {
        self.0
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How many so far; pass it to [`Log::since`] later.
    pub fn mark(&self) -> usize {
        self.0
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Everything after a mark.
    pub fn since(&self, mark: usize) -> Vec<T> {
        self.0
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .skip(mark)
            .cloned()
            .collect()
    }

    /// Waits for an entry after the mark that fits; `None` when the limit is over.
    pub fn wait(&self, mark: usize, limit: Duration, fits: impl Fn(&T) -> bool) -> Option<T> {
        let end = Instant::now() + limit;
        let mut list = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = list.iter().skip(mark).find(|e| fits(e)) {
                return Some(found.clone());
            }
            let left = end.checked_duration_since(Instant::now())?;
            list = self
                .0
                .1
                .wait_timeout(list, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}
