//! What one network was told: names it asked for, synthetic addresses that stand for them, real addresses bound to them.
//!
//! Keyed (network, address): every network has its own [`Leases`]. Owns durability: each fact is one write(2) to the
//! network's file before the answer that rests on it is sent, and [`Leases::open`] restores all of them. A synthetic
//! address never means another name as long as the network lives. Refuses to own: whether a name is permitted.
//! Failure stance: a fact that cannot be written is not handed out; a file that is damaged anywhere but in its last,
//! torn line is an error with its place, never a smaller set of leases.

mod file;
mod memo;
mod pace;
mod pool;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use netpolicy::name::Name;
use netpolicy::reason::Reason;

use crate::limits::Ledger;
use file::{Fact, File};
pub use memo::{Given, Memo, Moment};
pub use pace::{InFlight, Pace, Paces};
pub use pool::LeasePools;

/// Distinct names a network may ask for whatever its budget says; keeps memory and the file bounded (DNS-42).
const MOST_NAMES: usize = 100_000;
/// Address bindings kept for `names: real`; the oldest goes first. Losing one only narrows: the flow must name its host.
const MOST_BINDINGS: usize = 4096;
/// Names kept for one real address; a shared CDN address serves many, more than this is ambiguous anyway.
const MOST_NAMES_OF_ADDRESS: usize = 32;
/// Octets of names that each name of the budget may take on average. Names carry data upstream (DNS-14), so a budget
/// of 500 names is not a budget of 500 x 253 octets.
const OCTETS_A_NAME: u64 = 48;

