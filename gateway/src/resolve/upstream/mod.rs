//! Upstream look-ups: the system's servers or configured ones, split by domain; cached for each network by itself,
//! single-flight, believed only when they answer exactly what was asked.
//!
//! The journey of a look-up: cache -> the flight that already asks -> [`chase`] follows aliases -> [`exchange`] asks
//! servers in turn -> [`message`] builds each query from nothing and reads the reply. Refuses to own: permission; call
//! only with a permitted name, because a look-up is a packet that leaves the machine. Nothing of a client's message
//! reaches a query: not its id, flags, options or spelling.

mod chase;
mod exchange;
mod flight;
mod found;
pub mod message;
pub mod nat64;
mod scope;
mod servers;
mod sockets;
pub mod system;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use hickory_proto::rr::RecordType;
use ipnet::Ipv6Net;
use netpolicy::decide::Answers;
use netpolicy::name::Name;
use tokio::sync::watch;

use super::LookupError;
use crate::limits::Descriptors;
use chase::Chased;
use found::addresses_of;
pub use found::{Addresses, Found, What};
pub use message::Wire;
pub use scope::Scope;
use servers::Servers;
use sockets::Sockets;

/// Positive answers are believed this long at most (architecture 2.4), so that a tightened network follows quickly.
pub const LONGEST_TTL: u32 = 60;
/// "Does not exist" is believed this long at most.
pub const LONGEST_NEGATIVE_TTL: u32 = 5;
/// When one family is known, how long the other one may still take. Some servers never answer AAAA.
const OTHER_FAMILY: Duration = Duration::from_secs(2);

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

/// Whether a name may go on being looked up although it turns out to be an alias of these names. Asked before anything is
/// sent for the last of them. The resolver itself permits and denies nothing.
pub type MayFollow<'a> = &'a (dyn Fn(&[Name]) -> bool + Send + Sync);

/// A limit of descriptors under which only the fixed bounds are felt, until [`Resolver::within`] says how many there are.
const PLENTY: usize = 1 << 16;

/// Upstream resolvers: the system's or `gateway.resolvers`, with split DNS by domain.
#[derive(Debug)]
pub struct Resolver {
    upstreams: ArcSwap<Upstreams>,
    /// Grows with every change of servers: answers of earlier ones are not believed.
    epoch: AtomicU64,
    servers: Servers,
    sockets: Sockets,
    /// For what the gateway asks by itself.
    own: Scope,
    nat64: watch::Sender<Vec<Ipv6Net>>,
}

impl Resolver {
    /// A resolver over these servers.
    pub fn new(upstreams: Upstreams) -> Self {
        Self {
            upstreams: ArcSwap::from_pointee(upstreams),
            epoch: AtomicU64::new(0),
            servers: Servers::default(),
            sockets: Sockets::new(&Descriptors::of(PLENTY)),
            own: Scope::fresh(),
            nat64: watch::Sender::new(Vec::new()),
        }
    }

    /// With as many sockets as there are descriptors for.
    #[must_use]
    pub fn within(self, descriptors: &Descriptors) -> Self {
        Self {
            sockets: Sockets::new(descriptors),
            ..self
        }
    }

    /// Other servers from now on. What was learnt from the old ones is forgotten.
    pub fn set_upstreams(&self, upstreams: Upstreams) {
        self.upstreams.store(Arc::new(upstreams));
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Changes with the servers: what was learnt in another epoch is not believed.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// NAT64 prefixes of the uplink (RFC 7050), for the address book.
    pub fn nat64(&self) -> watch::Receiver<Vec<Ipv6Net>> {
        self.nat64.subscribe()
    }

    /// Every address of a name, A then AAAA, aliases followed as far as they may be. Cached at most 60 s. Call only with
    /// a permitted name; what it is an alias of is part of the answer and has yet to be judged.
    pub async fn addresses(
        &self,
        scope: &Scope,
        name: &Name,
        follow: MayFollow<'_>,
    ) -> Result<Answers, LookupError> {
        let found = self.look_up(scope, name, follow).await;
        let failure = [&found.v4, &found.v6]
            .into_iter()
            .filter_map(|f| f.as_ref().err());
        // a chase that was stopped says more than one that failed, and no address makes good for it
        let worst = failure.max_by_key(|error| matches!(error, LookupError::Denied(_)));
        match worst {
            Some(LookupError::Denied(_)) => Err(LookupError::Denied(found.aliases.clone())),
            _ if !found.all.is_empty() => Ok(Answers {
                addresses: found.all.to_vec(),
                aliases: found.aliases.to_vec(),
            }),
            other => Err(other.cloned().unwrap_or(LookupError::NoAddress)),
        }
    }

    /// What the cache knows about a name's addresses, without asking anybody.
    pub fn known(&self, scope: &Scope, name: &Name, now: Instant) -> Option<Arc<Addresses>> {
        scope
            .addresses(name, self.epoch())
            .filter(|a| a.until > now)
    }

    /// Both families of a name, asked at once. Call only with a permitted name.
    pub async fn look_up(
        &self,
        scope: &Scope,
        name: &Name,
        follow: MayFollow<'_>,
    ) -> Arc<Addresses> {
        if let Some(known) = self.known(scope, name, Instant::now()) {
            return known;
        }
        self.refresh(scope, name, follow).await
    }

    /// Asks again although the cache still knows, so that it goes on knowing. A failure leaves what is known.
    pub async fn refresh(
        &self,
        scope: &Scope,
        name: &Name,
        follow: MayFollow<'_>,
    ) -> Arc<Addresses> {
        scope
            .address_flights()
            .join(name.clone(), || self.both(scope, name.clone(), follow))
            .await
    }

    /// Records of one other type. Call only with a permitted name.
    pub async fn records(
        &self,
        scope: &Scope,
        name: &Name,
        kind: RecordType,
        follow: MayFollow<'_>,
    ) -> Result<Arc<Found>, LookupError> {
        let key = (name.clone(), u16::from(kind));
        let known = scope.records(&key, self.epoch());
        if let Some(known) = known.filter(|f| f.until > Instant::now()) {
            return Ok(known);
        }
        let ask = || async {
            let epoch = self.epoch();
            let chased = self.chase(scope, name, kind, follow).await?;
            let found = Arc::new(chased.found(Instant::now()));
            scope.keep_records(key.clone(), epoch, found.clone());
            Ok(found)
        };
        scope.record_flights().join(key.clone(), ask).await
    }

    async fn both(&self, scope: &Scope, name: Name, follow: MayFollow<'_>) -> Arc<Addresses> {
        let epoch = self.epoch();
        let ask = async |kind| {
            self.chase(scope, &name, kind, follow)
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
            scope.keep_addresses(name, epoch, found.clone());
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
