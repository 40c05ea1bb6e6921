//! The address book: what the uplink looks like now, what configuration adds, what NAT64 teaches.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};
use netpolicy::addr::AddressBook;
use tokio::sync::watch;

use crate::config::GatewayConfig;
use crate::network::allot::Pools;
use crate::network::registry::Registry;
use crate::uplink::follow::UplinkView;

/// What does not change while the gateway runs.
#[derive(Clone, Debug)]
pub struct Fixed {
    gateway: Vec<IpNet>,
    host: Vec<IpAddr>,
    local: Vec<IpNet>,
    metadata: Vec<IpNet>,
}

impl Fixed {
    /// From pools and configuration.
    pub fn new(pools: &Pools, config: &GatewayConfig) -> Self {
        Self {
            gateway: pools.all(),
            host: config.host_addresses.clone(),
            local: config.local_networks.clone(),
            metadata: config.metadata.clone(),
        }
    }

    /// The book now.
    pub fn book(&self, view: &UplinkView, nat64: &[Ipv6Net]) -> AddressBook {
        let mut book = AddressBook {
            gateway: self.gateway.clone(),
            host: view
                .addresses
                .iter()
                .copied()
                .chain(self.host.iter().copied())
                .collect(),
            local: Vec::new(),
            nat64: nat64.to_vec(),
            metadata: self.metadata.clone(),
        };
        book.set_local(view.prefixes.iter().copied());
        book.add_local(self.local.iter().copied());
        book
    }
}

/// Puts every network under the classes of the moment, until either source ends.
pub async fn follow(
    fixed: Fixed,
    mut view: watch::Receiver<UplinkView>,
    mut nat64: watch::Receiver<Vec<Ipv6Net>>,
    registry: Arc<Registry>,
) {
    loop {
        let book = Arc::new(fixed.book(&view.borrow_and_update(), &nat64.borrow_and_update()));
        if *registry.book() != *book {
            let registry = registry.clone();
            let put = tokio::task::spawn_blocking(move || registry.rebook(&book)).await;
            if put.is_err() {
                return;
            }
        }
        tokio::select! {
            changed = view.changed() => if changed.is_err() { return },
            changed = nat64.changed() => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_holds_the_view_and_what_configuration_adds() {
        let config = GatewayConfig {
            host_addresses: vec![[203, 0, 113, 7].into()],
            local_networks: vec!["0.0.0.0/1".parse().unwrap()],
            ..GatewayConfig::default()
        };
        let pools = Pools {
            sandboxes: config.pools.sandboxes,
            leases: config.pools.leases,
            ula: "fd00::/48".parse().unwrap(),
        };
        let view = UplinkView {
            addresses: [[192, 0, 2, 1].into()].into(),
            prefixes: ["192.0.2.0/24".parse().unwrap()].into(),
        };
        let book = Fixed::new(&pools, &config).book(&view, &[]);
        assert_eq!(book.host.len(), 2);
        assert_eq!(
            book.local,
            [
                "192.0.2.0/24".parse::<IpNet>().unwrap(),
                "0.0.0.0/1".parse().unwrap()
            ]
        );
        assert_eq!(book.gateway.len(), 3);
    }
}
