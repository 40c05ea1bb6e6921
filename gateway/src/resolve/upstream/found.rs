//! What look-ups find: records of one type, and both address families of a name together.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netpolicy::name::Name;

use super::message::Wire;
use super::{LONGEST_TTL, LookupError};

/// Answers that live shorter are asked for again when they end, not ahead of it.
const WORTH_REFRESHING: Duration = Duration::from_secs(10);

/// What is known about one type of one name.
#[derive(Clone, Debug)]
pub struct Found {
    /// What exists.
    pub what: What,
    /// Every name that an alias on the way there leads to.
    pub aliases: Arc<[Name]>,
    /// When to ask again.
    pub until: Instant,
}

/// What exists at a name for one type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// Records, aliases followed; their owner is the end of the alias chain.
    Records(Arc<[Wire]>),
    /// The name exists, the type does not.
    NoData,
    /// The name does not exist.
    NoName,
}

impl Found {
    /// Seconds left to believe it.
    pub fn ttl(&self, now: Instant) -> u32 {
        u32::try_from(self.until.saturating_duration_since(now).as_secs())
            .unwrap_or(LONGEST_TTL)
            .min(LONGEST_TTL)
    }
}

/// Every address of a name, by family.
#[derive(Debug)]
pub struct Addresses {
    /// A.
    pub v4: Result<Found, LookupError>,
    /// AAAA.
    pub v6: Result<Found, LookupError>,
    /// All of them, A first.
    pub all: Arc<[IpAddr]>,
    /// Every name that an alias of either family leads to, also where the chase was stopped at one.
    pub aliases: Arc<[Name]>,
    /// When to ask again.
    pub until: Instant,
    /// When to ask again ahead of time, so that a busy name is never without an answer.
    refresh: Instant,
    /// Somebody does.
    refreshing: AtomicBool,
}

impl Addresses {
    /// Of both families.
    pub(super) fn new(
        v4: Result<Found, LookupError>,
        v6: Result<Found, LookupError>,
        now: Instant,
    ) -> Self {
        let aliases = aliases_of([&v4, &v6]);
        let all = [&v4, &v6]
            .into_iter()
            .flatten()
            .flat_map(addresses_of)
            .collect();
        // a failure is not kept: the next question asks again
        let ends = [&v4, &v6]
            .into_iter()
            .map(|f| f.as_ref().map_or(now, |f| f.until));
        let until = ends.min().unwrap_or(now);
        let left = until.saturating_duration_since(now);
        let ahead = if left >= WORTH_REFRESHING {
            left / 10
        } else {
            Duration::ZERO
        };
        let (refresh, refreshing) = (
            until.checked_sub(ahead).unwrap_or(until),
            AtomicBool::new(false),
        );
        Self {
            v4,
            v6,
            all,
            aliases,
            until,
            refresh,
            refreshing,
        }
    }

    /// Whether somebody should ask again now and nobody does yet.
    pub fn is_to_be_refreshed(&self, now: Instant) -> bool {
        now >= self.refresh && !self.refreshing.load(Ordering::Relaxed)
    }

    /// Whether the caller should ask again now, ahead of time. True once.
    pub fn claim_refresh(&self, now: Instant) -> bool {
        now >= self.refresh && !self.refreshing.swap(true, Ordering::Relaxed)
    }

    /// Whether both families say that the name does not exist.
    pub fn no_name(&self) -> bool {
        [&self.v4, &self.v6].into_iter().all(|f| {
            matches!(
                f,
                Ok(Found {
                    what: What::NoName,
                    ..
                })
            )
        })
    }
}

/// The addresses of records of one type.
pub(super) fn addresses_of(found: &Found) -> Vec<IpAddr> {
    let What::Records(records) = &found.what else {
        return Vec::new();
    };
    records.iter().filter_map(Wire::address).collect()
}

fn aliases_of(families: [&Result<Found, LookupError>; 2]) -> Arc<[Name]> {
    let mut all: Vec<Name> = Vec::new();
    for family in families {
        let aliases = match family {
            Ok(found) => &found.aliases,
            Err(LookupError::Denied(aliases)) => aliases,
            Err(LookupError::NoAddress | LookupError::Upstream(_)) => continue,
        };
        for alias in aliases.iter() {
            if !all.contains(alias) {
                all.push(alias.clone());
            }
        }
    }
    all.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(now: Instant, what: What, seconds: u64) -> Found {
        let until = now + Duration::from_secs(seconds);
        Found {
            what,
            aliases: Arc::default(),
            until,
        }
    }

    #[test]
    fn answers_are_renewed_once_and_only_shortly_before_their_end() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let addresses = Addresses::new(
            Ok(nothing(now, What::NoData, 60)),
            Ok(nothing(now, What::NoData, 100)),
            now,
        );
        assert_eq!(addresses.until, at(60));
        assert!(!addresses.claim_refresh(at(53)));
        assert!(addresses.claim_refresh(at(54)));
        assert!(!addresses.claim_refresh(at(55)));
        let short = Addresses::new(
            Ok(nothing(now, What::NoData, 5)),
            Ok(nothing(now, What::NoData, 60)),
            now,
        );
        assert!(!short.claim_refresh(at(4)));
    }

    #[test]
    fn half_known_answer_is_not_kept() {
        let now = Instant::now();
        let failed = || Err(LookupError::Upstream("x".to_owned()));
        assert_eq!(
            Addresses::new(Ok(nothing(now, What::NoData, 60)), failed(), now).until,
            now
        );
        assert!(!Addresses::new(Ok(nothing(now, What::NoName, 5)), failed(), now).no_name());
        assert!(
            Addresses::new(
                Ok(nothing(now, What::NoName, 5)),
                Ok(nothing(now, What::NoName, 5)),
                now
            )
            .no_name()
        );
    }
}
