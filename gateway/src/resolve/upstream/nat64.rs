//! RFC 7050: whether the uplink translates IPv6 to IPv4, and under which prefixes.
//!
//! An IPv6 address below such a prefix reaches the IPv4 address inside it, so the address book must know the prefix to
//! classify it. A server that lies can only make more addresses count as their embedded IPv4 address: that narrows.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_proto::rr::RecordType;
use ipnet::Ipv6Net;
use netpolicy::name::Name;

use super::{Resolver, addresses_of};
use crate::tasks::Tasks;

/// The name whose only IPv4 addresses are the two below.
const WELL_KNOWN: &str = "ipv4only.arpa";
/// 192.0.0.170 and 192.0.0.171.
const INSIDE: [[u8; 4]; 2] = [[192, 0, 0, 170], [192, 0, 0, 171]];
/// RFC 6052 section 2.2: prefix length and where the four octets stand; octet 8 is always zero.
const SHAPES: [(u8, [usize; 4]); 6] = [
    (96, [12, 13, 14, 15]),
    (64, [9, 10, 11, 12]),
    (56, [7, 9, 10, 11]),
    (48, [6, 7, 9, 10]),
    (40, [5, 6, 7, 9]),
    (32, [4, 5, 6, 7]),
];
/// The uplink may change without a sign.
const EVERY: Duration = Duration::from_hours(1);
/// After a failed look-up.
const AGAIN: Duration = Duration::from_mins(1);

/// The prefixes that answers for the well-known name give away.
pub fn prefixes(answers: &[IpAddr]) -> Vec<Ipv6Net> {
    let mut found: Vec<Ipv6Net> = answers.iter().filter_map(prefix_of).collect();
    found.sort();
    found.dedup();
    found
}

fn prefix_of(answer: &IpAddr) -> Option<Ipv6Net> {
    let IpAddr::V6(address) = answer else {
        return None;
    };
    let octets = address.octets();
    let at = |index: usize| octets.get(index).copied();
    let fits = |(length, places): &&(u8, [usize; 4])| {
        let inside = places.map(|place| at(place).unwrap_or_default());
        let last = places.last().copied().unwrap_or_default();
        let rest = octets.iter().skip(last + 1).all(|octet| *octet == 0);
        INSIDE.contains(&inside) && rest && (*length == 96 || at(8) == Some(0))
    };
    let (length, _) = SHAPES.iter().find(fits)?;
    // ::192.0.0.170 and ::ffff:192.0.0.170 are IPv4 in other dresses, not translation
    let net = Ipv6Net::new(*address, *length).ok()?.trunc();
    let ordinary = u128::from(net.network()) != 0
        && net.network() != Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0);
    ordinary.then_some(net)
}

impl Resolver {
    /// Asks once and publishes what it learnt. The well-known name is asked by the gateway itself, for no sandbox.
    pub async fn learn_nat64(&self) -> Result<(), super::LookupError> {
        let name =
            Name::parse(WELL_KNOWN).map_err(|e| super::LookupError::Upstream(e.to_string()))?;
        let found = self
            .chase(&self.own, &name, RecordType::AAAA, &|_| true)
            .await?
            .found(Instant::now());
        let learnt = prefixes(&addresses_of(&found));
        self.nat64.send_if_modified(|known| {
            let changed = *known != learnt;
            *known = learnt;
            changed
        });
        Ok(())
    }

    /// Learns now and again every hour.
    pub fn keep_learning(self: &Arc<Self>, tasks: &Tasks) {
        let resolver = self.clone();
        tasks.spawn("nat64", async move {
            loop {
                let pause = match resolver.learn_nat64().await {
                    Ok(()) => EVERY,
                    Err(error) => {
                        tracing::debug!(
                            error = &error as &dyn std::error::Error,
                            "learning NAT64 prefixes failed"
                        );
                        AGAIN
                    }
                };
                tokio::time::sleep(pause).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_length_is_read_and_nothing_is_invented() {
        let answer = |text: &str| text.parse::<IpAddr>().unwrap();
        for (answered, prefix) in [
            ("64:ff9b::192.0.0.170", "64:ff9b::/96"),
            ("2001:db8::192.0.0.171", "2001:db8::/96"),
            ("2001:db8:1:2:c0:0:aa00::", "2001:db8:1:2::/64"),
            ("2001:db8:1:200:0:ab::", ""),
            ("2001:db8:1:2c0:0:ab::", "2001:db8:1:200::/56"),
            ("2001:db8:1:c000:0:aa00::", "2001:db8:1::/48"),
            ("2001:db8:1c0:0:aa::", "2001:db8:100::/40"),
            ("2001:db8:c000:aa::", "2001:db8::/32"),
            ("2001:db8::192.0.0.172", ""),
            ("::ffff:192.0.0.170", ""),
            ("::192.0.0.170", ""),
            ("192.0.0.170", ""),
        ] {
            let expected: Vec<Ipv6Net> = prefix.parse().into_iter().collect();
            assert_eq!(prefixes(&[answer(answered)]), expected, "{answered}");
        }
    }
}
