//! Follows the gateway's record and keeps a tally of each live network of this runner.
//!
//! One follower for all runs, so that the end of a run does not read the journal again. Owns the tallies; refuses to own
//! the journal. Failure stance: a record that cannot be followed makes a summary incomplete and says so; it never stops
//! a run, because the journal itself is the gateway's promise.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gateway::control::{Client, ClientError};
use gateway::record::{Entry, Line};
use netpolicy::ids::NetworkId;
use tokio::sync::Notify;

use crate::summary::{Summary, Tally};

/// How long a summary waits for the entry that says the network is gone; it is written before detach is answered.
const LAST_ENTRY: Duration = Duration::from_secs(3);
/// Pause before a follower that lost the gateway tries again.
const RETRY: Duration = Duration::from_millis(500);

/// Tallies of live networks.
#[derive(Debug, Default)]
pub struct Records {
    tallies: Mutex<HashMap<NetworkId, Tally>>,
    grown: Notify,
}

impl Records {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<NetworkId, Tally>) -> T) -> T {
        act(&mut self.tallies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts a tally; called before the network is attached.
    pub fn watch(&self, network: NetworkId) {
        self.with(|tallies| tallies.insert(network, Tally::default()));
    }

    /// Ends a tally of a detached network and returns what it saw.
    pub async fn conclude(&self, network: &NetworkId) -> Summary {
        let over = async {
            loop {
                let grown = self.grown.notified();
                if self.with(|tallies| tallies.get(network).is_none_or(Tally::is_over)) {
                    return;
                }
                grown.await;
            }
        };
        // Too late is not an error: the summary says that it is incomplete.
        let _ = tokio::time::timeout(LAST_ENTRY, over).await;
        let summary = self
            .with(|tallies| tallies.remove(network))
            .map(|tally| tally.summary())
            .unwrap_or_default();
        Summary {
            network: Some(network.clone()),
            ..summary
        }
    }

    /// How many networks have a tally.
    #[cfg(test)]
    pub fn watched(&self) -> usize {
        self.with(|tallies| tallies.len())
    }

    /// Drops a tally that nobody will ask for.
    pub fn forget(&self, network: &NetworkId) {
        self.with(|tallies| tallies.remove(network));
    }

    fn count(&self, line: &Line) {
        let Some(network) = network_of(&line.entry) else {
            return;
        };
        self.with(|tallies| {
            if let Some(tally) = tallies.get_mut(network) {
                tally.add(&line.entry);
            }
        });
        self.grown.notify_waiters();
    }

    /// Follows until dropped.
    pub async fn follow(&self, gateway: &Client) {
        let mut after = None;
        loop {
            if let Err(error) = self.follow_once(gateway, &mut after).await {
                tracing::debug!(%error, "following the record");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn follow_once(
        &self,
        gateway: &Client,
        after: &mut Option<u64>,
    ) -> Result<(), ClientError> {
        let start = match *after {
            Some(seen) => seen,
            None => head(gateway).await?,
        };
        let mut lines = gateway.follow_records(start).await?;
        *after = Some(start);
        while let Some(line) = lines.next().await? {
            *after = Some(line.seq);
            self.count(&line);
        }
        Ok(())
    }
}

/// Number of the record's last line: what is older concerns no run of this process.
pub(crate) async fn head(gateway: &Client) -> Result<u64, ClientError> {
    let counters = gateway.counters().await?;
    let missing = || ClientError::Malformed("the counters lack `records`".to_owned());
    counters
        .get("records")
        .and_then(serde_json::Value::as_u64)
        .ok_or_else(missing)
}

pub(crate) fn network_of(entry: &Entry) -> Option<&NetworkId> {
    match entry {
        Entry::Open(open) => Some(&open.subject.network),
        Entry::Close(close) => Some(&close.subject.network),
        Entry::Denial(denied) | Entry::Failure(denied) => Some(&denied.subject.network),
        Entry::Folded { first, .. } => Some(&first.subject.network),
        Entry::Network(change) => Some(&change.network),
        Entry::Source(_) | Entry::Selftest(_) | Entry::Posture { .. } | Entry::Gap { .. } => None,
    }
}
