//! What every door shares: handles, all cheap to clone, none with a lock held across an await.

use std::sync::Arc;

use netpolicy::ids::UnixSeconds;
use tokio::sync::watch;

use crate::limits::Ceilings;
use crate::network::Networks;
use crate::record::Journal;
use crate::resolve::Resolver;
use crate::tasks::Tasks;
use crate::uplink::Dialer;

/// Whether anything may pass: `true` only while the posture is Enforcing (or open by the operator's choice).
pub type Open = watch::Receiver<bool>;

/// Shared handles of one gateway.
#[derive(Clone)]
pub struct Context {
    /// Live networks by source address.
    pub networks: Arc<Networks>,
    /// Upstream look-ups.
    pub resolver: Arc<Resolver>,
    /// Upstream connections.
    pub dialer: Arc<Dialer>,
    /// The flow record.
    pub journal: Arc<Journal>,
    /// Global ceilings, shared out.
    pub ceilings: Arc<Ceilings>,
    /// Spawner.
    pub tasks: Tasks,
    /// False while sealed: doors deny with `gateway_sealed`.
    pub open: Open,
}

impl Context {
    /// Whether a network's flows are decided at all now.
    pub fn may_pass(&self, network: &crate::network::Network) -> bool {
        self.networks.may_pass(&self.open, network)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

/// Wall-clock seconds; the only place that asks.
pub fn now() -> UnixSeconds {
    let elapsed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX);
    #[cfg(test)]
    let seconds = seconds + SET_CLOCK.load(std::sync::atomic::Ordering::Relaxed);
    UnixSeconds(seconds)
}

/// By how many seconds a test has set the wall clock forward or back, for everything in its process.
#[cfg(test)]
pub static SET_CLOCK: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);

/// Wall-clock milliseconds, for the record.
pub fn now_ms() -> i64 {
    let elapsed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let ms = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
    #[cfg(test)]
    let ms = ms + 1000 * SET_CLOCK.load(std::sync::atomic::Ordering::Relaxed);
    ms
}
