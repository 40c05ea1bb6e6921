//! From a question to its records: aliases are followed inside the answer and by further questions.
//!
//! Only records whose owner is the name asked for, or the end of the alias chain so far, count (DNS-08): whatever else
//! a server adds is not read, not kept, not bound. Every alias target inherits the permission of the name that was
//! asked for, for this look-up only: permission goes by the name that the sandbox said. A denial goes by every name: the
//! caller is asked about each alias before anything is sent for it, and every answer says which aliases led to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RData, RecordType};

use super::message::{Reply, Wire, sane_ttl};
use super::{
    Found, LONGEST_NEGATIVE_TTL, LONGEST_TTL, LookupError, MayFollow, Resolver, Scope, What,
};

/// Further questions for one look-up; servers that recurse need none.
const MOST_QUESTIONS: usize = 8;
/// Aliases in one chain (DNS-06).
const MOST_ALIASES: usize = 16;
/// Records of one type at one name that are kept; more add nothing for a client and cost memory (DNS-42). Those that
/// are kept are those that are judged, leased, bound and answered.
const MOST_RECORDS: usize = 64;
/// Everything about one type of one name, aliases and retries included: shorter than any client's patience.
const LONGEST: Duration = Duration::from_secs(6);

/// The end of a chase.
#[derive(Debug)]
pub(super) struct Chased {
    what: What,
    aliases: Arc<[netpolicy::name::Name]>,
    ttl: u32,
}

impl Chased {
    /// Believed from now on.
    pub(super) fn found(self, now: Instant) -> Found {
        Found {
            what: self.what,
            aliases: self.aliases,
            until: now + Duration::from_secs(u64::from(self.ttl)),
        }
    }
}

/// Where an alias chain stands.
struct Chain {
    at: Name,
    seen: Vec<Name>,
    /// Where the aliases led, as names that a policy can speak of.
    aliases: Vec<netpolicy::name::Name>,
    ttl: u32,
}

impl Chain {
    fn step(&mut self, target: &Name, ttl: u32) -> Result<(), LookupError> {
        self.ttl = self.ttl.min(sane_ttl(ttl));
        self.note(target)?;
        self.seen
            .push(std::mem::replace(&mut self.at, target.clone()));
        if self.seen.contains(&self.at) {
            return Err(LookupError::Upstream("the aliases form a loop".to_owned()));
        }
        if self.seen.len() > MOST_ALIASES {
            return Err(LookupError::Upstream("too many aliases".to_owned()));
        }
        Ok(())
    }

    /// Remembers where an alias leads. What can mean no host could be named by no rule, so it is not followed.
    fn note(&mut self, target: &Name) -> Result<(), LookupError> {
        let alias = netpolicy::name::Name::from_labels(target.iter())
            .map_err(|_| LookupError::Upstream("an alias leads to no host name".to_owned()))?;
        self.aliases.push(alias);
        Ok(())
    }

    /// Remembers where the aliases that were asked for lead; whoever asks for an alias learns of nothing behind it.
    fn note_aliases(&mut self, reply: &Reply) -> Result<(), LookupError> {
        let here = self.at.clone();
        let mut targets = reply
            .answers
            .iter()
            .filter_map(|record| match &record.data {
                RData::CNAME(target) if record.name == here => Some(&target.0),
                _ => None,
            });
        targets.try_for_each(|target| self.note(target))
    }

    /// Follows aliases as far as this answer leads.
    fn follow(&mut self, reply: &Reply) -> Result<(), LookupError> {
        while let Some((target, ttl)) = reply.answers.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == self.at => Some((&target.0, record.ttl)),
            _ => None,
        }) {
            self.step(target, ttl)?;
        }
        Ok(())
    }
}

impl Resolver {
    /// Asks until the chain ends in records, in "no such type" or in "no such name".
    pub(super) async fn chase(
        &self,
        scope: &Scope,
        name: &netpolicy::name::Name,
        kind: RecordType,
        follow: MayFollow<'_>,
    ) -> Result<Chased, LookupError> {
        let late = || LookupError::Upstream("no answer in time".to_owned());
        tokio::time::timeout(LONGEST, self.chase_unhurried(scope, name, kind, follow))
            .await
            .map_err(|_| late())?
    }

    async fn chase_unhurried(
        &self,
        scope: &Scope,
        name: &netpolicy::name::Name,
        kind: RecordType,
        follow: MayFollow<'_>,
    ) -> Result<Chased, LookupError> {
        let start = Name::from_labels(name.labels().map(str::as_bytes));
        let start =
            start.map_err(|_| LookupError::Upstream("the name cannot be asked for".to_owned()))?;
        let mut chain = Chain {
            at: start,
            seen: Vec::new(),
            aliases: Vec::new(),
            ttl: LONGEST_TTL,
        };
        for _ in 0..MOST_QUESTIONS {
            let asked = chain.at.clone();
            let reply = self.exchange(scope, &asked, kind).await?;
            if kind == RecordType::CNAME {
                chain.note_aliases(&reply)?;
            } else {
                chain.follow(&reply)?;
            }
            if !chain.aliases.is_empty() && !follow(&chain.aliases) {
                return Err(LookupError::Denied(chain.aliases.into()));
            }
            if let Some(end) = end_of(&reply, &chain, kind, asked == chain.at) {
                return Ok(end);
            }
        }
        Err(LookupError::Upstream("too many aliases".to_owned()))
    }
}

/// What this reply says about the end of the chain; `None` when the alias target has to be asked for.
fn end_of(reply: &Reply, chain: &Chain, kind: RecordType, no_alias: bool) -> Option<Chased> {
    let chased = |what, ttl| Chased {
        what,
        aliases: chain.aliases.as_slice().into(),
        ttl,
    };
    let records = reply
        .answers
        .iter()
        .filter(|r| r.name == chain.at && r.record_type() == kind);
    let mut ttl = chain.ttl;
    let mut wires = Vec::new();
    for record in records.take(MOST_RECORDS) {
        ttl = ttl.min(sane_ttl(record.ttl));
        wires.extend(Wire::new(&record.data));
    }
    if !wires.is_empty() {
        return Some(chased(What::Records(wires.into()), ttl));
    }
    let negative = reply.negative.unwrap_or(LONGEST_NEGATIVE_TTL);
    match reply.code {
        ResponseCode::NXDomain => Some(chased(
            What::NoName,
            negative.clamp(1, LONGEST_NEGATIVE_TTL),
        )),
        // a name that exists seldom gains a family: kept as long as records are, told for a few seconds
        _ if no_alias || reply.negative.is_some() => {
            Some(chased(What::NoData, negative.clamp(1, chain.ttl.max(1))))
        }
        _ => None,
    }
}
