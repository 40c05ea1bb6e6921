//! The UDP door: datagrams become sessions, each decided before anything of it is sent.
//!
//! A session is known by (network, source, destination). Its first datagram arrives at the door, is held, and is decided by
//! what it addresses and, where it is QUIC, by the server name it carries. A permitted session gets two connected sockets:
//! one upstream, pinned to the address that was checked, and one in the gateway namespace that answers as the destination
//! and hears only the source. The kernel then gives the session its datagrams; the door sees those that came before.
//!
//! Owns: what a datagram is held for and what a refused sender is told. Refuses to own: which sessions there are and who
//! makes room ([`super::sessions`]), decisions (netpolicy), moving datagrams ([`session`]).
//! Failure stance: port unreachable, which programs take for "use TCP instead"; a datagram that cannot be held is lost.

mod cut;
mod hearing;
mod moving;
mod session;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use netpolicy::decide::{Connect, Intent};
use netpolicy::reason::Reason;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::flow::Origin;
use super::route::{datagram_intent_to, decide};
use super::sessions::{self, Held, Key, Register};
use super::tcp::canonical;
use crate::context::Context;
use crate::detect::quic::Known;
use crate::kernel::Ns;
use crate::kernel::arrivals::{Arrival, Arrivals};
use crate::kernel::icmp::{About, Errors, Sent, Trouble};
use crate::kernel::sessions::{Cutting, UdpDoor};
use crate::network::Network;
use crate::network::flows::Door;
use crate::relay::plain_denial;
use crate::tasks::in_turn;

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
    register: Arc<Register>,
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
        register: Arc::default(),
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
        #[cfg(test)]
        (self.register).holding(|| self.ctx.tasks.pass_tripwire("a datagram"));
        let inbox = self.register.inbox(key, &network);
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
        let origin = sessions::origin(&self.ctx, &network, Door::Udp, key);
        let intent = datagram_intent_to(&network, key.destination);
        let deny = |reason| self.deny(&origin, &intent, &plain_denial(reason), about.bytes);
        if !self.ctx.may_pass(&network) {
            return deny(Reason::GatewaySealed);
        }
        let slot = match self.register.admit(&network, &self.ctx.ceilings) {
            Ok(slot) => slot,
            Err(reason) => return deny(reason),
        };
        if let Connect::Deny(denial) = decide(&network, &intent) {
            return self.deny(&origin, &intent, &denial, about.bytes);
        }
        let (inbox, datagrams) = mpsc::channel(HELD);
        self.hold(&network, &inbox, about.bytes);
        let (place, leaving) = self.register.enter(key, network, inbox, slot);
        let task = session::Session {
            sessions: self.clone(),
            origin,
            cutting,
            place,
        };
        self.ctx.tasks.spawn("udp session", async move {
            let _leaving = leaving;
            task.run(intent, datagrams).await;
        });
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
}
