//! What belongs to one network: its cache, its look-ups in progress, its share of sockets.
//!
//! Networks share no answer: how long one takes would tell a sandbox what another asked. They share no capacity either:
//! who fills a cache or waits for a thousand silent servers evicts and delays only himself. All of it ends with the
//! network.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use moka::sync::Cache;
use netpolicy::name::Name;

use super::flight::Flights;
use super::sockets::Places;
use super::{Addresses, Found, LONGEST_TTL, LookupError, What};

/// Octets of addresses that one network's cache holds: about two thousand names, four times the default budget.
const ADDRESS_OCTETS: u64 = 1024 * 1024;
/// Octets of other records.
const RECORD_OCTETS: u64 = 512 * 1024;

/// How long an answer is kept at most.
const LONGEST: Duration = Duration::from_secs(LONGEST_TTL as u64);

/// A name and a type other than an address.
type Key = (Name, u16);

/// Who an answer is kept for.
#[derive(Clone, Debug)]
pub struct Scope(Arc<Inner>);

/// Caches are made when first asked: an idle network has none.
#[derive(Debug)]
struct Inner {
    addresses: LazyLock<Cache<Name, (u64, Arc<Addresses>)>>,
    records: LazyLock<Cache<Key, (u64, Arc<Found>)>>,
    address_flights: Flights<Name, Arc<Addresses>>,
    record_flights: Flights<Key, Result<Arc<Found>, LookupError>>,
    places: Places,
}

impl Scope {
    /// One that nobody else has, or had.
    pub fn fresh() -> Self {
        Self(Arc::new(Inner {
            addresses: LazyLock::new(|| {
                Cache::builder()
                    .max_capacity(ADDRESS_OCTETS)
                    .weigher(|name: &Name, (_, a): &(u64, Arc<Addresses>)| {
                        weight(name, a.all.len() * 64 + octets_of_names(&a.aliases))
                    })
                    .time_to_live(LONGEST)
                    .build()
            }),
            records: LazyLock::new(|| {
                Cache::builder()
                    .max_capacity(RECORD_OCTETS)
                    .weigher(|(name, _): &Key, (_, f): &(u64, Arc<Found>)| {
                        weight(name, octets_of(f) + octets_of_names(&f.aliases))
                    })
                    .time_to_live(LONGEST)
                    .build()
            }),
            address_flights: Flights::default(),
            record_flights: Flights::default(),
            places: Places::default(),
        }))
    }

    /// Addresses that were learnt from the servers of this epoch.
    pub(super) fn addresses(&self, name: &Name, epoch: u64) -> Option<Arc<Addresses>> {
        let (of, found) = self.0.addresses.get(name)?;
        (of == epoch).then_some(found)
    }

    /// Keeps addresses that were asked for in this epoch.
    pub(super) fn keep_addresses(&self, name: Name, epoch: u64, found: Arc<Addresses>) {
        self.0.addresses.insert(name, (epoch, found));
    }

    /// Records that were learnt from the servers of this epoch.
    pub(super) fn records(&self, key: &Key, epoch: u64) -> Option<Arc<Found>> {
        let (of, found) = self.0.records.get(key)?;
        (of == epoch).then_some(found)
    }

    /// Keeps records that were asked for in this epoch.
    pub(super) fn keep_records(&self, key: Key, epoch: u64, found: Arc<Found>) {
        self.0.records.insert(key, (epoch, found));
    }

    /// Look-ups of addresses in progress.
    pub(super) fn address_flights(&self) -> &Flights<Name, Arc<Addresses>> {
        &self.0.address_flights
    }

    /// Look-ups of other records in progress.
    pub(super) fn record_flights(&self) -> &Flights<Key, Result<Arc<Found>, LookupError>> {
        &self.0.record_flights
    }

    /// Its places among the sockets.
    pub(super) fn places(&self) -> &Places {
        &self.0.places
    }
}

fn octets_of(found: &Found) -> usize {
    match &found.what {
        What::Records(records) => records.iter().map(|r| r.data.len() + 32).sum(),
        What::NoData | What::NoName => 0,
    }
}

fn octets_of_names(names: &[Name]) -> usize {
    names.iter().map(|name| name.as_str().len() + 16).sum()
}

fn weight(name: &Name, octets: usize) -> u32 {
    u32::try_from(name.as_str().len() + octets + 256).unwrap_or(u32::MAX)
}
