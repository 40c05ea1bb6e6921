//! What may be said to a question before anything is looked up, and the record of what may not.
//!
//! Order: local names, the seal, netpolicy's decision, the budget of names, the type. Every denial has one shape:
//! NXDOMAIN (or NODATA where the name must exist) with the reason code as an Extended DNS Error, believed for a second.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use hickory_proto::rr::RecordType;
use netpolicy::decide::{Denial, Direction, Lookup, decide_lookup};
use netpolicy::name::Name;
use netpolicy::policy::Protocol;
use netpolicy::reason::Reason;

use super::Door;
use super::local::{self, Local};
use super::question::{Code, Question};
use super::reply::{Answer, Body, Way};
use crate::context::{now, now_ms};
use crate::network::flows::Door as DoorKind;
use crate::network::{Live, Network};
use crate::record::Entry;
use crate::record::entry::{DecidedBy, Denied, Subject};
use crate::resolve::{Asked, Wire, leases};

/// A denial is asked about again soon: policies change in a moment (architecture 2.4).
pub(super) const DENIED_TTL: u32 = 1;
/// Distinct names of a network whose policy says nothing (architecture 2.7).
const NAMES: u32 = 500;

/// RFC 8914 info codes.
pub(super) mod info {
    /// The server is not ready.
    pub(in super::super) const NOT_READY: u16 = 14;
    /// Blocked by the operator's policy.
    pub(in super::super) const BLOCKED: u16 = 15;
    /// Filtered: the name may be asked for, its answer may not be given.
    pub(in super::super) const FILTERED: u16 = 17;
    /// The client may not ask, or not as much.
    pub(in super::super) const PROHIBITED: u16 = 18;
    /// No authority could be reached.
    pub(in super::super) const NETWORK_ERROR: u16 = 23;
    /// None of the others.
    pub(in super::super) const OTHER: u16 = 0;
}

/// One question of one network.
pub(super) struct Asker<'a> {
    pub(super) door: &'a Arc<Door>,
    pub(super) network: &'a Arc<Network>,
    pub(super) live: Arc<Live>,
    pub(super) source: SocketAddr,
    pub(super) way: Way,
}

/// A name and type; may be looked up once [`Asker::judge`] said so.
pub(super) struct Permitted {
    pub(super) name: Name,
    pub(super) kind: RecordType,
}

impl<'a> Asker<'a> {
    pub(super) fn new(
        door: &'a Arc<Door>,
        network: &'a Arc<Network>,
        source: SocketAddr,
        way: Way,
    ) -> Self {
        Self {
            door,
            network,
            live: network.live.load_full(),
            source,
            way,
        }
    }

    /// The part of a decision that needs no policy: either it goes on with this name, or this is the answer.
    pub(super) fn admit(&self, question: &Question<'_>) -> Result<Permitted, Answer> {
        if question.is_root() {
            return Err(Answer::empty(Code::NoError, DENIED_TTL));
        }
        let name = question
            .name()
            .map_err(|_| self.denied(None, &fixed(Reason::NameInvalid), Code::NxDomain))?;
        match local::of(
            &self.door.settings,
            &self.door.ctx.networks,
            self.network,
            &name,
            question,
        ) {
            Some(Local::Answer(answer)) => return Err(answer),
            Some(Local::Nothing) => {
                return Err(self.denied(
                    Some(&name),
                    &fixed(Reason::NameNotAllowed),
                    Code::NxDomain,
                ));
            }
            None => {}
        }
        self.door
            .closed(self.network)
            .map_err(|reason| self.denied(Some(&name), &fixed(reason), Code::NxDomain))?;
        Ok(Permitted {
            name,
            kind: RecordType::from(question.kind),
        })
    }

    /// The policy's part: `Ok` if the name may be looked up and counts.
    pub(super) fn judge(&self, Permitted { name, kind }: &Permitted) -> Result<(), Answer> {
        match decide_lookup(&self.live.snapshot, name, now()) {
            Lookup::Permit(_) => {}
            Lookup::Ancestor => {
                let nothing = Answer::empty(Code::NoError, DENIED_TTL);
                return Err(nothing.because(info::BLOCKED, Reason::NameNotAllowed.code()));
            }
            Lookup::Deny(denial) => return Err(self.denied(Some(name), &denial, Code::NxDomain)),
        }
        fixed_answer(*kind).map_or_else(|| self.count(name), Err)
    }

