//! Notices at once when somebody else changes the gateway namespace.
//!
//! Owns: a subscription to nf_tables and routing changes, and a watch on the lock of iptables' programs. Refuses to own: what is done about one. A notice says only that
//! something changed; verification says what. A lost notice (the buffer overflowed) counts as one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rtnetlink::MulticastGroup;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::attach::KnownLinks;
use super::backend::Backend;
use super::belonging::lacks_nftables;
use super::enforcer::Enforcer;
use super::error::{Act, KernelError};
use super::inspect::{LOCAL, MAIN};
use super::ready::watch;
use super::survey;
use super::wire;
use super::xt::lock::LockWatch;

/// `NFNLGRP_NFTABLES`
const NFTABLES_GROUP: u32 = 7;
/// `NFNL_SUBSYS_NFTABLES`
const NFTABLES: u16 = 10;
/// Programs of iptables may run all the time, about other namespaces: so long after one notice the next is not heard.
const SPACING: Duration = Duration::from_millis(250);

/// Something that somebody else did, or that the kernel did by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Tables, chains, rules, sets or elements.
    Rules,
    /// Policy rules.
    PolicyRules,
    /// A link came that we did not make, went, or went down.
    Links,
    /// An address went or came.
    Addresses,
    /// A route went.
    Routes,
    /// Notices were lost.
    Overflow,
    /// Somebody ran a program of iptables, for this namespace or another.
    Programs,
}

/// Both subscriptions.
#[derive(Debug)]
pub struct Monitor {
    /// None on a kernel without nf_tables.
    rules: Option<AsyncFd<Subscription>>,
    routing: AsyncFd<Subscription>,
    /// Where iptables holds the rules: the kernel tells nobody of changes to those.
    programs: Option<AsyncFd<LockWatch>>,
    deaf_until: Mutex<Instant>,
    enforcer: Enforcer,
}

/// A subscription to kernel notices; for readiness see [`watch`](super::watch).
#[derive(Debug)]
pub struct Subscription(Socket);

impl AsRawFd for Subscription {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Subscription {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const ROUTING_GROUPS: [MulticastGroup; 7] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];

impl Monitor {
    /// Subscribes inside the enforcer's namespace. Blocks for milliseconds; needs the runtime's context for readiness.
    pub fn open(enforcer: &Enforcer) -> Result<Self, KernelError> {
        let rules = || {
            let rules = match wire::netfilter_socket() {
                Err(error) if lacks_nftables(&error) => return Ok(None),
                opened => opened.act("opening the rule monitor")?,
            };
            rules
                .add_membership(NFTABLES_GROUP)
                .act("subscribing to rule changes")?;
            rules
                .set_non_blocking(true)
                .act("configuring the rule monitor")?;
            Ok(Some(Subscription(rules)))
        };
        let rules = enforcer.ns().run(rules)?;
        let programs = match enforcer.backend() {
            Backend::Nftables => None,
            Backend::Iptables => watch_programs(),
        };
        let routing = enforcer.ns().run(|| subscribe(&ROUTING_GROUPS))?;
        let ready = |subscription| watch(subscription).act("waiting for changes in the namespace");
        Ok(Self {
            rules: rules.map(ready).transpose()?,
            routing: ready(routing)?,
            programs,
            deaf_until: Mutex::new(Instant::now()),
            enforcer: enforcer.clone(),
        })
    }

    /// Waits until somebody else has changed something; returns what kinds of things, without repeats. Cancel-safe.
    pub async fn changed(&self) -> io::Result<Vec<Change>> {
        loop {
            let rules = async {
                match &self.rules {
                    Some(rules) => rules.readable().await,
                    None => std::future::pending().await,
                }
            };
            let mut ready = tokio::select! {
                ready = rules => ready?,
                ready = self.routing.readable() => ready?,
                heard = self.program_ran() => {
                    if heard? {
                        return Ok(vec![Change::Programs]);
                    }
                    continue;
                }
            };
            let mut changes = Vec::new();
            let own = self.enforcer.writer_port();
            let foreign = |m: &wire::Received<'_>| m.kind >> 8 == NFTABLES && m.port != own;
            let rule_change = |bytes: &[u8]| {
                wire::messages(bytes)
                    .any(|m| foreign(&m))
                    .then_some(Change::Rules)
            };
            if let Some(rules) = &self.rules {
                drain(rules.get_ref(), rule_change, &mut changes)?;
            }
            self.routing_changes(&mut changes)?;
            ready.clear_ready();
            if !changes.is_empty() {
                changes.sort_by_key(|change| *change as u8);
                changes.dedup();
                return Ok(changes);
            }
        }
    }

