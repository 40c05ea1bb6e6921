//! A session whose datagrams move.
//!
//! Datagrams are moved whole, in order and without changes; what cannot be sent at once is lost, as on a full line. Both
//! ends hear the truth: an ICMP error about what the session sent upstream is told to the sandbox, and a sandbox that
//! closed its port closes the upstream port. Each datagram from the sandbox is looked at for a QUIC handshake, and held
//! back while its hello is not complete.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netpolicy::decide::Evidence;
use netpolicy::reason::Reason;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::cut::{Past, is_young};
use super::hearing::{First, Hearing};
use super::session::Session;
use crate::detect::quic::{Inspector, Look};
use crate::detect::{Hello, Language};
use crate::kernel::batch::{Batch, Giving};
use crate::kernel::cutting::are_cut;
use crate::kernel::icmp::{About, Sent, Trouble};
use crate::kernel::sessions::{next_error, path_mtu};
use crate::listen::sessions::{Held, Meter, sized};
use crate::network::flows::Flow;
use crate::relay::{End, Notes, Refusal, Way};

/// A session in which only one side has spoken (RFC 4787 asks for two minutes).
const UNANSWERED: Duration = Duration::from_mins(2);
/// A session in which both have (RFC 4787 recommends five minutes).
const ANSWERED: Duration = Duration::from_mins(5);
/// Different hellos of one session; each is kept and decided again when the policy changes.
const MOST_SAID: usize = 8;
/// Both readiness for datagrams and for ICMP errors.
const READY: Interest = Interest::READABLE.add(Interest::ERROR);

/// How long a session may be silent.
const fn silence(answered: bool) -> Duration {
    if answered { ANSWERED } else { UNANSWERED }
}

thread_local! {
    /// Lent to one session while it moves datagrams: an idle session holds no buffer.
    static BATCH: RefCell<Batch> = RefCell::default();
}

/// A session whose datagrams move.
pub(super) struct Moving<'s> {
    pub session: &'s Session,
    pub flow: &'s Flow,
    pub upstream: UdpSocket,
    pub reply: UdpSocket,
    pub heard: Hearing,
    pub notes: Notes,
    pub meter: Meter,
}

