//! Upstream look-ups: the system's servers or configured ones, split by domain; cached for each network by itself, single-flight, believed only
//! when they answer exactly what was asked.
//!
//! The journey of a look-up: cache -> the flight that already asks -> [`chase`] follows aliases -> [`exchange`] asks
//! servers in turn -> [`message`] builds each query from nothing and reads the reply. Refuses to own: permission; call
//! only with a permitted name, because a look-up is a packet that leaves the machine. Nothing of a client's message
//! reaches a query: not its id, flags, options or spelling.

mod chase;
mod exchange;
mod flight;
pub mod message;
pub mod nat64;
mod servers;
pub mod system;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use hickory_proto::rr::RecordType;
use ipnet::Ipv6Net;
use moka::sync::Cache;
use netpolicy::name::Name;
use tokio::sync::{Semaphore, watch};

use super::LookupError;
use chase::Chased;
use flight::Flights;
pub use message::Wire;
use servers::Servers;

/// Positive answers are believed this long at most (architecture 2.4), so that a tightened network follows quickly.
pub const LONGEST_TTL: u32 = 60;
/// "Does not exist" is believed this long at most.
pub const LONGEST_NEGATIVE_TTL: u32 = 5;
/// When one family is known, how long the other one may still take. Some servers never answer AAAA.
const OTHER_FAMILY: Duration = Duration::from_secs(2);
/// Answers that live shorter are asked for again when they end, not ahead of it.
const WORTH_REFRESHING: Duration = Duration::from_secs(10);
/// Sockets to upstream servers at once, over all networks.
const MOST_SOCKETS: usize = 512;
/// Octets of answers kept.
const CACHE_OCTETS: u64 = 8 * 1024 * 1024;

/// Which servers to ask.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Upstreams {
    /// For every name that no domain below claims.
    pub default: Vec<SocketAddr>,
    /// Split DNS: names at or below the apex go to these; the longest apex wins.
    pub domains: Vec<(Name, Vec<SocketAddr>)>,
}

impl Upstreams {
    /// The servers of one name.
    pub fn of(&self, name: &Name) -> &[SocketAddr] {
        let claims = self
            .domains
            .iter()
            .filter(|(apex, _)| name == apex || name.is_below(apex));
        claims
            .max_by_key(|(apex, _)| apex.as_str().len())
            .map_or(&self.default, |(_, servers)| servers)
    }
}

/// Who an answer is kept for. Networks share no cache: how long an answer takes would tell one what another asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scope(u64);

impl Scope {
    /// One that nobody else has, or had.
    pub fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What is known about one type of one name.
#[derive(Clone, Debug)]
pub struct Found {
    /// What exists.
    pub what: What,
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
    /// When to ask again.
    pub until: Instant,
    /// When to ask again ahead of time, so that a busy name is never without an answer.
    refresh: Instant,
    /// Somebody does.
    refreshing: AtomicBool,
}

impl Addresses {
    fn new(v4: Result<Found, LookupError>, v6: Result<Found, LookupError>, now: Instant) -> Self {
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
            until,
            refresh,
            refreshing,
        }
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

fn addresses_of(found: &Found) -> Vec<IpAddr> {
    let What::Records(records) = &found.what else {
        return Vec::new();
    };
    records.iter().filter_map(Wire::address).collect()
}

/// Upstream resolvers: the system's or `gateway.resolvers`, with split DNS by domain.
#[derive(Debug)]
pub struct Resolver {
    upstreams: ArcSwap<Upstreams>,
    servers: Servers,
    sockets: Semaphore,
    addresses: Cache<(Scope, Name), Arc<Addresses>>,
    records: Cache<(Scope, Name, u16), Arc<Found>>,
    address_flights: Flights<(Scope, Name), Arc<Addresses>>,
    record_flights: Flights<(Scope, Name, u16), Result<Arc<Found>, LookupError>>,
    nat64: watch::Sender<Vec<Ipv6Net>>,
}

impl Resolver {
    /// A resolver over these servers.
    pub fn new(upstreams: Upstreams) -> Self {
        let ttl = Duration::from_secs(u64::from(LONGEST_TTL));
        Self {
            upstreams: ArcSwap::from_pointee(upstreams),
            servers: Servers::default(),
            sockets: Semaphore::new(MOST_SOCKETS),
            addresses: Cache::builder()
                .max_capacity(CACHE_OCTETS)
                .weigher(|(_, name): &(Scope, Name), a: &Arc<Addresses>| {
                    weight(name, a.all.len() * 64)
                })
                .time_to_live(ttl)
                .build(),
            records: Cache::builder()
                .max_capacity(CACHE_OCTETS)
                .weigher(|(_, name, _): &(Scope, Name, u16), f: &Arc<Found>| {
                    weight(name, octets_of(f))
                })
                .time_to_live(ttl)
                .build(),
            address_flights: Flights::default(),
            record_flights: Flights::default(),
            nat64: watch::Sender::new(Vec::new()),
        }
    }

