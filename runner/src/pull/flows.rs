//! The gateway's records of the runs that a console gave: one follower for all, each record into its run's [`Tale`].
//!
//! A console that is away holds the follower up, not the gateway: the journal keeps what is read later. It begins before
//! the first run does, so no record of a run is older than what it reads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway::control::{Client, ClientError};
use gateway::record::Entry;
use netpolicy::ids::NetworkId;
use tokio::sync::watch;

use super::tale::Tale;
use crate::records::{head, network_of};

/// Before a gateway that went away is asked again.
const RETRY: Duration = Duration::from_millis(300);

/// Where the records of a network go.
#[derive(Debug, Default)]
pub struct Taps {
    taps: Mutex<HashMap<NetworkId, Arc<Tale>>>,
    reading: watch::Sender<bool>,
}

impl Taps {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<NetworkId, Arc<Tale>>) -> T) -> T {
        act(&mut self.taps.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The records of this network are this run's.
    pub fn open(&self, network: NetworkId, tale: Arc<Tale>) {
        self.with(|taps| taps.insert(network, tale));
    }

    /// Nobody wants them any more.
    pub fn close(&self, network: &NetworkId) {
        self.with(|taps| taps.remove(network));
    }

    /// Waits until no record that is written from now on is missed.
    pub async fn ready(&self) {
        // the sender lives as long as this
        let _ = self.reading.subscribe().wait_for(|reading| *reading).await;
    }

    /// Follows until dropped.
    pub async fn follow(&self, gateway: &Client) {
        let mut after = None;
        loop {
            if let Err(error) = self.follow_once(gateway, &mut after).await {
                tracing::debug!(%error, "following the record for the console");
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
        self.reading.send_replace(true);
        while let Some(line) = lines.next().await? {
            *after = Some(line.seq);
            let Some(network) = network_of(&line.entry) else {
                continue;
            };
            let Some(tale) = self.with(|taps| taps.get(network).cloned()) else {
                continue;
            };
            match &line.entry {
                Entry::Network(change) if change.change == "detached" => tale.network_is_over(),
                Entry::Network(_) => {}
                _ => tale.flow(line).await,
            }
        }
        Ok(())
    }
}
