//! The echo door: `ping` from a sandbox to what its policy permits.
//!
//! A session is known by (network, source, identifier, destination), as a `ping` that runs. Its first request is decided;
//! then each request is asked again upstream, under an identifier of the gateway's own, and the reply is told to the
//! sandbox as the answer of whoever it asked. No packet crosses: what passes is a sequence number and a payload.
//!
//! Owns: what a request is held for and what a refused sender is told. Refuses to own: which sessions there are and who
//! makes room ([`super::sessions`]), decisions (netpolicy), asking ([`session`]), rates (the rules).
//! Failure stance: prohibited, as a router with a filter says; a request that cannot be held is lost.

mod session;

use std::net::SocketAddr;
use std::sync::Arc;

use netpolicy::decide::{Connect, Denial, Destination, Heard, Intent};
use netpolicy::policy::Protocol;
use netpolicy::reason::Reason;
use tokio::sync::mpsc;

use super::route::{decide, intent_to};
use super::sessions::{Held, Key, Register, origin};
use crate::context::Context;
use crate::kernel::echo::{Asked, EchoDoor, Request};
use crate::kernel::icmp::{About, Errors, Sent, Trouble};
use crate::kernel::ready::watch;
use crate::kernel::sessions::Cutting;
use crate::network::Network;
use crate::network::flows::Door;
use crate::relay::plain_denial;
use crate::tasks::in_turn;

/// Requests of one session that wait for its decision; later ones are lost, as on a full line.
const HELD: usize = 4;

/// What the door shares with its sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    ctx: Context,
    errors: Arc<Errors>,
    register: Arc<Register>,
}

/// Serves the door's sockets until the gateway stops. Needs the runtime's context.
pub fn serve_echo(
    ctx: &Context,
    errors: Arc<Errors>,
    doors: impl IntoIterator<Item = EchoDoor>,
) -> std::io::Result<()> {
    let sessions = Arc::new(Sessions {
        ctx: ctx.clone(),
        errors,
        register: Arc::default(),
    });
    for door in doors {
        let door = watch(door)?;
        let sessions = sessions.clone();
        ctx.tasks.keep("echo door", async move {
            loop {
                let Ok(mut ready) = door.readable().await else {
                    return;
                };
                match door.get_ref().receive() {
                    Ok(Asked::Request(request)) => {
                        // a panic over one request costs that request
                        let tasks = &sessions.ctx.tasks;
                        tasks.contain("an echo request", || sessions.arrived(&request));
                        in_turn().await;
                    }
                    Ok(Asked::Refused) => {
                        sessions.ctx.journal.meters().echo_refused();
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        ready.clear_ready();
                    }
                    Err(error) => {
                        tracing::debug!(%error, "receiving echo requests");
                        tokio::task::yield_now().await;
                    }
                }
            }
        });
    }
    Ok(())
}

/// The session of a request: its identifier stands where a datagram has its source port.
fn key_of(request: &Request) -> Key {
    Key {
        source: SocketAddr::new(request.from, request.identifier),
        destination: SocketAddr::new(request.to, 0),
    }
}

fn about(key: Key, held: &Held) -> About<'_> {
    About {
        from: key.source,
        to: key.destination,
        sent: Sent::Echo(held.sequence),
        bytes: &held.bytes,
    }
}

impl Sessions {
    fn arrived(self: &Arc<Self>, request: &Request) {
        let Some(network) = self.ctx.networks.by_source(request.from) else {
            return;
        };
        let key = key_of(request);
        if request.hops == 1 {
            // what a router says; the request itself goes no further, whoever it was for
            let about = About {
                from: key.source,
                to: key.destination,
                sent: Sent::Echo(request.sequence),
                bytes: &request.payload,
            };
            return self.errors.tell(about, Trouble::TimeExceeded);
        }
        let Some(place) = network.ledger.hold(&self.ctx.ceilings) else {
            return;
        };
        let held = Held {
            bytes: request.payload.clone(),
            sequence: request.sequence,
            _place: place,
        };
        let inbox = self.register.inbox(key, &network);
        match inbox {
            // full: lost
            Some(inbox) => drop(inbox.try_send(held)),
            None => self.begin(&network, key, held, request.cutting),
        }
    }

    /// Decides a new session as far as its addresses allow, and starts it unless that is a denial.
    fn begin(self: &Arc<Self>, network: &Arc<Network>, key: Key, first: Held, cutting: Cutting) {
        let origin = origin(&self.ctx, network, Door::Icmp, key);
        let intent = echo_intent_to(network, key.destination);
        let deny = |denial: &Denial| {
            origin.record_denial(&intent, denial, None);
            self.errors.tell(about(key, &first), Trouble::Prohibited);
        };
        if !self.ctx.may_pass(network) {
            return deny(&plain_denial(Reason::GatewaySealed));
        }
        let slot = match self.register.admit(network, &self.ctx.ceilings) {
            Ok(slot) => slot,
            Err(reason) => return deny(&plain_denial(reason)),
        };
        if let Connect::Deny(denial) = decide(network, &intent) {
            return deny(&denial);
        }
        let (inbox, requests) = mpsc::channel(HELD);
        let (place, leaving) = (self.register).enter(key, network.clone(), inbox, slot);
        let task = session::Session {
            sessions: self.clone(),
            origin,
            key,
            cutting,
            place,
        };
        self.ctx.tasks.spawn("echo session", async move {
            let _leaving = leaving;
            task.run(intent, first, requests).await;
        });
    }
}

/// What the sandbox asked, as an intent: without a port, and nothing will ever be heard that could say a name.
fn echo_intent_to(network: &Network, destination: SocketAddr) -> Intent {
    let mut intent = Intent {
        protocol: Protocol::Icmp,
        ..intent_to(network, destination)
    };
    if let Destination::Address { heard, .. } = &mut intent.to {
        *heard = Heard::Nothing;
    }
    intent
}
