//! From a permitted question to its answer: what the resolver found, judged, then leased or bound.
//!
//! [`Asker::at_once`] answers from the cache without waiting; [`Asker::look_up`] is the slow half. Both end in the same
//! functions, so a cached answer is judged like a fresh one: against the policy of this moment.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use hickory_proto::rr::RecordType;
use netpolicy::decide::{Answers, Denial, decide_aliases, decide_answers};
use netpolicy::name::Name;
use netpolicy::policy::NamesMode;
use netpolicy::reason::Reason;

use super::question::{Code, Question};
use super::reply::{Answer, Body};
use super::verdict::{Asker, DENIED_TTL, Permitted, fixed, info};
use super::{Door, forward};
use crate::network::Network;
use crate::record::Entry;
use crate::resolve::leases::{Given, Moment};
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
        match self
            .admit(question)
            .and_then(|asked| self.cached(asked, question))
        {
            Ok(permitted) => Step::LookUp(permitted),
            Err(answer) => Step::Say(answer),
        }
    }

    /// The answer, if the policy denies or the cache knows; else the name that may be looked up.
    fn cached(&self, asked: Permitted, question: &Question<'_>) -> Result<Permitted, Answer> {
        self.judge(&asked)?;
        let (now, resolver) = (Instant::now(), &self.door.ctx.resolver);
        let moment = moment(self.door);
        let is_address = matches!(asked.kind, RecordType::A | RecordType::AAAA);
        let known = Some(resolver)
            .filter(|_| is_address)
            .and_then(|r| r.known(&self.network.scope, &asked.name, now));
        let Some(known) = known else {
            return Ok(asked);
        };
        self.judge_found(&asked.name, &known)?;
        if known.claim_refresh(now) {
            self.refresh(asked.name.clone());
        }
        let answer = self.family(&asked, &known, now);
        // whatever was denied or failed says why
        if answer.why.is_none() {
            let leased = match answer.body {
                Body::Address(address) => Some(address),
                Body::Nothing | Body::Records(_) => None,
            };
            let given = Given {
                found: known,
                leased,
            };
            let (memo, snapshot) = (self.network.leases.memo(), &self.live.snapshot);
            memo.gave(snapshot, moment, question.raw, given);
        }
        Err(answer)
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
            let follow = |aliases: &[Name]| may_follow(&network, &name, aliases);
            door.ctx
                .resolver
                .refresh(&network.scope, &name, &follow)
                .await;
        });
    }

    /// Looks up and answers.
    pub(super) async fn look_up(&self, permitted: &Permitted) -> Answer {
        let (resolver, scope) = (&self.door.ctx.resolver, &self.network.scope);
        let name = &permitted.name;
        let follow = |aliases: &[Name]| may_follow(self.network, name, aliases);
        match permitted.kind {
            RecordType::A | RecordType::AAAA => {
                let found = resolver.look_up(scope, name, &follow).await;
                self.judge_found(name, &found).map_or_else(
                    |answer| answer,
                    |()| self.family(permitted, &found, Instant::now()),
                )
            }
            kind => match resolver.records(scope, name, kind, &follow).await {
                Ok(found) => self
                    .judge_aliases(name, &found.aliases)
                    .map_or_else(|answer| answer, |()| other(kind, &found, Instant::now())),
                Err(LookupError::Denied(aliases)) => self
                    .judge_aliases(name, &aliases)
                    .map_or_else(|answer| answer, |()| superseded()),
                Err(error) => self.failed(name, &error),
            },
        }
    }

    /// Whether what was found may be told: nothing that the name is an alias of is denied, no address is forbidden.
    fn judge_found(&self, name: &Name, found: &Addresses) -> Result<(), Answer> {
        self.judge_aliases(name, &found.aliases)?;
        if found.all.is_empty() {
            return Ok(());
        }
        let answers = Answers {
            addresses: found.all.to_vec(),
            aliases: found.aliases.to_vec(),
        };
        let snapshot = &self.live.snapshot;
        decide_answers(snapshot, name, &answers, crate::context::now())
            .map_err(|denial| self.forbidden(name, &denial))?;
        self.network.recent.told(name.as_str());
        Ok(())
    }

    /// A denied alias is a denied name.
    fn judge_aliases(&self, name: &Name, aliases: &[Name]) -> Result<(), Answer> {
        if aliases.is_empty() {
            return Ok(());
        }
        decide_aliases(&self.live.snapshot, name, aliases, crate::context::now())
            .map_err(|denial| self.denied(Some(name), &denial, Code::NxDomain))
    }

    /// A look-up for which the network has no place left now. SERVFAIL: the client may try again.
    pub(super) fn too_fast(&self, permitted: &Permitted) -> Answer {
        self.denied(
            Some(&permitted.name),
            &fixed(Reason::LimitRate),
            Code::ServFail,
        )
    }

    /// What the asked family of permitted answers says.
    fn family(
        &self,
        Permitted { name, kind }: &Permitted,
        found: &Addresses,
        now: Instant,
    ) -> Answer {
        let give = |records: &Arc<[Wire]>, ttl| {
            self.given(name, *kind, records, ttl)
                .unwrap_or_else(|error| self.unleased(name, &error))
        };
        told(found, *kind, now, give).unwrap_or_else(|error| match error {
            LookupError::Denied(_) => superseded(),
            error => self.failed(name, error),
        })
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

/// The answer that was given a moment ago, if nothing changed since. Costs no name, no rule and no allocation.
pub(super) fn recalled(
    door: &Door,
    network: &Network,
    question: &Question<'_>,
    (moment, now): (Moment, Instant),
) -> Option<Answer> {
    let kind = RecordType::from(question.kind);
    if !matches!(kind, RecordType::A | RecordType::AAAA) || door.closed(network).is_err() {
        return None;
    }
    let live = network.live.load();
    let memo = network.leases.memo();
    let given = memo.recall(&live.snapshot, moment, question.raw, now)?;
    let give = |records: &Arc<[Wire]>, ttl| match given.leased {
        Some(address) => Answer::address(address, ttl),
        None => Answer::records(records.clone(), ttl),
    };
    told(&given.found, kind, now, give).ok()
}

/// What answers depend on besides the policy.
pub(super) fn moment(door: &Door) -> Moment {
    Moment {
        second: crate::context::now(),
        epoch: door.ctx.resolver.epoch(),
    }
}

/// What is said about one family of what was found.
fn told(
    found: &Addresses,
    kind: RecordType,
    now: Instant,
    give: impl FnOnce(&Arc<[Wire]>, u32) -> Answer,
) -> Result<Answer, &LookupError> {
    if found.no_name() {
        return Ok(Answer::empty(Code::NxDomain, negative(found.until, now)));
    }
    let family = if kind == RecordType::A {
        &found.v4
    } else {
        &found.v6
    };
    let Found { what, until, .. } = family.as_ref()?;
    Ok(match what {
        What::Records(records) => give(records, ttl_of(*until, now)),
        // the other family exists: NXDOMAIN here would end the whole name for some resolvers (DNS-38)
        What::NoData | What::NoName => Answer::empty(Code::NoError, negative(*until, now)),
    })
}

/// Whether a chase may go on: netpolicy's word under the policy of this moment.
fn may_follow(network: &Network, name: &Name, aliases: &[Name]) -> bool {
    let live = network.live.load();
    decide_aliases(&live.snapshot, name, aliases, crate::context::now()).is_ok()
}

/// The policy changed while the question was with the upstream servers; the next one is answered by the new policy.
fn superseded() -> Answer {
    Answer::empty(Code::ServFail, DENIED_TTL).because(info::OTHER, Reason::PolicySuperseded.code())
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
