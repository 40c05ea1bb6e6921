//! Requests in a stretch of time, by client address and by account: a bucket each, in memory, bounded in number.
//!
//! They keep one caller from taking everybody's turn. What must hold across consoles and restarts (guesses of passwords)
//! is counted in the store instead.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use moka::sync::Cache;

/// Requests a second that a caller may keep up. A page with live tables asks a few times a second.
const STEADY: f64 = 50.0;
/// Requests at once: a browser that opens a page, a script that begins.
const BURST: f64 = 300.0;
/// Callers that are remembered; a forgotten one has a full bucket again.
const CALLERS: u64 = 100_000;
/// After this time every bucket is full.
const FULL_AFTER: Duration = Duration::from_secs(10);

/// Whose requests are counted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Counted {
    /// An IPv4 address, or the /64 of an IPv6 one: whoever has one address of it has them all.
    Address(IpAddr),
    /// A user, whatever the credential.
    Account(String),
}

impl Counted {
    /// Of a client's address.
    pub fn address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let network = u128::from(v6) & !u128::from(u64::MAX);
                IpAddr::V6(network.into())
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// What one operator or customer may well have whole: the /24 of an IPv4 address, the /48 of an IPv6 one.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4((u32::from(v4) & !0xff).into()),
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !(u128::MAX >> 48)).into()),
    }
}

/// The buckets.
#[derive(Clone, Debug)]
pub struct Rates(Cache<Counted, Arc<Mutex<Bucket>>>);

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Default for Rates {
    fn default() -> Self {
        Self(
            Cache::builder()
                .max_capacity(CALLERS)
                .time_to_idle(FULL_AFTER)
                .build(),
        )
    }
}

impl Rates {
    /// Takes one request's turn; `false`: there is none.
    pub fn take(&self, caller: Counted, now: Instant) -> bool {
        self.look(caller, now, 1.0)
    }

    /// Whether there is a turn, which is not taken.
    pub fn has(&self, caller: Counted, now: Instant) -> bool {
        self.look(caller, now, 0.0)
    }

    fn look(&self, caller: Counted, now: Instant, takes: f64) -> bool {
        let fresh = || {
            Arc::new(Mutex::new(Bucket {
                left: BURST,
                at: now,
            }))
        };
        let bucket = self.0.get_with(caller, fresh);
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + since * STEADY).min(BURST);
        bucket.at = now;
        let may = bucket.left >= 1.0;
        if may {
            bucket.left -= takes;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_who_asks_too_often_waits_and_others_do_not() {
        let (rates, begun) = (Rates::default(), Instant::now());
        let one = |text: &str| Counted::address(text.parse().unwrap());
        let taken = (0..1000)
            .filter(|_| rates.take(one("192.0.2.1"), begun))
            .count();
        assert_eq!(taken, 300);
        assert!(rates.take(one("192.0.2.2"), begun));
        assert!(rates.take(one("192.0.2.1"), begun + Duration::from_secs(1)));
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_a_bucket_and_mapped_ones_are_ipv4() {
        let of = |text: &str| Counted::address(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        let wide = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(wide("2001:db8:1:2::3"), "2001:db8:1::");
        assert_eq!(wide("::ffff:192.0.2.1"), "192.0.2.0");
    }
}
