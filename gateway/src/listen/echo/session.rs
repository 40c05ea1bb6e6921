//! The life of one ping: route, connect, record, ask and answer, end; each step as for a UDP session.
//!
//! A reply is told once, and only for a request that is outstanding: whoever is asked cannot speak unasked. Until the
//! record of the open session is written, nothing is sent.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use netpolicy::decide::{Evidence, Ground, Intent};
use netpolicy::ids::Generation;
use netpolicy::reason::Reason;
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use tokio::sync::mpsc;

use super::Sessions;
use crate::detect::Language;
use crate::kernel::echo::{Pinger, quoted_sequence};
use crate::kernel::icmp::{About, Sent, Trouble};
use crate::kernel::ready::watch_errors;
use crate::kernel::sessions::{Cutting, next_error_about, path_mtu};
use crate::listen::flow::{Origin, Unreached, open, record_end, record_unreached};
use crate::listen::route::{Route, route};
use crate::listen::sessions::{Held, Key, Meter, Place, opened, sized, trouble_of};
use crate::network::flows::Flow;
use crate::relay::{End, Notes, Refusal, Way, plain_denial};

/// A ping that says nothing for so long is over (RFC 5508 asks for a minute).
const IDLE: Duration = Duration::from_mins(1);
/// Requests of one session that wait for a reply; an older one is no longer waited for. At one a second that is a minute.
const OUTSTANDING: usize = 64;
/// The ICMP header, which counts as moved.
const HEADER: usize = 8;

/// A session that may begin.
#[derive(Debug)]
pub(super) struct Session {
    pub sessions: Arc<Sessions>,
    pub origin: Origin,
    pub key: Key,
    pub cutting: Cutting,
    pub place: Arc<Place>,
}

struct Dialled {
    pinger: AsyncFd<Pinger>,
    address: SocketAddr,
    ground: Ground,
    generation: Generation,
}

impl Session {
    /// From the first request to the last.
    pub async fn run(self, mut intent: Intent, first: Held, inbox: mpsc::Receiver<Held>) {
        let reaching = self.reach(&mut intent);
        match opened(&self.origin, &self.place, reaching).await {
            Ok(dialled) => self.live(intent, first, dialled, inbox).await,
            Err(why) => {
                record_unreached(&self.origin, &intent, &why);
                self.tell(
                    first.sequence,
                    &first.bytes,
                    trouble_of(&why, Trouble::Prohibited),
                );
            }
        }
    }

    /// Decides with what the resolver says, and connects. Nothing is sent.
    async fn reach(&self, intent: &mut Intent) -> Result<Dialled, Unreached> {
        let (ctx, network) = (&self.origin.ctx, &self.origin.network);
        // before deciding: a policy that is replaced from here on is decided again
        let generation = network.live.load().generation;
        let permit = match route(ctx, network, intent).await {
            Route::Dial(permit) => permit,
            Route::Deny(denial) => return Err(Unreached::Denied(denial, None)),
            // only a name could tell, and an echo says none
            Route::Hear(_) => {
                let denial = plain_denial(Reason::AddressNotAllowed);
                return Err(Unreached::Denied(denial, None));
            }
            Route::Unresolvable => {
                return Err(Unreached::unresolvable());
            }
        };
        let asked = self.origin.destination.ip();
        let dialled = ctx.dialer.dial_echo(permit, asked, self.cutting)?;
        let pinger = watch_errors(dialled.pinger).map_err(|error| {
            tracing::warn!(%error, "the socket of a ping could not be watched");
            Unreached::Denied(plain_denial(Reason::LimitFlows), None)
        })?;
        Ok(Dialled {
            pinger,
            address: SocketAddr::new(dialled.upstream, 0),
            ground: dialled.ground,
            generation,
        })
    }

    /// Registers, records, asks and ends.
    async fn live(
        self,
        intent: Intent,
        first: Held,
        dialled: Dialled,
        inbox: mpsc::Receiver<Held>,
    ) {
        let origin = &self.origin;
        let pinger = dialled.pinger.get_ref();
        let local = SocketAddr::new(pinger.local(), pinger.identifier());
        let facts = (dialled.address, dialled.ground);
        let (guard, opened) = open(origin, intent, facts, dialled.generation, Some(local));
        let flow = guard.flow.clone();
        let mut pinging = Pinging {
            session: &self,
            flow: &flow,
            pinger: dialled.pinger,
            outstanding: VecDeque::new(),
            meter: Meter::default(),
        };
        let end = match &opened {
            Ok(()) => pinging.relay(first, inbox).await,
            Err(denial) => {
                self.tell(first.sequence, &first.bytes, Trouble::Prohibited);
                End::Cause(denial.reason)
            }
        };
        let notes = Notes {
            datagrams: Some(pinging.meter.count),
            ..Notes::default()
        };
        record_end(origin, &flow, opened, notes, &end);
        drop(guard);
    }

    fn tell(&self, sequence: u16, bytes: &[u8], trouble: Trouble) {
        let about = About {
            from: self.key.source,
            to: self.key.destination,
            sent: Sent::Echo(sequence),
            bytes,
        };
        self.sessions.errors.tell(about, trouble);
    }
}