impl Moving<'_> {
    /// Moves datagrams until the session ends.
    pub async fn relay(&mut self, first: First, mut inbox: mpsc::Receiver<Held>) -> End {
        if let Err(end) = self.begin(first) {
            return end;
        }
        let (flow, give_way) = (self.flow, &self.session.place.give_way);
        loop {
            let idle = self.idle_left();
            let moved = tokio::select! {
                () = flow.cut.cancelled() => {
                    return End::Cause(flow.cause().unwrap_or(Reason::RunEnded));
                }
                () = give_way.cancelled() => return End::Idle,
                Some(held) = inbox.recv() => self.up_one(&held.bytes),
                Ok(_) = self.reply.ready(READY) => self.up(),
                Ok(_) = self.upstream.ready(READY) => self.down(),
                () = tokio::time::sleep(idle) => {
                    if self.idle_left().is_zero() {
                        return End::Idle;
                    }
                    continue;
                }
            };
            if let Err(end) = moved {
                return end;
            }
            self.meter.rest(flow).await;
        }
    }

    fn idle_left(&self) -> Duration {
        let limit = silence(self.meter.count.1 > 0);
        let Session {
            sessions, place, ..
        } = self.session;
        sessions.register.idle_left(place, limit)
    }

    /// Judges the first datagrams and sends them.
    fn begin(&mut self, mut first: First) -> Result<(), End> {
        let evidence = first.evidence(self.flow.ground.speaks(), self.past());
        self.judge(&evidence, first.hello())?;
        let pieces = first.inspector.released();
        self.heard.inspector = Some(first.inspector);
        let mut all = pieces.iter().chain(&first.datagrams);
        all.try_for_each(|bytes| self.send_up(bytes))
    }

    fn judge(&mut self, evidence: &Evidence, hello: Option<&Hello>) -> Result<(), End> {
        let before = self.notes.sni.take();
        self.notes.hello(hello);
        self.notes.sni = both_names(before, self.notes.sni.take());
        let said = &mut self.heard.said;
        if !said.contains(evidence) {
            if said.len() == MOST_SAID {
                return Err(End::Cause(Reason::LimitNames));
            }
            said.push(evidence.clone());
        }
        let decided = self.session.origin.lane(self.flow).permits(evidence);
        decided.map_err(|denial| {
            End::Denied(Box::new(Refusal::new(denial, Language::Other, evidence)))
        })?;
        self.session
            .origin
            .lane(self.flow)
            .keep(self.heard.said.clone());
        Ok(())
    }

    /// Whether a name could be denied here, so that what shows none may not be another connection's.
    fn judges_names(&mut self) -> bool {
        let generation = self.session.origin.network.live.load().generation;
        match self.heard.judged {
            Some((asked, judged)) if asked == generation => judged,
            _ => {
                let judged = self.session.origin.lane(self.flow).judges_names();
                self.heard.judged = Some((generation, judged));
                judged
            }
        }
    }

    /// What is known of connections of this network with this server. Where no name could be denied, one that was not
    /// cut may as well go on.
    fn past(&mut self) -> Past {
        let (network, now) = (&self.session.origin.network, Instant::now());
        let (server, last) = (self.flow.server(), &mut self.heard.answer);
        let known = network.connections.known(server, last, now);
        if known.cut {
            return Past::Cut;
        }
        let doubted = known.other || is_young(network.adopted.get().copied(), now);
        if doubted && self.judges_names() {
            return Past::Unknown;
        }
        Past::Clean
    }

    /// Whether what shows no hello passes unread: the middle of connections whose hello was judged, or whatever else
    /// where nothing was that must not go on.
    fn passes_unread(&mut self) -> bool {
        self.heard.is_quic() || self.past() == Past::Clean
    }

    /// What the sandbox's socket has.
    fn up(&mut self) -> Result<(), End> {
        forget_error(&self.reply);
        if matches!(self.reply.take_error(), Ok(Some(_))) {
            // the sandbox closed its port: so does the upstream side, and its kernel says so to the far end
            return Err(End::Reset);
        }
        BATCH.with_borrow_mut(|batch| {
            let read = self
                .reply
                .try_io(Interest::READABLE, || batch.receive(self.reply.as_fd()));
            match read {
                Ok(()) => self.up_batch(batch),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                Err(_) => Err(End::Reset),
            }
        })
    }

    /// The usual case is a batch without any handshake, which is sent as it is.
    fn up_batch(&mut self, batch: &Batch) -> Result<(), End> {
        if batch.datagrams().any(begins_with_long_header) || !self.passes_unread() {
            return batch.datagrams().try_for_each(|bytes| self.up_one(bytes));
        }
        let bytes = batch.datagrams().map(<[u8]>::len).sum();
        self.account(Way::Up, bytes, batch.count())?;
        self.transfer(batch, Way::Up);
        Ok(())
    }

    /// One datagram from the sandbox, looked at.
    fn up_one(&mut self, bytes: &[u8]) -> Result<(), End> {
        let past = if self.heard.is_quic() {
            Past::Clean
        } else {
            self.past()
        };
        let Some(inspector) = &mut self.heard.inspector else {
            return Ok(());
        };
        match inspector.look(bytes) {
            look if past.forbids(&look) => self.judge(&Evidence::TlsMalformed, None),
            Look::Pass | Look::Middle | Look::NotQuic => self.send_up(bytes),
            Look::Need => Ok(()),
            Look::Drop(why) => {
                self.session.dropped(&self.flow.intent, why);
                Ok(())
            }
            Look::Malformed(_) => self.judge(&Evidence::TlsMalformed, None),
            Look::Hello(hello) => {
                let name = hello.name.clone();
                self.judge(&Evidence::Tls { name }, Some(&hello))?;
                let pieces = self.heard.inspector.as_mut().map(Inspector::released);
                for piece in pieces.unwrap_or_default() {
                    self.send_up(&piece)?;
                }
                self.send_up(bytes)
            }
        }
    }

    fn send_up(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.account(Way::Up, bytes.len(), 1)?;
        for _ in 0..2 {
            // straight to the kernel: what does not fit now is lost, so nobody waits for room
            let sent = SockRef::from(&self.upstream).send(bytes);
            match sent {
                Ok(_) => break,
                Err(error) if !self.told(&error, bytes) => break,
                // the error was an older datagram's; this one was not sent
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// What the far end sent, after what the network said about what was sent to it.
    fn down(&mut self) -> Result<(), End> {
        forget_error(&self.upstream);
        self.drain_errors();
        BATCH.with_borrow_mut(|batch| {
            let read = self
                .upstream
                .try_io(Interest::READABLE, || batch.receive(self.upstream.as_fd()));
            match read {
                Ok(()) => {
                    let bytes = batch.datagrams().map(<[u8]>::len).sum();
                    self.account(Way::Down, bytes, batch.count())?;
                    self.transfer(batch, Way::Down);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    self.drain_errors();
                }
            }
            Ok(())
        })
    }

    fn account(&mut self, way: Way, bytes: usize, count: usize) -> Result<(), End> {
        let lane = self.session.origin.lane(self.flow);
        self.meter.add(&lane, way, bytes, count)?;
        let session = self.session;
        session.place.touch(session.sessions.register.now_ms());
        Ok(())
    }

    /// Sends a batch on; what does not fit the line is lost.
    fn transfer(&self, batch: &Batch, way: Way) {
        let (to, mut giving) = match way {
            Way::Up => (self.upstream.as_fd(), Giving::Runs),
            Way::Down if are_cut() => (self.reply.as_fd(), Giving::Runs),
            Way::Down => (self.reply.as_fd(), Giving::Singly),
        };
        let (mut at, mut again) = (0, true);
        while at < batch.count() {
            match batch.send(to, at, giving) {
                Ok(0) => break,
                Ok(sent) => (at, again) = (at + sent, true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // which one of a run it is about, they tell singly
                Err(_) if giving == Giving::Runs => giving = Giving::Singly,
                Err(error) => {
                    let refused = batch.datagrams().nth(at).unwrap_or_default();
                    let retry = way == Way::Up && self.told(&error, refused);
                    // an error that stays is this datagram's own
                    if !(retry && std::mem::take(&mut again)) {
                        (at, again) = (at + 1, true);
                    }
                }
            }
        }
    }

    /// Tells the sandbox why a datagram could not be sent; whether the error was an older one's and this may be sent again.
    fn told(&self, error: &io::Error, bytes: &[u8]) -> bool {
        match error.raw_os_error() {
            Some(libc::EMSGSIZE) => {
                let v4 = self.flow.upstream.is_ipv4();
                if let Some(mtu) = path_mtu(self.upstream.as_fd(), v4) {
                    self.tell(Trouble::TooBig(mtu), bytes);
                }
                false
            }
            Some(libc::EAGAIN | libc::ENOBUFS) | None => false,
            Some(errno) => {
                if !self.drain_errors()
                    && let Some(trouble) = Trouble::of_errno(errno, 0)
                {
                    self.tell(trouble, bytes);
                }
                true
            }
        }
    }

    /// Passes ICMP errors on; whether there were any.
    fn drain_errors(&self) -> bool {
        let mut any = false;
        while let Some(trouble) = next_error(self.upstream.as_fd()) {
            any = true;
            self.tell(trouble, &[]);
        }
        any
    }

    fn tell(&self, trouble: Trouble, bytes: &[u8]) {
        let origin = &self.session.origin;
        let about = About {
            from: origin.source,
            to: origin.destination,
            sent: Sent::Udp,
            bytes,
        };
        let trouble = sized(trouble, origin, self.flow);
        self.session.sessions.errors.tell(about, trouble);
    }
}

/// Names of several connections of one session, for the record.
fn both_names(before: Option<String>, now: Option<String>) -> Option<String> {
    match (before, now) {
        (Some(before), Some(now)) if !before.split(' ').any(|name| name == now) => {
            Some(format!("{before} {now}"))
        }
        (before, now) => before.or(now),
    }
}

/// The runtime no longer calls the socket erred; an error that comes from now on is told anew. Before the error is looked
/// at, so that none is missed.
fn forget_error(socket: &UdpSocket) {
    let _ = socket.try_io(Interest::ERROR, || {
        Err::<(), _>(io::ErrorKind::WouldBlock.into())
    });
}

fn begins_with_long_header(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & 0x80 != 0)
}

#[cfg(test)]
mod tests {
    use super::{Duration, silence};

    /// RFC 4787 REQ-5: never under two minutes, five recommended.
    #[test]
    fn who_was_answered_may_be_silent_for_longer() {
        assert_eq!(silence(false), Duration::from_mins(2));
        assert_eq!(silence(true), Duration::from_mins(5));
    }
}
