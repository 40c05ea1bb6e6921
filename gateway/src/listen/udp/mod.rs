//! The UDP door: datagrams become sessions, each decided before anything of it is sent.
//!
//! A session is known by (network, source, destination). Its first datagram arrives at the door, is held, and is decided by
//! what it addresses and, where it is QUIC, by the server name it carries. A permitted session gets two connected sockets:
//! one upstream, pinned to the address that was checked, and one in the gateway namespace that answers as the destination
//! and hears only the source. The kernel then gives the session its datagrams; the door sees those that came before.
//!
//! Owns: the table of sessions, places among the network's flows (the session that is idle for longest makes room), and
//! what a refused sender is told. Refuses to own: decisions (netpolicy), moving datagrams ([`session`]).
//! Failure stance: port unreachable, which programs take for "use TCP instead"; a datagram that cannot be held is lost.

mod cut;
mod hearing;
mod moving;
mod session;
pub(super) mod table;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use netpolicy::decide::{Connect, Intent};
use netpolicy::reason::Reason;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::flow::Origin;
use super::route::{datagram_intent_to, decide};
use super::tcp::canonical;
use crate::context::Context;
use crate::detect::quic::Known;
use crate::kernel::Ns;
use crate::kernel::arrivals::{Arrival, Arrivals};
use crate::kernel::icmp::{About, Errors, Sent, Trouble};
use crate::kernel::sessions::{Cutting, UdpDoor};
use crate::limits::FlowSlot;
use crate::network::Network;
use crate::network::flows::Door;
use crate::relay::{Waits, plain_denial};
use crate::tasks::in_turn;
use table::{Held, Key, Place, Table};

/// Datagrams of one session that wait for its decision; later ones are lost, as on a full line.
const HELD: usize = 16;

/// What the door shares with its sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    ctx: Context,
    ns: Ns,
    errors: Arc<Errors>,
    /// Handshakes of QUIC that any session began.
    handshakes: Arc<Known>,
    /// Servers with which a newer policy ended a connection, and those with which one ended otherwise. Apart, so that
    /// connections that a sandbox ends itself push nothing out that was cut.
    cut: cut::Cut,
    ended: cut::Cut,
    table: Mutex<Table>,
    began: Instant,
}

/// Serves the door's sockets until the gateway stops. Needs the runtime's context.
pub fn serve_udp(
    ctx: &Context,
    ns: Ns,
    errors: Arc<Errors>,
    doors: impl IntoIterator<Item = UdpDoor>,
) -> std::io::Result<()> {
    let sessions = Arc::new(Sessions {
        ctx: ctx.clone(),
        ns,
        errors,
        handshakes: Arc::default(),
        cut: cut::Cut::default(),
        ended: cut::Cut::default(),
        table: Mutex::default(),
        began: Instant::now(),
    });
    for door in doors {
        let socket = UdpSocket::from_std(door.socket)?;
        let task = receive(sessions.clone(), socket, door.cutting);
        ctx.tasks.keep("udp door", task);
    }
    Ok(())
}

async fn receive(sessions: Arc<Sessions>, socket: UdpSocket, cutting: Cutting) {
    let mut arrivals = Arrivals::default();
    loop {
        let read = async {
            socket.readable().await?;
            socket.try_io(Interest::READABLE, || arrivals.receive(socket.as_fd()))
        };
        match read.await {
            Ok(()) => {
                for arrival in arrivals.all() {
                    // a panic over one datagram costs that datagram
                    let tasks = &sessions.ctx.tasks;
                    tasks.contain("a datagram", || sessions.arrived(arrival, cutting));
                }
                in_turn().await;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::debug!(%error, "receiving datagrams");
                tokio::task::yield_now().await;
            }
        }
    }
}