/// A lease could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Every address of a pool is taken.
    #[error("no synthetic address is left")]
    Exhausted,
    /// The file cannot be read, opened or written.
    #[error("writing the leases")]
    Write(#[source] std::io::Error),
    /// The file says something that this gateway never wrote.
    #[error("{path}:{line}: {what}")]
    Damaged {
        /// The file.
        path: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
}

/// Why a name may not be asked for.
#[derive(Debug, thiserror::Error)]
pub enum Asked {
    /// A budget is used up.
    #[error("{0}")]
    Denied(Reason),
    /// It cannot be written down.
    #[error(transparent)]
    Failed(#[from] LeaseError),
}

#[derive(Debug, Default)]
struct State {
    asked: HashSet<Name>,
    asked_octets: u64,
    by_name: HashMap<Name, (Ipv4Addr, Ipv6Addr)>,
    by_address: HashMap<IpAddr, Name>,
    bound: HashMap<IpAddr, Vec<Name>>,
    /// Bindings in the order they were made, for dropping the oldest.
    order: VecDeque<(IpAddr, Name)>,
}

/// Addresses and names handed out to one network; durable before the answer is sent.
#[derive(Debug)]
pub struct Leases {
    pools: LeasePools,
    workspace: String,
    state: RwLock<State>,
    file: Mutex<File>,
    pace: Pace,
    memo: Memo,
}

impl Leases {
    /// Opens (or makes) the file of one network and restores what it says.
    pub fn open(path: &Path, pools: LeasePools, workspace: &str) -> Result<Self, LeaseError> {
        let mut state = State::default();
        let file = File::open(path, |fact| state.restore(fact, &pools))?;
        Ok(Self {
            pools,
            workspace: workspace.to_owned(),
            state: RwLock::new(state),
            file: Mutex::new(file),
            pace: Pace::default(),
            memo: Memo::default(),
        })
    }

    /// How fast this network asks.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// What this network was permitted a moment ago.
    pub fn memo(&self) -> &Memo {
        &self.memo
    }

    /// The name behind a synthetic address.
    pub fn find(&self, address: IpAddr) -> Option<Name> {
        self.read().by_address.get(&address.to_canonical()).cloned()
    }

    /// Whether an address comes from the pools, handed out or not.
    pub fn in_pool(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.pools.v4.contains(&v4),
            IpAddr::V6(v6) => self.pools.v6.contains(&v6),
        }
    }

    /// Names bound to a real address (`names: real`).
    pub fn bound(&self, address: IpAddr) -> Vec<Name> {
        self.read()
            .bound
            .get(&address.to_canonical())
            .cloned()
            .unwrap_or_default()
    }

    /// How many distinct names this network asked for.
    pub fn len(&self) -> usize {
        self.read().asked.len()
    }

    /// None yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The addresses that stand for a name, if they were handed out.
    pub fn leased(&self, name: &Name) -> Option<(Ipv4Addr, Ipv6Addr)> {
        self.read().by_name.get(name).copied()
    }

    /// Counts a name before anything is asked for it: distinct names, and the octets they can carry out.
    ///
    /// `names` is the budget in force, from which the octets follow.
    pub fn ask(&self, name: &Name, ledger: &Ledger, names: u32) -> Result<(), Asked> {
        if self.read().asked.contains(name) {
            return Ok(());
        }
        let mut state = self.write();
        if state.asked.contains(name) {
            return Ok(());
        }
        if !state.has_room(name, names) {
            return Err(Asked::Denied(Reason::LimitNames));
        }
        ledger.name().map_err(Asked::Denied)?;
        self.append(&[Fact::Asked(name.clone())])?;
        state.remember(name.clone());
        Ok(())
    }

    /// Whether a name could be asked for now. Counts nothing.
    pub fn may_ask(&self, name: &Name, ledger: &Ledger, names: u32) -> bool {
        let state = self.read();
        state.asked.contains(name) || (state.has_room(name, names) && ledger.has_name())
    }

    /// The synthetic addresses of a name; made and written down at its first use.
    pub fn lease(&self, name: &Name) -> Result<(Ipv4Addr, Ipv6Addr), LeaseError> {
        if let Some(pair) = self.leased(name) {
            return Ok(pair);
        }
        let mut state = self.write();
        if let Some(pair) = state.by_name.get(name) {
            return Ok(*pair);
        }
        let taken = |address: IpAddr| state.by_address.contains_key(&address);
        let (v4, v6) = self
            .pools
            .pick(&self.workspace, name, taken)
            .ok_or(LeaseError::Exhausted)?;
        self.append(&[Fact::Lease(name.clone(), v4, v6)])?;
        state.hand_out(name.clone(), v4, v6);
        Ok((v4, v6))
    }

    /// Binds real addresses to the name that led to them, before they are answered.
    pub fn bind(&self, name: &Name, addresses: &[IpAddr]) -> Result<(), LeaseError> {
        let fresh = |state: &State| -> Vec<Fact> {
            let is_new = |address: &&IpAddr| {
                !state
                    .bound
                    .get(address)
                    .is_some_and(|names| names.contains(name))
            };
            addresses
                .iter()
                .filter(is_new)
                .map(|address| Fact::Bind(*address, name.clone()))
                .collect()
        };
        if fresh(&self.read()).is_empty() {
            return Ok(());
        }
        let mut state = self.write();
        let facts = fresh(&state);
        self.append(&facts)?;
        for fact in facts {
            if let Fact::Bind(address, name) = fact {
                state.bind(address, name);
            }
        }
        self.compact(&state);
        Ok(())
    }

    /// Bindings come and go as content networks rotate their addresses; the file must not grow with them for ever.
    fn compact(&self, state: &State) {
        let live = state.asked.len() + state.by_name.len() + state.order.len();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.lines() < live.saturating_mul(4).max(4 * MOST_BINDINGS) {
            return;
        }
        if let Err(error) = file.rewrite(state.facts()) {
            // the long file still says everything; the next binding tries again
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "shortening the leases failed"
            );
        }
    }

    fn append(&self, facts: &[Fact]) -> Result<(), LeaseError> {
        self.file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .append(facts)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether one more name fits, by number and by what names can carry out.
    fn has_room(&self, name: &Name, names: u32) -> bool {
        let octets = self.asked_octets.saturating_add(name.as_str().len() as u64);
        self.asked.len() < MOST_NAMES && octets <= OCTETS_A_NAME.saturating_mul(u64::from(names))
    }

    fn remember(&mut self, name: Name) {
        let octets = name.as_str().len() as u64;
        if self.asked.insert(name) {
            self.asked_octets = self.asked_octets.saturating_add(octets);
        }
    }

    fn hand_out(&mut self, name: Name, v4: Ipv4Addr, v6: Ipv6Addr) {
        self.by_address.insert(v4.into(), name.clone());
        self.by_address.insert(v6.into(), name.clone());
        self.by_name.insert(name, (v4, v6));
    }

    fn bind(&mut self, address: IpAddr, name: Name) {
        let names = self.bound.entry(address).or_default();
        if names.contains(&name) {
            return;
        }
        if names.len() >= MOST_NAMES_OF_ADDRESS {
            let oldest = names.remove(0);
            self.order.retain(|(a, n)| *a != address || *n != oldest);
        }
        names.push(name.clone());
        self.order.push_back((address, name));
        if self.order.len() > MOST_BINDINGS
            && let Some((address, name)) = self.order.pop_front()
        {
            self.unbind(address, &name);
        }
    }

    fn unbind(&mut self, address: IpAddr, name: &Name) {
        if let Some(names) = self.bound.get_mut(&address) {
            names.retain(|n| n != name);
            if names.is_empty() {
                self.bound.remove(&address);
            }
        }
    }

    /// Takes one fact from the file. The error says what is wrong with it.
    fn restore(&mut self, fact: Fact, pools: &LeasePools) -> Result<(), &'static str> {
        match fact {
            Fact::Asked(name) => self.remember(name),
            Fact::Bind(address, name) => self.bind(address, name),
            Fact::Lease(name, v4, v6) => {
                if !pools.v4.contains(&v4) || !pools.v6.contains(&v6) {
                    return Err("the lease lies outside the pools");
                }
                let taken = self.by_address.contains_key(&IpAddr::V4(v4))
                    || self.by_address.contains_key(&v6.into());
                if taken || self.by_name.contains_key(&name) {
                    return Err("the lease contradicts an earlier line");
                }
                self.hand_out(name, v4, v6);
            }
        }
        Ok(())
    }

    fn facts(&self) -> impl Iterator<Item = Fact> {
        let asked = self.asked.iter().map(|name| Fact::Asked(name.clone()));
        let leases = self
            .by_name
            .iter()
            .map(|(name, (v4, v6))| Fact::Lease(name.clone(), *v4, *v6));
        let bound = self
            .order
            .iter()
            .map(|(address, name)| Fact::Bind(*address, name.clone()));
        asked.chain(leases).chain(bound)
    }
}
