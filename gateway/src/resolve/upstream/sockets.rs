//! Places for sockets to upstream servers, shared out: no network's silent servers take the place of another's.
//!
//! Every network has a few places of its own that nobody else can take, and may take some more from a common store
//! while there are any. A look-up that finds none waits; its time limit goes on.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Places that a network always has: some names at once, both families of each.
const OWN: usize = 16;
/// Further places that one network may take from the common store.
const MORE: usize = 48;
/// The common store of all networks.
const COMMON: usize = 512;

/// The common store.
#[derive(Debug)]
pub(super) struct Sockets(Semaphore);

impl Default for Sockets {
    fn default() -> Self {
        Self(Semaphore::new(COMMON))
    }
}

/// What one network may hold.
#[derive(Debug)]
pub(super) struct Places {
    own: Semaphore,
    more: Semaphore,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            own: Semaphore::new(OWN),
            more: Semaphore::new(MORE),
        }
    }
}

/// A place for one socket; given back on drop.
#[derive(Debug)]
pub(super) struct Place<'a> {
    _own: SemaphorePermit<'a>,
    _common: Option<SemaphorePermit<'a>>,
}

impl Sockets {
    /// Waits for a place. `None` never happens while the gateway runs: nobody closes the stores.
    pub(super) async fn place<'a>(&'a self, network: &'a Places) -> Option<Place<'a>> {
        let common = async {
            let own = network.more.acquire().await.ok()?;
            let common = self.0.acquire().await.ok()?;
            Some(Place {
                _own: own,
                _common: Some(common),
            })
        };
        tokio::select! {
            biased;
            own = network.own.acquire() => own.ok().map(|own| Place { _own: own, _common: None }),
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
        let sockets = Sockets::default();
        let greedy: Vec<Places> = std::iter::repeat_with(Places::default).take(40).collect();
        let mut held: Vec<_> = greedy.iter().map(|n| take(&sockets, n)).collect();
        // alone one may have more than its own, but not all
        assert_eq!(held[0].len(), OWN + MORE);
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), 40 * OWN + COMMON);
        let victim = Places::default();
        assert_eq!(take(&sockets, &victim).len(), OWN);
        // and what is given back is there for the next
        held.clear();
        assert_eq!(take(&sockets, &victim).len(), OWN + MORE);
    }
}