    /// Counts the name against the budget before anything leaves for it.
    fn count(&self, name: &Name) -> Result<(), Answer> {
        match self
            .network
            .leases
            .ask(name, &self.network.ledger, names_budget(&self.live))
        {
            Ok(()) => Ok(()),
            Err(Asked::Denied(reason)) => {
                Err(self.denied(Some(name), &fixed(reason), Code::NxDomain))
            }
            Err(Asked::Failed(error)) => Err(self.unwritten(&error)),
        }
    }

    /// What was not written down is not answered.
    pub(super) fn unwritten(&self, error: &leases::LeaseError) -> Answer {
        tracing::error!(network = %self.network.id, error = error as &dyn std::error::Error, "leases cannot be written");
        Answer::empty(Code::ServFail, DENIED_TTL)
            .because(info::OTHER, "the gateway cannot write its state")
    }

    /// Records a denial and makes its answer.
    pub(super) fn denied(&self, name: Option<&Name>, denial: &Denial, code: Code) -> Answer {
        self.record(name, denial, Entry::Denial);
        Answer::empty(code, DENIED_TTL).because(info_of(denial.reason), self.text(denial))
    }

    /// Writes an entry. A denial stands whether or not it can be recorded; the journal itself says when it cannot.
    pub(super) fn record(
        &self,
        name: Option<&Name>,
        denial: &Denial,
        entry: fn(Box<Denied>) -> Entry,
    ) {
        let protocol = if self.way == Way::Udp {
            Protocol::Udp
        } else {
            Protocol::Tcp
        };
        let denied = Denied {
            subject: Subject {
                network: self.network.id.clone(),
                run: self.network.run.clone(),
                door: DoorKind::Dns,
                direction: Direction::Egress,
                protocol,
                source: self.source,
                name: name.map(|name| name.as_str().to_owned()),
                address: None,
                port: 0,
            },
            reason: denial.reason,
            by: DecidedBy::denial(denial),
            class: denial.class,
            upstream: None,
            heard: None,
            policy: self.live.snapshot.hash(),
            generation: self.live.generation,
        };
        let entry = entry(Box::new(denied));
        if let Entry::Denial(denied) | Entry::Failure(denied) = &entry {
            let failed = matches!(entry, Entry::Failure(_));
            self.network.recent.note(denied, failed, now_ms());
        }
        if let Err(error) = self.door.ctx.journal.append(entry) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a denial was not recorded"
            );
        }
    }

    /// The reason code; with `explain: true` also the line that made it.
    fn text(&self, denial: &Denial) -> Cow<'static, str> {
        let code = denial.reason.code();
        match (self.live.explain, &denial.policy, &denial.rule) {
            (true, Some(policy), Some(at)) => {
                format!("{code}; policy {policy}; {}", at.line()).into()
            }
            _ => code.into(),
        }
    }
}

/// Answers that depend on the type alone, for a permitted name.
fn fixed_answer(kind: RecordType) -> Option<Answer> {
    match kind {
        // RFC 8482: everything at once serves nobody but reflectors
        RecordType::ANY => {
            let data = b"\x07RFC8482\x00".as_slice().into();
            Some(Answer::records(
                Arc::new([Wire {
                    kind: RecordType::HINFO.into(),
                    data,
                }]),
                60,
            ))
        }
        kind if super::forward::is_dnssec(kind) => Some(Answer {
            code: Code::NoError,
            body: Body::Nothing,
            ttl: DENIED_TTL,
            why: None,
        }),
        _ => None,
    }
}

/// The narrowest budget of names of all layers.
fn names_budget(live: &Live) -> u32 {
    live.snapshot.limits().names.unwrap_or(NAMES)
}

/// A denial that no policy made.
pub(super) fn fixed(reason: Reason) -> Denial {
    Denial {
        reason,
        layer: None,
        policy: None,
        rule: None,
        class: None,
        note: None,
    }
}

fn info_of(reason: Reason) -> u16 {
    match reason {
        Reason::GatewaySealed => info::NOT_READY,
        Reason::NameResolvesToForbidden | Reason::AddressDenied => info::FILTERED,
        Reason::LimitNames | Reason::LimitRate | Reason::NetworkNone | Reason::RunEnded => {
            info::PROHIBITED
        }
        _ => info::BLOCKED,
    }
}
