//! Questions on streams (RFC 7766): a length, a message, as many as the client likes, answered in order.
//!
//! Bounded per network and in all, so that idle or dribbling connections (DNS-26) take nothing from others; a message
//! that does not come whole in time ends its connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use netpolicy::ids::NetworkId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::Door;
use super::answer::Step;
use super::question::{Parsed, parse};
use super::reply::{self, Way};
use super::verdict::Asker;
use crate::network::Network;

/// Connections of one network; a stub resolver holds one or two.
const MOST_OF_NETWORK: usize = 16;
/// Between two questions.
const IDLE: Duration = Duration::from_secs(10);
/// From the first octet of a message to its last, and for a reply to be taken.
const WHOLE: Duration = Duration::from_secs(5);

/// How many connections each network has.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    /// Of all networks.
    most: usize,
    counts: Arc<Mutex<HashMap<NetworkId, usize>>>,
}

/// One connection's place; given back on drop.
struct Place {
    connections: Connections,
    network: NetworkId,
}

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            counts: Arc::default(),
        }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<NetworkId, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim(&self, network: &NetworkId) -> Option<Place> {
        let mut counts = self.counts();
        let free = self.most.saturating_sub(counts.values().sum());
        let own = counts.get(network).copied().unwrap_or_default();
        // no more than what is still free, as all that is shared out (`limits::Share`): the next network finds some
        if own >= MOST_OF_NETWORK.min(free) {
            return None;
        }
        counts.insert(network.clone(), own + 1);
        Some(Place {
            connections: self.clone(),
            network: network.clone(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.connections.counts();
        if let Some(count) = counts.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.network);
            }
        }
    }
}

/// Accepts until the gateway stops.
pub(super) async fn accept(door: Arc<Door>, listener: TcpListener, connections: Connections) {
    loop {
        let (stream, source) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "accepting a connection failed"
                );
                // out of descriptors: give others time to close theirs
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(network) = door.ctx.networks.by_source(source.ip().to_canonical()) else {
            continue;
        };
        let Some(place) = connections.claim(&network.id) else {
            continue;
        };
        let tasks = door.ctx.tasks.clone();
        let door = door.clone();
        tasks.spawn("dns stream", async move {
            let _place = place;
            let ended = network.ended.clone();
            tokio::select! {
                () = ended.cancelled() => {}
                served = serve(&door, &network, stream, source) => if let Err(error) = served {
                    tracing::trace!(error = &error as &dyn std::error::Error, "a stream of questions ended");
                }
            }
        });
    }
}

async fn serve(
    door: &Arc<Door>,
    network: &Arc<Network>,
    mut stream: TcpStream,
    source: SocketAddr,
) -> std::io::Result<()> {
    let mut message = Vec::new();
    let mut out = Vec::new();
    loop {
        let mut length = [0; 2];
        let (first, second) = length.split_at_mut(1);
        timeout(IDLE, stream.read_exact(first)).await??;
        let whole = async {
            stream.read_exact(second).await?;
            Ok::<_, std::io::Error>(())
        };
        timeout(WHOLE, whole).await??;
        message.resize(usize::from(u16::from_be_bytes(length)), 0);
        timeout(WHOLE, stream.read_exact(&mut message)).await??;
        if !network
            .leases
            .pace()
            .question(&door.settings.paces, door.clock())
        {
            return Ok(());
        }
        if !answer(door, network, source, &message, &mut out).await {
            return Ok(());
        }
        let Ok(length) = u16::try_from(out.len()) else {
            return Ok(());
        };
        let mut framed = Vec::with_capacity(out.len() + 2);
        framed.extend_from_slice(&length.to_be_bytes());
        framed.extend_from_slice(&out);
        timeout(WHOLE, stream.write_all(&framed)).await??;
    }
}

/// Answers one message; `false` when there is nothing to say, which ends the stream.
async fn answer(
    door: &Arc<Door>,
    network: &Arc<Network>,
    source: SocketAddr,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    let question = match parse(bytes) {
        Parsed::Ask(question) => question,
        Parsed::Refuse(head, code, raw) => {
            door.answered(code);
            reply::refuse(out, head, code, raw);
            return true;
        }
        Parsed::Ignore => return false,
    };
    let asker = Asker::new(door, network, source, Way::Tcp);
    let answer = match asker.at_once(&question) {
        Step::Say(answer) => answer,
        Step::LookUp(permitted) => match network
            .leases
            .pace()
            .lookup(&door.settings.paces, door.clock())
        {
            Some(_place) => asker.look_up(&permitted).await,
            None => asker.too_fast(&permitted),
        },
    };
    door.write(out, &question, &answer, Way::Tcp);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(connections: &Connections, network: &str) -> Vec<Place> {
        let network = network.parse().unwrap();
        std::iter::from_fn(|| connections.claim(&network)).collect()
    }

    #[test]
    fn greedy_networks_leave_a_connection_to_the_next_however_few_there_are() {
        let connections = Connections::new(12);
        let greedy: Vec<_> = (0..3)
            .map(|n| all_of(&connections, &format!("greedy{n}")))
            .collect();
        assert_eq!(greedy.iter().map(Vec::len).collect::<Vec<_>>(), [6, 3, 2]);
        assert_eq!(all_of(&connections, "next").len(), 1);
        drop(greedy);
        let plenty = Connections::new(1024);
        assert_eq!(all_of(&plenty, "one").len(), MOST_OF_NETWORK);
    }
}