    /// Other servers from now on. What was learnt from the old ones is forgotten.
    pub fn set_upstreams(&self, upstreams: Upstreams) {
        self.upstreams.store(Arc::new(upstreams));
        self.addresses.invalidate_all();
        self.records.invalidate_all();
    }

    /// NAT64 prefixes of the uplink (RFC 7050), for the address book.
    pub fn nat64(&self) -> watch::Receiver<Vec<Ipv6Net>> {
        self.nat64.subscribe()
    }

    /// Every address of a name, A then AAAA, CNAMEs followed. Cached at most 60 s. Call only with a permitted name.
    pub async fn addresses(&self, scope: Scope, name: &Name) -> Result<Vec<IpAddr>, LookupError> {
        let found = self.look_up(scope, name).await;
        if !found.all.is_empty() {
            return Ok(found.all.to_vec());
        }
        let failure = [&found.v4, &found.v6]
            .into_iter()
            .find_map(|f| f.as_ref().err());
        Err(failure.cloned().unwrap_or(LookupError::NoAddress))
    }

    /// What the cache knows about a name's addresses, without asking anybody.
    pub fn known(&self, scope: Scope, name: &Name, now: Instant) -> Option<Arc<Addresses>> {
        self.addresses
            .get(&(scope, name.clone()))
            .filter(|a| a.until > now)
    }

    /// Both families of a name, asked at once. Call only with a permitted name.
    pub async fn look_up(&self, scope: Scope, name: &Name) -> Arc<Addresses> {
        if let Some(known) = self.known(scope, name, Instant::now()) {
            return known;
        }
        self.address_flights
            .join((scope, name.clone()), || self.both(scope, name.clone()))
            .await
    }

    /// Asks again although the cache still knows, so that it goes on knowing. A failure leaves what is known.
    pub async fn refresh(&self, scope: Scope, name: &Name) {
        self.address_flights
            .join((scope, name.clone()), || self.both(scope, name.clone()))
            .await;
    }

    /// Records of one other type. Call only with a permitted name.
    pub async fn records(
        &self,
        scope: Scope,
        name: &Name,
        kind: RecordType,
    ) -> Result<Arc<Found>, LookupError> {
        let key = (scope, name.clone(), u16::from(kind));
        if let Some(known) = self.records.get(&key).filter(|f| f.until > Instant::now()) {
            return Ok(known);
        }
        let ask = || async {
            let found = Arc::new(self.chase(name, kind).await?.found(Instant::now()));
            self.records.insert(key.clone(), found.clone());
            Ok(found)
        };
        self.record_flights.join(key.clone(), ask).await
    }

    async fn both(&self, scope: Scope, name: Name) -> Arc<Addresses> {
        let ask = async |kind| {
            self.chase(&name, kind)
                .await
                .map(|c: Chased| c.found(Instant::now()))
        };
        let (v4, v6) = first_and_other(ask(RecordType::A), ask(RecordType::AAAA)).await;
        let late = || Err(LookupError::Upstream("no answer in time".to_owned()));
        let now = Instant::now();
        let found = Arc::new(Addresses::new(
            v4.unwrap_or_else(late),
            v6.unwrap_or_else(late),
            now,
        ));
        if found.until > now {
            self.addresses.insert((scope, name), found.clone());
        }
        found
    }
}

/// Waits for both, but not long for the slower one once the faster one has records.
async fn first_and_other<T>(
    v4: impl Future<Output = Result<T, LookupError>>,
    v6: impl Future<Output = Result<T, LookupError>>,
) -> (
    Option<Result<T, LookupError>>,
    Option<Result<T, LookupError>>,
) {
    tokio::pin!(v4, v6);
    tokio::select! {
        a = &mut v4 => {
            let b = if a.is_ok() { tokio::time::timeout(OTHER_FAMILY, v6).await.ok() } else { Some(v6.await) };
            (Some(a), b)
        }
        b = &mut v6 => {
            let a = if b.is_ok() { tokio::time::timeout(OTHER_FAMILY, v4).await.ok() } else { Some(v4.await) };
            (a, Some(b))
        }
    }
}

fn octets_of(found: &Found) -> usize {
    match &found.what {
        What::Records(records) => records.iter().map(|r| r.data.len() + 32).sum(),
        What::NoData | What::NoName => 0,
    }
}

fn weight(name: &Name, octets: usize) -> u32 {
    u32::try_from(name.as_str().len() + octets + 256).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(now: Instant, what: What, seconds: u64) -> Found {
        let until = now + Duration::from_secs(seconds);
        Found { what, until }
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
