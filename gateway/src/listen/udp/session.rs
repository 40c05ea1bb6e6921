//! The life of one session: hear, route, dial, open, relay, end; each step as for a TCP flow.
//!
//! Owns the order of these steps and what a session that never opened says. Refuses to own: which datagrams pass and how
//! they move ([`super::moving`]). Until the record of the open session is written, nothing is sent.

use std::net::SocketAddr;
use std::sync::Arc;

use netpolicy::decide::{Destination, Ground, Intent};
use netpolicy::reason::Reason;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Sessions;
use super::hearing::{First, Hearing, hear};
use super::moving::Moving;
use crate::detect::quic::Claims;
use crate::kernel::icmp::Trouble;
use crate::kernel::sessions::{Cutting, reply_socket};
use crate::listen::flow::{Origin, Unreached, open, record_end, record_unreached};
use crate::listen::route::{Route, route};
use crate::listen::sessions::{Held, Meter, Place, opened, trouble_of};
use crate::network::ended::Ending;
use crate::relay::{End, Notes, plain_denial};
use crate::uplink::datagrams::DialledDatagrams;

/// Look-ups of what was heard: none needs more.
const MOST_ROUTES: usize = 2;

/// A session that may begin.
#[derive(Debug)]
pub(super) struct Session {
    pub sessions: Arc<Sessions>,
    pub origin: Origin,
    pub cutting: Cutting,
    pub place: Arc<Place>,
}

/// Both sockets, and why.
struct Dialled {
    upstream: UdpSocket,
    reply: UdpSocket,
    address: SocketAddr,
    ground: Ground,
    generation: netpolicy::ids::Generation,
}

impl Session {
    /// From the first datagram to the last.
    pub async fn run(self, mut intent: Intent, mut inbox: mpsc::Receiver<Held>) {
        let due = Instant::now() + self.origin.waits.head;
        let opening = async {
            let claims = Claims::new(
                self.sessions.handshakes.clone(),
                self.origin.network.id.clone(),
            );
            let dropped = |why| self.dropped(&intent, why);
            let first = hear(&mut inbox, due, claims, dropped);
            let first = first.await.ok_or(Unreached::Gone)?;
            let dialled = self.reach(&mut intent, &first).await?;
            Ok((first, dialled))
        };
        match opened(&self.origin, &self.place, opening).await {
            Ok((first, dialled)) => self.live(intent, first, dialled, inbox).await,
            Err(why) => {
                record_unreached(&self.origin, &intent, &why);
                self.sessions.refuse(
                    &self.origin,
                    &[],
                    trouble_of(&why, Trouble::PortUnreachable),
                );
            }
        }
    }

    /// Writes that a datagram of the sandbox's went nowhere; the journal folds what is alike.
    pub(super) fn dropped(&self, intent: &Intent, why: &'static str) {
        tracing::debug!(why, "a datagram was dropped");
        let denial = plain_denial(Reason::TlsMalformed);
        self.origin.record_denial(intent, &denial, None);
    }

    /// Decides with what was heard, and opens both sockets. Nothing is sent.
    async fn reach(&self, intent: &mut Intent, first: &First) -> Result<Dialled, Unreached> {
        let (ctx, network) = (&self.origin.ctx, &self.origin.network);
        // before deciding: a policy that is replaced from here on is decided again
        let generation = network.live.load().generation;
        let mut permit = None;
        for _ in 0..MOST_ROUTES {
            match route(ctx, network, intent).await {
                Route::Dial(found) => {
                    permit = Some(found);
                    break;
                }
                Route::Hear(_) => set_heard(intent, first),
                Route::Deny(denial) => return Err(Unreached::Denied(denial, None)),
                Route::Unresolvable => {
                    return Err(Unreached::unresolvable());
                }
            }
        }
        let not_allowed = || Unreached::Denied(plain_denial(Reason::AddressNotAllowed), None);
        let permit = permit.ok_or_else(not_allowed)?;
        let asked = self.origin.destination.ip();
        let DialledDatagrams {
            socket,
            upstream,
            ground,
        } = ctx.dialer.dial_datagrams(permit, asked, self.cutting)?;
        let own_trouble = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, "a session's sockets could not be opened");
            Unreached::Denied(plain_denial(Reason::LimitFlows), None)
        };
        let (sessions, link) = (self.sessions.clone(), network.link.clone());
        let (source, destination) = (self.origin.source, self.origin.destination);
        let made = tokio::task::spawn_blocking(move || {
            reply_socket(&sessions.ns, &link, source, destination)
        });
        let reply = made.await.map_err(|error| own_trouble(&error))?;
        let reply = reply.map_err(|error| own_trouble(&error))?;
        Ok(Dialled {
            upstream: UdpSocket::from_std(socket).map_err(|error| own_trouble(&error))?,
            reply: UdpSocket::from_std(reply).map_err(|error| own_trouble(&error))?,
            address: upstream,
            ground,
            generation,
        })
    }

    /// Registers, records, relays and ends.
    async fn live(
        self,
        intent: Intent,
        first: First,
        dialled: Dialled,
        inbox: mpsc::Receiver<Held>,
    ) {
        let origin = &self.origin;
        let local = dialled.upstream.local_addr().ok();
        let facts = (dialled.address, dialled.ground);
        let (guard, opened) = open(origin, intent, facts, dialled.generation, local);
        let flow = guard.flow.clone();
        let mut moving = Moving {
            session: &self,
            flow: &flow,
            upstream: dialled.upstream,
            reply: dialled.reply,
            heard: Hearing::default(),
            notes: Notes::default(),
            meter: Meter::default(),
        };
        let end = match &opened {
            Ok(()) => moving.relay(first, inbox).await,
            Err(denial) => End::Cause(denial.reason),
        };
        if moving.heard.is_unfinished() && !matches!(end, End::Denied(_)) {
            self.dropped(&flow.intent, "a hello without an end");
        }
        if moving.heard.is_quic() {
            let ending = match &end {
                End::Cause(Reason::PolicySuperseded) => Ending::Cut,
                _ => Ending::Other,
            };
            let ended = &origin.network.connections;
            ended.add(ending, flow.server(), std::time::Instant::now());
        }
        let mut notes = moving.notes;
        notes.datagrams = Some(moving.meter.count);
        record_end(origin, &flow, opened, notes, &end);
        drop((moving.upstream, moving.reply, guard));
        if matches!(end, End::Denied(_) | End::Cause(_)) {
            self.sessions.refuse(origin, &[], Trouble::PortUnreachable);
        }
    }
}

fn set_heard(intent: &mut Intent, first: &First) {
    if let Destination::Address { heard, .. } = &mut intent.to {
        *heard = first.heard();
    }
}
