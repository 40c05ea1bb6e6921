//! Which addresses are the machine's own and which prefixes are near, followed live.
//!
//! Owns: a subscription to address and route changes of the namespace that the gateway was started in, and the last
//! whole picture of it. Refuses to own: classes (netpolicy), NAT64 prefixes (learnt by DNS).
//! Invariants: a picture is always a whole dump, never a sum of notices, so a lost notice costs a dump and nothing else.
//! Failure stance: when the picture cannot be refreshed the last one stays, the error goes to the caller, who seals.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink_packet_route::route::RouteType;
use rtnetlink::MulticastGroup;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use super::here::Notices;
use crate::kernel::KernelError;
use crate::kernel::error::Act;
use crate::kernel::monitor::{self, Subscription};
use crate::kernel::netns::Ns;
use crate::kernel::ready::watch as watch_socket;
use crate::kernel::survey::{Survey, survey};

/// What the uplink looks like now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UplinkView {
    /// Every address of every interface: the machine itself.
    pub addresses: BTreeSet<IpAddr>,
    /// Prefixes that are on a link or routed more closely than by a default route.
    pub prefixes: BTreeSet<IpNet>,
}

/// Shortest prefixes that count as near; wider ones are split default routes (a VPN's `0.0.0.0/1`).
const WIDEST4: u8 = 8;
const WIDEST6: u8 = 20;

const GROUPS: [MulticastGroup; 4] = [
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

/// Prefixes with a class of their own, which an interface in them must not change: loopback, link-local, multicast.
const SPECIAL: [IpNet; 5] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0),
        10,
    )),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0),
        8,
    )),
];

/// Keeps an [`UplinkView`] current.
#[derive(Debug)]
pub struct Follower {
    ns: Ns,
    notices: AsyncFd<Subscription>,
    view: watch::Sender<UplinkView>,
    counted: Notices,
}

impl Follower {
    /// Subscribes in a namespace, then takes the first picture: what changes in between is noticed. Blocks for
    /// milliseconds; needs the runtime's context for readiness.
    pub fn open(ns: Ns) -> Result<(Self, watch::Receiver<UplinkView>), KernelError> {
        let socket = ns.run(|| monitor::subscribe(&GROUPS))?;
        let notices = watch_socket(socket).act("waiting for routing changes")?;
        let (view, receiver) = watch::channel(look(&ns)?);
        let counted = Notices::default();
        let follower = Self {
            ns,
            notices,
            view,
            counted,
        };
        Ok((follower, receiver))
    }

    /// Counts what is noticed, from before the picture is taken anew.
    pub fn notices(&self) -> Notices {
        self.counted.clone()
    }

    /// Subscribes and looks afresh after a failure, for the same readers.
    pub async fn begin_again(&mut self) -> Result<(), KernelError> {
        let ns = self.ns.duplicate()?;
        let subscribed = move || -> Result<_, KernelError> {
            Ok((ns.run(|| monitor::subscribe(&GROUPS))?, look(&ns)?))
        };
        let begun = tokio::task::spawn_blocking(subscribed).await;
        let (socket, seen) = begun
            .map_err(io::Error::other)
            .act("looking at the uplink")??;
        self.notices = watch_socket(socket).act("waiting for routing changes")?;
        // nobody knows what was missed
        self.counted.noticed();
        self.picture(seen);
        Ok(())
    }

    fn picture(&self, seen: UplinkView) {
        self.view.send_if_modified(|view| {
            let changed = *view != seen;
            *view = seen;
            changed
        });
    }

    /// Follows until the picture cannot be refreshed. A critical task: its end must seal the gateway.
    pub async fn run(&self) -> Result<(), KernelError> {
        loop {
            let mut ready = self
                .notices
                .readable()
                .await
                .act("waiting for routing changes")?;
            self.counted.noticed();
            // One dump answers all notices that have come, and also those that were lost.
            discard(self.notices.get_ref()).act("reading routing changes")?;
            ready.clear_ready();
            let ns = self.ns.duplicate()?;
            let seen = tokio::task::spawn_blocking(move || look(&ns)).await;
            let seen = seen
                .map_err(io::Error::other)
                .act("looking at the uplink")??;
            self.picture(seen);
        }
    }
}

/// The whole picture now. Blocks for milliseconds.
pub fn look(ns: &Ns) -> Result<UplinkView, KernelError> {
    let seen = ns.route(|handle| async move { survey(&handle).await })?;
    Ok(view(&seen))
}

fn view(seen: &Survey) -> UplinkView {
    let addresses = seen.addresses.iter().map(|a| a.address).collect();
    let on_link = seen
        .addresses
        .iter()
        .filter_map(|a| IpNet::new(a.address, a.prefix).ok());
    let routed = seen
        .routes
        .iter()
        .filter(|r| r.kind == RouteType::Unicast)
        .filter_map(|r| {
            let to = r.to?;
            IpNet::new(to, r.prefix).ok()
        });
    let near = |net: &IpNet| {
        let narrow = match net {
            IpNet::V4(net) => net.prefix_len() >= WIDEST4,
            IpNet::V6(net) => net.prefix_len() >= WIDEST6,
        };
        narrow && !SPECIAL.iter().any(|special| special.contains(net))
    };
    UplinkView {
        addresses,
        prefixes: on_link
            .chain(routed)
            .map(|net| net.trunc())
            .filter(near)
            .collect(),
    }
}

fn discard(socket: &Subscription) -> io::Result<()> {
    monitor::drain(socket, |_| None, &mut Vec::new())
}

#[cfg(test)]
mod tests;
