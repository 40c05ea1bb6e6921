//! Which servers failed lately: they are asked last, so that one dead server does not slow every look-up.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a server that did not answer goes to the end of the line.
const PENALTY: Duration = Duration::from_secs(30);

/// Memory of failures.
#[derive(Debug, Default)]
pub(super) struct Servers(Mutex<HashMap<SocketAddr, Instant>>);

impl Servers {
    /// The servers in the order to ask them: as configured, those that failed lately last.
    pub(super) fn order(&self, servers: &[SocketAddr], now: Instant) -> Vec<SocketAddr> {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_down = |server: &SocketAddr| failed.get(server).is_some_and(|until| *until > now);
        let mut order = servers.to_vec();
        order.sort_by_key(is_down);
        order
    }

    /// It did not answer.
    pub(super) fn failed(&self, server: SocketAddr, now: Instant) {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.retain(|_, until| *until > now);
        failed.insert(server, now + PENALTY);
    }

    /// It answered.
    pub(super) fn answered(&self, server: SocketAddr) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&server);
    }
}
