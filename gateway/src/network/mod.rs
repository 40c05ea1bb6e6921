//! Live networks: who a source address is, under which policy, with which leases, budgets and flows.
//!
//! One writer (control) replaces; doors read without locks held across awaits.

mod adopt;
pub mod allot;
mod attach;
mod detach;
pub mod ended;
pub mod flows;
pub mod instance;
pub mod join;
pub mod lapse;
pub mod names;
mod noted;
pub mod recent;
pub mod recompose;
pub mod redecide;
pub mod registry;
mod replace;
mod socket;
pub mod state;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use netpolicy::decide::Snapshot;
use netpolicy::ids::{Generation, NetworkId};
use netpolicy::policy::NamesMode;
use tokio_util::sync::CancellationToken;

use crate::context::Open;
use crate::control::api::Via;
use crate::limits::Ledger;
use crate::member::Membership;
use crate::resolve::Leases;
use crate::resolve::upstream::Scope;
use ended::EndedConnections;
use flows::FlowTable;
use recent::Recent;

/// What decides a network's flows at this moment.
#[derive(Debug)]
pub struct Live {
    /// Layers, classes, hash.
    pub snapshot: Arc<Snapshot>,
    /// Counts replacements.
    pub generation: Generation,
    /// Synthetic or real answers.
    pub names: NamesMode,
    /// Whether denials name policy and rule to the sandbox.
    pub explain: bool,
}

/// One attached sandbox.
#[derive(Debug)]
pub struct Network {
    /// Identity.
    pub id: NetworkId,
    /// The run it belongs to, if a runner attached it.
    pub run: Option<String>,
    /// Workspace (keys the lease hash and chooses the workspace floor).
    pub workspace: String,
    /// The sandbox's addresses.
    pub v4: Ipv4Addr,
    /// Same, IPv6.
    pub v6: Ipv6Addr,
    /// Outer link's name in the gateway namespace.
    pub link: String,
    /// Whether it has that link, or a socket to the proxy only.
    pub via: Via,
    /// Socket that gets the broker connections, if any.
    pub broker: Option<PathBuf>,
    /// Who attached it: only a broker of the same user gets its connections.
    pub owner: u32,
    /// Whose cached answers it is given.
    pub scope: Scope,
    /// What it is to its siblings, if it has any.
    pub member: Option<Membership>,
    /// Policy now.
    pub live: ArcSwap<Live>,
    /// Names handed out.
    pub leases: Leases,
    /// Budgets used.
    pub ledger: Ledger,
    /// Live flows.
    pub flows: FlowTable,
    /// Servers with which its QUIC connections ended.
    pub connections: EndedConnections,
    /// What was denied last.
    pub recent: Recent,
    /// When this gateway took it over from an earlier one, whose flows it knows nothing of.
    pub adopted: OnceLock<Instant>,
    /// Fires when the network is detached.
    pub ended: CancellationToken,
}

/// All live networks.
#[derive(Debug, Default)]
pub struct Networks {
    by_source: ArcSwap<HashMap<IpAddr, Arc<Network>>>,
    /// Those of the gateway's own probes, which are decided while it denies everybody else's flows.
    trials: ArcSwap<Vec<NetworkId>>,
}

impl Networks {
    /// Whether flows of a network are decided at all: while the gateway is open, or for a probe that finds out whether it
    /// may open.
    pub fn may_pass(&self, open: &Open, network: &Network) -> bool {
        *open.borrow() || self.trials.load().contains(&network.id)
    }

    /// Has the networks of probes decided, and no others.
    pub fn try_out(&self, probes: Vec<NetworkId>) {
        self.trials.store(Arc::new(probes));
    }

    /// The network that owns a source address.
    pub fn by_source(&self, source: IpAddr) -> Option<Arc<Network>> {
        self.by_source.load().get(&source).cloned()
    }

    /// The network with this id.
    pub fn by_id(&self, id: &NetworkId) -> Option<Arc<Network>> {
        self.by_source
            .load()
            .values()
            .find(|n| &n.id == id)
            .cloned()
    }

    /// The member of a group with this service name.
    pub fn member(&self, group: &NetworkId, service: &str) -> Option<Arc<Network>> {
        let is = |n: &&Arc<Network>| {
            let member = n.member.as_ref();
            member.is_some_and(|m| m.group == *group && m.service.as_str() == service)
        };
        self.by_source.load().values().find(is).cloned()
    }

    /// Every network once, by id.
    pub fn all(&self) -> Vec<Arc<Network>> {
        let map = self.by_source.load();
        let mut all: Vec<_> = map
            .iter()
            .filter(|(ip, n)| **ip == IpAddr::V4(n.v4))
            .map(|(_, n)| n.clone())
            .collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// Adds a network under both its addresses.
    pub fn insert(&self, network: &Arc<Network>) {
        self.by_source.rcu(|map| {
            let mut map = HashMap::clone(map);
            map.insert(IpAddr::V4(network.v4), network.clone());
            map.insert(IpAddr::V6(network.v6), network.clone());
            map
        });
    }

    /// Removes a network and no other that has its addresses; its flows are ended by whoever detaches.
    pub fn remove(&self, network: &Network) {
        self.by_source.rcu(|map| {
            let mut map = HashMap::clone(map);
            map.retain(|_, there| there.id != network.id);
            map
        });
    }
}