impl Sessions {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A datagram that no session's socket took.
    fn arrived(self: &Arc<Self>, arrival: Arrival<'_>, cutting: Cutting) {
        let key = Key {
            source: canonical(arrival.from),
            destination: canonical(arrival.to),
        };
        // nobody can be answered at port 0, and nobody listens there
        if key.source.port() == 0 || key.destination.port() == 0 {
            return;
        }
        let Some(network) = self.ctx.networks.by_source(key.source.ip()) else {
            return;
        };
        let about = About {
            from: key.source,
            to: key.destination,
            sent: Sent::Udp,
            bytes: arrival.bytes,
        };
        if arrival.hops == 1 {
            // what a router says; the datagram itself goes no further, whoever it was for
            return self.errors.tell(about, Trouble::TimeExceeded);
        }
        let inbox = {
            let table = self.table();
            // with the table in hand: the worst moment for a panic
            #[cfg(test)]
            self.ctx.tasks.pass_tripwire("a datagram");
            table.find(key, &network)
        };
        if let Some(inbox) = inbox {
            return self.hold(&network, &inbox, arrival.bytes);
        }
        self.begin(network, key, about, cutting);
    }

    fn hold(&self, network: &Network, inbox: &mpsc::Sender<Held>, bytes: &[u8]) {
        if let Some(place) = network.ledger.hold(&self.ctx.ceilings) {
            let held = Held {
                bytes: bytes.to_vec(),
                sequence: 0,
                _place: place,
            };
            // full or over: lost
            let _ = inbox.try_send(held);
        }
    }

    /// Decides a new session as far as its addresses allow, and starts it unless that is a denial.
    fn begin(
        self: &Arc<Self>,
        network: Arc<Network>,
        key: Key,
        about: About<'_>,
        cutting: Cutting,
    ) {
        let origin = self.origin(&network, key);
        let intent = datagram_intent_to(&network, key.destination);
        let deny = |reason| self.deny(&origin, &intent, &plain_denial(reason), about.bytes);
        if !self.ctx.may_pass(&network) {
            return deny(Reason::GatewaySealed);
        }
        let slot = match self.admit(&network) {
            Ok(slot) => slot,
            Err(reason) => return deny(reason),
        };
        if let Connect::Deny(denial) = decide(&network, &intent) {
            return self.deny(&origin, &intent, &denial, about.bytes);
        }
        let (inbox, datagrams) = mpsc::channel(HELD);
        self.hold(&network, &inbox, about.bytes);
        let place = Arc::new(Place::new(slot, self.now_ms()));
        let serial = self.table().add(key, network, inbox, place.clone());
        let task = session::Session {
            sessions: self.clone(),
            origin,
            cutting,
            place,
        };
        let leaving = Leaving {
            sessions: self.clone(),
            key,
            serial,
        };
        self.ctx.tasks.spawn("udp session", async move {
            let _leaving = leaving;
            task.run(intent, datagrams).await;
        });
    }

    fn origin(&self, network: &Arc<Network>, key: Key) -> Origin {
        Origin {
            ctx: self.ctx.clone(),
            network: network.clone(),
            door: Door::Udp,
            source: key.source,
            destination: key.destination,
            waits: Waits::default(),
        }
    }

    /// A place among the network's flows; its session that is idle for longest makes room.
    fn admit(&self, network: &Arc<Network>) -> Result<FlowSlot, Reason> {
        let admitted = network.ledger.admit(&self.ctx.ceilings);
        if admitted.as_ref().err() != Some(&Reason::LimitFlows) {
            return admitted;
        }
        let now = self.now_ms();
        if !self.table().give_way(network, now) {
            return admitted;
        }
        network.ledger.place(&self.ctx.ceilings)
    }

    fn deny(
        &self,
        origin: &Origin,
        intent: &Intent,
        denial: &netpolicy::decide::Denial,
        bytes: &[u8],
    ) {
        origin.record_denial(intent, denial, None);
        self.refuse(origin, bytes, Trouble::PortUnreachable);
    }

    fn refuse(&self, origin: &Origin, bytes: &[u8], trouble: Trouble) {
        let (from, to): (SocketAddr, SocketAddr) = (origin.source, origin.destination);
        let sent = Sent::Udp;
        let about = About {
            from,
            to,
            sent,
            bytes,
        };
        self.errors.tell(about, trouble);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Takes its session out of the table, however it ends.
struct Leaving {
    sessions: Arc<Sessions>,
    key: Key,
    serial: u64,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.sessions.table().remove(self.key, self.serial);
    }
}
