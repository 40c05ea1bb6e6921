//! What the whole gateway has, shared out.
//!
//! A share is given by *dynamic thresholds*: a network may take one more while it holds less than what is still free.
//! Alone it gets half of everything; `n` greedy networks get an equal part each and one part always stays free for the
//! next. No list of networks, no configuration, one comparison.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit, setrlimit};

use super::descriptors::Descriptors;
use crate::relay::pipes::IdlePipes;

/// SYNs held and dials in progress over all networks; below the kernel queue's length, so user space decides what is
/// dropped.
const MOST_DIALS: usize = 8192;
/// Datagrams that wait for a decision over all networks: a bound on memory (24 MiB of the usual size).
const MOST_HELD: usize = 16_384;
/// The kernel's default range of local ports (32768 to 60999). A network that held all of them towards one address
/// would leave none for the others.
const LOCAL_PORTS: usize = 28_000;

/// A number of equal things that all networks take from.
#[derive(Debug)]
pub struct Share {
    total: usize,
    used: AtomicUsize,
}

impl Share {
    /// So many things.
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            used: AtomicUsize::new(0),
        })
    }

    /// Takes one for the holder whose count is `own`, unless that would eat into what the others may need.
    pub fn take(self: &Arc<Self>, own: &Arc<AtomicUsize>) -> Option<Taken> {
        let held = own.fetch_add(1, Ordering::AcqRel);
        let used = self.used.fetch_add(1, Ordering::AcqRel);
        let taken = Taken {
            share: self.clone(),
            own: own.clone(),
        };
        // the guard exists already: refusing is dropping it
        (held < self.total.saturating_sub(used)).then_some(taken)
    }

    /// How many are taken.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// How many there are.
    pub fn total(&self) -> usize {
        self.total
    }
}

/// One taken thing; given back on drop.
#[derive(Debug)]
pub struct Taken {
    share: Arc<Share>,
    own: Arc<AtomicUsize>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.share.used.fetch_sub(1, Ordering::AcqRel);
        self.own.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Descriptors, uplink ports, new flows: global ceilings, shared out over the live networks.
#[derive(Debug)]
pub struct Ceilings {
    pub(crate) flows: Arc<Share>,
    pub(crate) pipes: Arc<Share>,
    pub(crate) held: Arc<Share>,
    pub(crate) idle_pipes: IdlePipes,
    descriptors: Descriptors,
    most_dials: usize,
    most_flows_each: usize,
}

impl Ceilings {
    /// Raises the soft descriptor limit to the hard one and shares out what that gives.
    pub fn from_rlimit() -> Self {
        let mut limit = getrlimit(Resource::Nofile);
        if limit.current != limit.maximum {
            let raised = rustix::process::Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            };
            match setrlimit(Resource::Nofile, raised) {
                Ok(()) => limit.current = limit.maximum,
                Err(error) => tracing::warn!(%error, "the descriptor limit stays as it is"),
            }
        }
        let descriptors = limit
            .current
            .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        Self::from_descriptors(descriptors)
    }

    /// Ceilings for a process that may hold this many descriptors.
    pub fn from_descriptors(descriptors: usize) -> Self {
        let descriptors = Descriptors::of(descriptors);
        Self {
            flows: Share::new(descriptors.flows),
            pipes: Share::new(descriptors.pipes),
            held: Share::new(MOST_HELD),
            idle_pipes: IdlePipes::default(),
            most_dials: descriptors.flows.min(MOST_DIALS),
            descriptors,
            most_flows_each: LOCAL_PORTS / 2,
        }
    }

    /// How the descriptors are shared out.
    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// Dials in progress that the SYN gate may hold in total.
    pub fn most_dials(&self) -> usize {
        self.most_dials
    }

    /// Flows one network may hold whatever its policy says.
    pub fn most_flows_each(&self) -> usize {
        self.most_flows_each
    }

    /// Pipes lent now, and how many there may be.
    pub fn pipes(&self) -> (usize, usize) {
        (self.pipes.used(), self.pipes.total())
    }

    /// Flows now, and how many there may be.
    pub fn flows(&self) -> (usize, usize) {
        (self.flows.used(), self.flows.total())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(share: &Arc<Share>, own: &Arc<AtomicUsize>) -> Vec<Taken> {
        std::iter::from_fn(|| share.take(own)).collect()
    }

    #[test]
    fn no_network_takes_the_last_reserve_of_the_others() {
        let share = Share::new(100);
        let (a, b, c) = (Arc::default(), Arc::default(), Arc::default());
        let of_a = take_all(&share, &a);
        assert_eq!(of_a.len(), 50);
        let of_b = take_all(&share, &b);
        assert_eq!(of_b.len(), 25);
        assert!(share.take(&a).is_none());
        assert!(share.take(&c).is_some());
    }

    #[test]
    fn what_was_refused_or_dropped_is_given_back() {
        let share = Share::new(10);
        let own = Arc::default();
        drop(take_all(&share, &own));
        assert_eq!(share.used(), 0);
        assert_eq!(own.load(Ordering::Acquire), 0);
        assert_eq!(take_all(&share, &own).len(), 5);
    }

    #[test]
    fn a_process_with_few_descriptors_still_serves_some_flows() {
        let ceilings = Ceilings::from_descriptors(256);
        assert!((16..64).contains(&ceilings.flows().1), "{ceilings:?}");
        assert_eq!(Ceilings::from_descriptors(0).flows(), (0, 0));
        assert_eq!(Ceilings::from_descriptors(usize::MAX).flows(), (0, 262_144));
    }
}
