//! Places that one address or account may hold at once: connections, streams. Given back on drop.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::rate::Counted;

/// Places by whose they are.
#[derive(Clone, Debug, Default)]
pub struct Held(Arc<Mutex<HashMap<Counted, usize>>>);

/// One of them; given back on drop.
#[derive(Debug)]
pub struct Hold {
    held: Held,
    of: Counted,
}

impl Held {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<Counted, usize>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One more, unless there are as many as may be.
    pub fn take(&self, of: Counted, most: usize) -> Option<Hold> {
        self.with(|counts| {
            let count = counts.entry(of.clone()).or_default();
            (*count < most).then(|| *count += 1)
        })?;
        let held = self.clone();
        Some(Hold { held, of })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.with(|counts| {
            let left = counts.get(&self.of).copied().unwrap_or_default();
            if left > 1 {
                counts.insert(self.of.clone(), left - 1);
            } else {
                counts.remove(&self.of);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_OF_ONE: usize = 256;

    #[test]
    fn one_address_holds_some_places_and_gives_them_back() {
        let held = Held::default();
        let of = |text: &str| Counted::address(text.parse().unwrap());
        let mut taken: Vec<_> = (0..MOST_OF_ONE)
            .map(|n| {
                held.take(of(&format!("2001:db8::{n:x}")), MOST_OF_ONE)
                    .unwrap()
            })
            .collect();
        assert!(held.take(of("2001:db8::ffff"), MOST_OF_ONE).is_none());
        assert!(held.take(of("192.0.2.1"), MOST_OF_ONE).is_some());
        taken.pop();
        assert!(held.take(of("2001:db8::ffff"), MOST_OF_ONE).is_some());
        taken.clear();
        assert!(held.with(|counts| counts.is_empty()));
    }
}