/// A session that asks.
struct Pinging<'s> {
    session: &'s Session,
    flow: &'s Flow,
    pinger: AsyncFd<Pinger>,
    /// Sequence numbers, oldest first.
    outstanding: VecDeque<u16>,
    meter: Meter,
}

impl Pinging<'_> {
    async fn relay(&mut self, first: Held, mut inbox: mpsc::Receiver<Held>) -> End {
        if let Err(end) = self.judge().and_then(|()| self.ask(&first)) {
            return end;
        }
        drop(first);
        let (flow, place) = (self.flow, &self.session.place);
        loop {
            let moved = tokio::select! {
                () = flow.cut.cancelled() => {
                    return End::Cause(flow.cause().unwrap_or(Reason::RunEnded));
                }
                () = place.give_way.cancelled() => return End::Idle,
                Some(held) = inbox.recv() => self.ask(&held),
                Ok(()) = self.ready() => self.answer(),
                () = tokio::time::sleep(self.idle_left()) => return End::Idle,
            };
            if let Err(end) = moved {
                return end;
            }
            self.meter.rest(flow).await;
        }
    }

    /// What is ready is read to its end, so that a new event is told anew.
    async fn ready(&self) -> std::io::Result<()> {
        let interest = Interest::READABLE.add(Interest::ERROR);
        let mut ready = self.pinger.ready(interest).await?;
        ready.clear_ready_matching(Ready::READABLE);
        ready.clear_ready_matching(Ready::ERROR);
        Ok(())
    }

    fn idle_left(&self) -> Duration {
        let Session {
            sessions, place, ..
        } = self.session;
        sessions.register.idle_left(place, IDLE)
    }

    /// Nothing is relayed without the second decision, also where there are no bytes to judge.
    fn judge(&self) -> Result<(), End> {
        let evidence = Evidence::Opaque;
        let decided = self.session.origin.lane(self.flow).decide(&evidence);
        decided.map(drop).map_err(|denial| {
            End::Denied(Box::new(Refusal::new(denial, Language::Other, &evidence)))
        })
    }

    fn ask(&mut self, held: &Held) -> Result<(), End> {
        self.account(Way::Up, held.bytes.len())?;
        self.outstanding
            .retain(|sequence| *sequence != held.sequence);
        if self.outstanding.len() >= OUTSTANDING {
            self.outstanding.pop_front();
        }
        for _ in 0..2 {
            match self.pinger.get_ref().send(held.sequence, &held.bytes) {
                Ok(()) => {
                    self.outstanding.push_back(held.sequence);
                    break;
                }
                // an older request's; this one was not sent
                Err(_) if self.drain_errors() => {}
                Err(error) => {
                    self.session
                        .tell(held.sequence, &held.bytes, self.trouble(&error));
                    break;
                }
            }
        }
        Ok(())
    }

    fn trouble(&self, error: &std::io::Error) -> Trouble {
        let known = match error.raw_os_error() {
            Some(libc::EMSGSIZE) => {
                let v4 = self.flow.upstream.is_ipv4();
                path_mtu(self.pinger.get_ref().as_fd(), v4).map(Trouble::TooBig)
            }
            Some(errno) => Trouble::of_errno(errno, 0),
            None => None,
        };
        sized(
            known.unwrap_or(Trouble::Nothing),
            &self.session.origin,
            self.flow,
        )
    }

    /// All replies and errors that are there.
    fn answer(&mut self) -> Result<(), End> {
        self.drain_errors();
        loop {
            match self.pinger.get_ref().receive() {
                Ok(Some((sequence, payload))) => self.reply(sequence, &payload)?,
                Ok(None) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                // a queued error that came meanwhile; one that stays has no end
                Err(_) if self.drain_errors() => {}
                Err(_) => return Ok(()),
            }
        }
    }

    fn reply(&mut self, sequence: u16, payload: &[u8]) -> Result<(), End> {
        let Some(at) = self.outstanding.iter().position(|own| *own == sequence) else {
            return Ok(());
        };
        self.outstanding.remove(at);
        self.account(Way::Down, payload.len())?;
        let session = self.session;
        let request = About {
            from: session.key.source,
            to: session.key.destination,
            sent: Sent::Echo(sequence),
            bytes: &[],
        };
        session.sessions.errors.reply(request, payload);
        Ok(())
    }

    fn account(&mut self, way: Way, payload: usize) -> Result<(), End> {
        let lane = self.session.origin.lane(self.flow);
        self.meter.add(&lane, way, payload + HEADER, 1)?;
        let session = self.session;
        session.place.touch(session.sessions.register.now_ms());
        Ok(())
    }

    /// Passes ICMP errors about outstanding requests on; whether there were any errors.
    fn drain_errors(&mut self) -> bool {
        let mut any = false;
        let mut quote = [0; 64];
        while let Some((trouble, length)) =
            next_error_about(self.pinger.get_ref().as_fd(), &mut quote)
        {
            any = true;
            let quoted = quote.get(..length).unwrap_or_default();
            let Some(sequence) = quoted_sequence(quoted) else {
                continue;
            };
            if let Some(at) = self.outstanding.iter().position(|own| *own == sequence) {
                self.outstanding.remove(at);
                let payload = quoted.get(HEADER..).unwrap_or_default();
                let trouble = sized(trouble, &self.session.origin, self.flow);
                self.session.tell(sequence, payload, trouble);
            }
        }
        any
    }
}
