//! Places for sockets to upstream servers, shared out: no network's silent servers take the place of another's.
//!
//! Every network has a few places of its own, which are shared out over the networks as all that the gateway has is
//! (`limits::Share`), and may take some more from a common store while there are any. A look-up that finds none waits; its
//! time limit goes on.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::limits::{Descriptors, Share, Taken};

/// Places that a network has whatever the common store does: some names at once, both families of each.
const OWN: usize = 16;
/// Places that one network may take from the common store.
const MORE: usize = 48;

/// The places that are no single network's.
#[derive(Debug)]
pub(super) struct Sockets {
    common: Semaphore,
    own: Arc<Share>,
}

/// The places of one network.
#[derive(Debug)]
pub(super) struct Places {
    own: Semaphore,
    held: Arc<AtomicUsize>,
    more: Semaphore,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            own: Semaphore::new(OWN),
            held: Arc::default(),
            more: Semaphore::new(MORE),
        }
    }
}

/// A place: the permits, and what they were shared out from.
#[derive(Debug)]
pub(super) struct Place<'a> {
    _permits: (SemaphorePermit<'a>, Option<SemaphorePermit<'a>>),
    _own: Option<Taken>,
}

impl Sockets {
    /// As many as there are descriptors for.
    pub(super) fn new(descriptors: &Descriptors) -> Self {
        Self {
            common: Semaphore::new(descriptors.common),
            own: Share::new(descriptors.lookups),
        }
    }

    /// Waits for a place. `None` never happens while the gateway runs: nothing closes the stores.
    pub(super) async fn place<'a>(&'a self, network: &'a Places) -> Option<Place<'a>> {
        let own = async {
            let own = network.own.acquire().await.ok()?;
            let Some(taken) = self.own.take(&network.held) else {
                // the others need what is left: only the common store has more
                drop(own);
                return std::future::pending().await;
            };
            Some(Place {
                _permits: (own, None),
                _own: Some(taken),
            })
        };
        let common = async {
            let more = network.more.acquire().await.ok()?;
            let common = self.common.acquire().await.ok()?;
            Some(Place {
                _permits: (more, Some(common)),
                _own: None,
            })
        };
        tokio::select! {
            biased;
            place = own => place,
            place = common => place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn take<'a>(sockets: &'a Sockets, network: &'a Places) -> Vec<Place<'a>> {
        std::iter::from_fn(|| sockets.place(network).now_or_never().flatten()).collect()
    }

    #[test]
    fn greedy_networks_leave_every_other_its_own_places() {
        let descriptors = Descriptors::of(65_536);
        let sockets = Sockets::new(&descriptors);
        let greedy: Vec<Places> = std::iter::repeat_with(Places::default).take(40).collect();
        let mut held: Vec<_> = greedy.iter().map(|n| take(&sockets, n)).collect();
        // alone one may have more than its own, but not all
        assert_eq!(held[0].len(), OWN + MORE);
        let all = 40 * OWN + descriptors.common;
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), all);
        let victim = Places::default();
        assert_eq!(take(&sockets, &victim).len(), OWN);
        // and what is given back is there for the next
        held.clear();
        assert_eq!(take(&sockets, &victim).len(), OWN + MORE);
    }

    #[test]
    fn where_descriptors_are_few_greedy_networks_leave_the_next_some_and_never_more_than_there_are()
    {
        let descriptors = Descriptors::of(1024);
        let sockets = Sockets::new(&descriptors);
        let greedy: Vec<Places> = std::iter::repeat_with(Places::default).take(8).collect();
        let held: Vec<_> = greedy.iter().map(|n| take(&sockets, n)).collect();
        let sum: usize = held.iter().map(Vec::len).sum();
        assert!(sum < descriptors.common + descriptors.lookups, "{sum}");
        assert!(!take(&sockets, &Places::default()).is_empty());
    }
}
