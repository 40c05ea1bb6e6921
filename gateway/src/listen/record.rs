//! What doors write down: one open and one close for each flow, one entry for each denial or failure.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use netpolicy::decide::{Denial, Destination, Direction, Heard, Intent};
use netpolicy::reason::Reason;

use super::flow::{Failed, Origin};
use crate::context::now_ms;
use crate::network::flows::Flow;
use crate::record::Unwritable;
use crate::record::entry::{Close, DecidedBy, Denied, Entry, Open, Subject};
use crate::relay::{End, Notes, plain_denial};

impl Origin {
    /// Who and where, as every entry says it.
    pub(crate) fn subject(&self, intent: &Intent) -> Subject {
        Subject {
            network: self.network.id.clone(),
            run: self.network.run.clone(),
            door: self.door,
            direction: Direction::Egress,
            protocol: intent.protocol,
            source: self.source,
            name: name_of(intent),
            address: self.addressed(intent),
            port: intent.port,
        }
    }

    /// The address that the sandbox used; through the explicit proxy there is one only if it was written.
    fn addressed(&self, intent: &Intent) -> Option<std::net::IpAddr> {
        match (self.door, &intent.to) {
            (crate::network::flows::Door::Proxy, Destination::Name { .. }) => None,
            (_, Destination::Address { address, .. }) => Some(*address),
            (_, Destination::Name { .. }) => Some(self.destination.ip()),
        }
    }

    /// Writes a denial. Nothing depends on it: what is denied stays denied when it cannot be written.
    pub(crate) fn record_denial(&self, intent: &Intent, denial: &Denial, heard: Option<String>) {
        self.append_denied(
            Entry::Denial(self.denied(intent, denial, heard)),
            denial.reason,
        );
    }

    /// Writes that a permitted destination failed, and which address that was: whoever learns from records must see
    /// that it was this machine's or the LAN's.
    pub(crate) fn record_failure(&self, intent: &Intent, failed: &Failed) {
        let mut denied = self.denied(intent, &plain_denial(failed.reason), None);
        denied.upstream = failed.tried;
        let live = self.network.live.load();
        let class = |tried: SocketAddr| live.snapshot.book().classify(tried.ip()).class;
        denied.class = failed.tried.map(class);
        self.append_denied(Entry::Failure(denied), failed.reason);
    }

    fn denied(&self, intent: &Intent, denial: &Denial, heard: Option<String>) -> Box<Denied> {
        let live = self.network.live.load();
        Box::new(Denied {
            subject: self.subject(intent),
            reason: denial.reason,
            by: DecidedBy::denial(denial),
            class: denial.class,
            upstream: None,
            heard,
            policy: live.snapshot.hash(),
            generation: live.generation,
        })
    }

    fn append_denied(&self, entry: Entry, reason: Reason) {
        if let Entry::Denial(denied) | Entry::Failure(denied) = &entry {
            let failed = matches!(entry, Entry::Failure(_));
            self.network.recent.note(denied, failed, now_ms());
        }
        // a network over its budget still shows that it is, once: the journal folds the rest
        if self.network.ledger.record().is_err() && reason != Reason::LimitRecords {
            return;
        }
        if let Err(error) = self.ctx.journal.append(entry) {
            tracing::warn!(sandbox.id = %self.network.id, %reason, %error, "a denial was not recorded");
        }
    }

    /// Writes the open record; without it no byte flows.
    pub(crate) fn record_open(&self, flow: &Flow, local: Option<SocketAddr>) -> Result<(), Reason> {
        if let Some(local) = local {
            // The first word stays; there is only one.
            let _ = flow.local.set(local);
        }
        self.network.ledger.record()?;
        let live = self.network.live.load();
        let subject = self.subject(&flow.intent);
        self.network.recent.passed(&subject);
        let open = Open {
            flow: flow.id,
            subject,
            upstream: flow.upstream,
            local,
            class: flow.ground.class(),
            by: DecidedBy::ground(&flow.ground),
            policy: flow.ground.hash(),
            generation: live.generation,
        };
        let written = self.ctx.journal.append(Entry::Open(Box::new(open)));
        written.map_err(|error| self.unrecorded(&error))
    }

    /// Why a flow that cannot be written down is refused. That a sandbox has used its part of the record up is its own
    /// matter, and as many lines as it likes in the log would be everybody's.
    fn unrecorded(&self, error: &Unwritable) -> Reason {
        if error.0.kind() == std::io::ErrorKind::QuotaExceeded {
            tracing::debug!(sandbox.id = %self.network.id, "the network's part of the record is used up");
            return Reason::LimitRecords;
        }
        tracing::warn!(sandbox.id = %self.network.id, %error, "a flow is refused because it cannot be recorded");
        Reason::GatewaySealed
    }

    /// Writes the close record.
    pub(crate) fn record_close(&self, flow: &Flow, notes: Notes, end: &End, closed_ms: i64) {
        let close = Close {
            flow: flow.id,
            subject: self.subject(&flow.intent),
            sni: notes.sni,
            alpn: notes.alpn,
            http: notes.http,
            datagrams: notes.datagrams,
            up: flow.up.load(Ordering::Relaxed),
            down: flow.down.load(Ordering::Relaxed),
            duration_ms: u64::try_from(closed_ms.saturating_sub(flow.opened_ms)).unwrap_or(0),
            end: end.label().to_owned(),
        };
        if let Err(error) = self.ctx.journal.append(Entry::Close(Box::new(close)))
            && error.0.kind() != std::io::ErrorKind::QuotaExceeded
        {
            tracing::warn!(sandbox.id = %self.network.id, flow.id = flow.id, %error, "the end of a flow was not recorded");
        }
    }
}

/// The name an intent is about.
fn name_of(intent: &Intent) -> Option<String> {
    match &intent.to {
        Destination::Name { name, .. }
        | Destination::Address {
            heard: Heard::Name { name, .. },
            ..
        } => Some(name.to_string()),
        Destination::Address { bound, .. } => match bound.as_slice() {
            [name] => Some(name.to_string()),
            _ => None,
        },
    }
}