    /// Waits until somebody ran a program of iptables.
    async fn program_ran(&self) -> io::Result<bool> {
        let Some(programs) = &self.programs else {
            return std::future::pending().await;
        };
        let until = *self.deaf_until();
        tokio::time::sleep_until(until).await;
        let mut ready = programs.readable().await?;
        let heard = programs.get_ref().drain();
        ready.clear_ready();
        *self.deaf_until() = Instant::now() + SPACING;
        heard
    }

    fn deaf_until(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.deaf_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn routing_changes(&self, changes: &mut Vec<Change>) -> io::Result<()> {
        let links = self.enforcer.known_links();
        let mut states = BTreeMap::new();
        let routing = |bytes: &[u8]| routing_change(bytes, &links, &mut states);
        drain(self.routing.get_ref(), routing, changes)?;
        if states
            .iter()
            .any(|(name, up)| !up && (links.is_attached(Some(name)) || name == "lo"))
        {
            changes.push(Change::Links);
        }
        Ok(())
    }
}

/// Without it the next look finds what was changed.
fn watch_programs() -> Option<AsyncFd<LockWatch>> {
    LockWatch::open()
        .and_then(watch)
        .inspect_err(|error| tracing::debug!(%error, "the lock of iptables cannot be watched"))
        .ok()
}

/// `states` keeps the last word on each link that was spoken of: links are made down and come up.
fn routing_change(
    bytes: &[u8],
    links: &KnownLinks<'_>,
    states: &mut BTreeMap<String, bool>,
) -> Option<Change> {
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).ok()?;
    let NetlinkPayload::InnerMessage(message) = message.payload else {
        return None;
    };
    match message {
        RouteNetlinkMessage::NewRule(_) | RouteNetlinkMessage::DelRule(_) => {
            Some(Change::PolicyRules)
        }
        RouteNetlinkMessage::NewLink(link) => {
            let link = survey::link(&link);
            states.insert(link.name.clone(), link.up);
            let name = Some(link.name.as_str());
            let ours = links.is_attached(name) || links.is_ours(link.index, name);
            (link.up && !ours).then_some(Change::Links)
        }
        RouteNetlinkMessage::DelLink(link) => links
            .is_attached(Some(&survey::link(&link).name))
            .then_some(Change::Links),
        RouteNetlinkMessage::NewAddress(message) => {
            let expected = survey::address(&message).is_some_and(|a| links.serves(a.address));
            (!expected).then_some(Change::Addresses)
        }
        RouteNetlinkMessage::DelAddress(message) => links
            .is_judged(Some(message.header.index))
            .then_some(Change::Addresses),
        RouteNetlinkMessage::NewRoute(message) => {
            let route = survey::route(&message);
            let whole = route.prefix == if route.v4 { 32 } else { 128 };
            let odd = route.via || (route.table != LOCAL && !(whole && route.table == MAIN));
            odd.then_some(Change::Routes)
        }
        RouteNetlinkMessage::DelRoute(message) => links
            .is_judged(survey::route(&message).link)
            .then_some(Change::Routes),
        _ => None,
    }
}

/// A routing socket with these subscriptions, in the namespace of the calling thread.
pub(crate) fn subscribe(groups: &[MulticastGroup]) -> Result<Subscription, KernelError> {
    let mut socket = Socket::new(NETLINK_ROUTE).act("opening the routing monitor")?;
    socket.bind_auto().act("opening the routing monitor")?;
    for group in groups {
        socket
            .add_membership(*group as u32)
            .act("subscribing to routing changes")?;
    }
    socket
        .set_non_blocking(true)
        .act("configuring the routing monitor")?;
    Ok(Subscription(socket))
}

/// Reads datagrams until there are none; an overflow is a change of its own.
pub(crate) fn drain(
    subscription: &Subscription,
    mut judge: impl FnMut(&[u8]) -> Option<Change>,
    changes: &mut Vec<Change>,
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(1 << 16);
    loop {
        buffer.clear();
        match subscription.0.recv(&mut buffer, libc::MSG_DONTWAIT) {
            Ok(_) => changes.extend(judge(&buffer)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                changes.push(Change::Overflow);
            }
            Err(error) => return Err(error),
        }
    }
}
