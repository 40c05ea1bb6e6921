//! From a permitted question to its answer: what the resolver found, judged, then leased or bound.
//!
//! [`Asker::at_once`] answers from the cache without waiting; [`Asker::look_up`] is the slow half. Both end in the same
//! functions, so a cached answer is judged like a fresh one: against the policy of this moment.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use hickory_proto::rr::RecordType;
use netpolicy::decide::{Denial, decide_answers};
use netpolicy::name::Name;
use netpolicy::policy::NamesMode;
use netpolicy::reason::Reason;

use super::forward;
use super::question::{Code, Question};
use super::reply::Answer;
use super::verdict::{Asker, DENIED_TTL, Permitted, fixed, info};
use crate::record::Entry;
use crate::resolve::upstream::{Found, LONGEST_NEGATIVE_TTL, What};
use crate::resolve::{Addresses, LeaseError, LookupError, Wire};

/// What a question needs.
pub(super) enum Step {
    /// Nothing more.
    Say(Answer),
    /// A look-up.
    LookUp(Permitted),
}

impl Asker<'_> {
    /// Decides, and answers if that needs nobody else.
    pub(super) fn at_once(&self, question: &Question<'_>) -> Step {
        match self.admit(question).and_then(|asked| self.cached(asked)) {
            Ok(permitted) => Step::LookUp(permitted),
            Err(answer) => Step::Say(answer),
        }
    }

    /// The answer, if the policy denies or the cache knows; else the name that may be looked up.
    fn cached(&self, asked: Permitted) -> Result<Permitted, Answer> {
        let now = Instant::now();
        let is_address = matches!(asked.kind, RecordType::A | RecordType::AAAA);
        let known = Some(&self.door.ctx.resolver)
            .filter(|_| is_address)
            .and_then(|r| r.known(self.network.scope, &asked.name, now));
        let Some(known) = known else {
            return self.judge(&asked).map(|()| asked);
        };
        let (memo, at) = (self.network.leases.memo(), crate::context::now());
        let snapshot = &self.live.snapshot;
        if !memo.permits(snapshot, at, &asked.name, &known) {
            self.judge(&asked)?;
            if let Err(denial) = decide_answers(snapshot, &asked.name, &known.all, at)
                && !known.all.is_empty()
            {
                return Err(self.forbidden(&asked.name, &denial));
            }
            memo.permitted(snapshot, at, &asked.name, &known);
        }
        if known.claim_refresh(now) {
            self.refresh(asked.name.clone());
        }
        Err(self.family(&asked, &known, now))
    }

    /// Renews what the cache knows before it ends; a flood of questions at that moment stays cheap.
    fn refresh(&self, name: Name) {
        let (door, network) = (self.door.clone(), self.network.clone());
        let Some(place) = network
            .leases
            .pace()
            .lookup(&door.settings.paces, door.clock())
        else {
            return;
        };
        self.door.ctx.tasks.spawn("dns refresh", async move {
            let _place = place;
            door.ctx.resolver.refresh(network.scope, &name).await;
        });
    }

    /// Looks up and answers.
    pub(super) async fn look_up(&self, permitted: &Permitted) -> Answer {
        let resolver = &self.door.ctx.resolver;
        match permitted.kind {
            RecordType::A | RecordType::AAAA => {
                let found = resolver.look_up(self.network.scope, &permitted.name).await;
                self.addressed(permitted, &found, Instant::now())
            }
            kind => match resolver
                .records(self.network.scope, &permitted.name, kind)
                .await
            {
                Ok(found) => other(kind, &found, Instant::now()),
                Err(error) => self.failed(&permitted.name, &error),
            },
        }
    }

    /// A look-up for which the network has no place left now. SERVFAIL: the client may try again.
    pub(super) fn too_fast(&self, permitted: &Permitted) -> Answer {
        self.denied(
            Some(&permitted.name),
            &fixed(Reason::LimitRate),
            Code::ServFail,
        )
    }

    fn addressed(&self, permitted: &Permitted, found: &Addresses, now: Instant) -> Answer {
        let name = &permitted.name;
        if !found.all.is_empty()
            && let Err(denial) =
                decide_answers(&self.live.snapshot, name, &found.all, crate::context::now())
        {
            return self.forbidden(name, &denial);
        }
        self.family(permitted, found, now)
    }

    /// What the asked family of permitted answers says.
    fn family(
        &self,
        Permitted { name, kind }: &Permitted,
        found: &Addresses,
        now: Instant,
    ) -> Answer {
        if found.no_name() {
            return Answer::empty(Code::NxDomain, negative(found.until, now));
        }
        match if *kind == RecordType::A {
            &found.v4
        } else {
            &found.v6
        } {
            Err(error) => self.failed(name, error),
            Ok(Found {
                what: What::Records(records),
                until,
            }) => {
                let ttl = ttl_of(*until, now);
                self.given(name, *kind, records, ttl)
                    .unwrap_or_else(|error| self.unleased(name, &error))
            }
            // the other family exists: NXDOMAIN here would end the whole name for some resolvers (DNS-38)
            Ok(Found {
                what: What::NoData | What::NoName,
                until,
            }) => Answer::empty(Code::NoError, negative(*until, now)),
        }
    }

    /// Synthetic or real addresses, durable before they are said.
    fn given(
        &self,
        name: &Name,
        kind: RecordType,
        records: &Arc<[Wire]>,
        ttl: u32,
    ) -> Result<Answer, LeaseError> {
        let leases = &self.network.leases;
        match self.live.names {
            NamesMode::Leased => {
                let (v4, v6) = leases.lease(name)?;
                let address = if kind == RecordType::A {
                    IpAddr::V4(v4)
                } else {
                    IpAddr::V6(v6)
                };
                Ok(Answer::address(address, ttl))
            }
            NamesMode::Real => {
                let addresses: Vec<IpAddr> = records.iter().filter_map(Wire::address).collect();
                leases.bind(name, &addresses)?;
                Ok(Answer::records(records.clone(), ttl))
            }
        }
    }

    /// One forbidden address spoils the whole answer; the name itself stays permitted, so it exists.
    fn forbidden(&self, name: &Name, denial: &Denial) -> Answer {
        self.denied(Some(name), denial, Code::NoError)
    }

    fn unleased(&self, name: &Name, error: &LeaseError) -> Answer {
        match error {
            LeaseError::Exhausted => {
                self.denied(Some(name), &fixed(Reason::LimitNames), Code::NxDomain)
            }
            LeaseError::Write(_) | LeaseError::Damaged { .. } => self.unwritten(error),
        }
    }

    fn failed(&self, name: &Name, error: &LookupError) -> Answer {
        self.record(Some(name), &fixed(Reason::NameUnresolvable), Entry::Failure);
        let text = format!("{}; {error}", Reason::NameUnresolvable.code());
        Answer::empty(Code::ServFail, DENIED_TTL).because(info::NETWORK_ERROR, text)
    }
}

fn other(kind: RecordType, found: &Found, now: Instant) -> Answer {
    match &found.what {
        What::Records(records) => {
            Answer::records(forward::cleaned(kind, records), ttl_of(found.until, now))
        }
        What::NoData => Answer::empty(Code::NoError, negative(found.until, now)),
        What::NoName => Answer::empty(Code::NxDomain, negative(found.until, now)),
    }
}

/// Whole seconds left, rounded up: an answer that may be kept for a second must not say zero.
fn ttl_of(until: Instant, now: Instant) -> u32 {
    let left = until
        .saturating_duration_since(now)
        .as_millis()
        .div_ceil(1000);
    u32::try_from(left)
        .unwrap_or(u32::MAX)
        .min(crate::resolve::upstream::LONGEST_TTL)
}

fn negative(until: Instant, now: Instant) -> u32 {
    ttl_of(until, now).clamp(DENIED_TTL, LONGEST_NEGATIVE_TTL)
}
