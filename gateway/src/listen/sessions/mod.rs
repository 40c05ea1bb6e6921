//! What the doors without connections share: which sessions there are, who makes room, how one opens, counts and ends.
//!
//! Owns: the register of a door's sessions, a session's place among its network's flows (the one that is idle for longest
//! makes room for another), what a session has moved, and what ICMP says of one that never opened. Refuses to own: what a
//! session says ([`super::udp`], [`super::echo`]) and decisions (netpolicy).

mod table;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netpolicy::reason::Reason;
use tokio::sync::mpsc;

use super::flow::{Failed, Origin, Unreached, unless_ended};
use crate::kernel::icmp::Trouble;
use crate::limits::{Ceilings, FlowSlot};
use crate::network::Network;
use crate::network::flows::{Door, Flow};
use crate::relay::{End, Lane, Waits, Way};
use table::Table;
pub(super) use table::{Held, Key, Place};

/// Octets by which the header of IPv6 is longer than that of IPv4.
const LONGER_HEADER: u32 = 20;

/// The sessions of one door.
#[derive(Debug)]
pub(super) struct Register {
    table: Mutex<Table>,
    began: Instant,
}

impl Default for Register {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
            began: Instant::now(),
        }
    }
}

impl Register {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where packets of a session go, if there is one.
    pub fn inbox(&self, key: Key, network: &Arc<Network>) -> Option<mpsc::Sender<Held>> {
        self.table().find(key, network)
    }

    /// Does something with the table in hand: the worst moment for a panic, which a test may have here.
    #[cfg(test)]
    pub fn holding(&self, act: impl FnOnce()) {
        let _table = self.table();
        act();
    }

    /// A place among the network's flows; its session that is idle for longest makes room.
    pub fn admit(&self, network: &Arc<Network>, ceilings: &Ceilings) -> Result<FlowSlot, Reason> {
        let admitted = network.ledger.admit(ceilings);
        if admitted.as_ref().err() != Some(&Reason::LimitFlows) {
            return admitted;
        }
        if !self.table().give_way(network, self.now_ms()) {
            return admitted;
        }
        network.ledger.place(ceilings)
    }

    /// Enters a session; it is in the register until its guard is dropped.
    pub fn enter(
        self: &Arc<Self>,
        key: Key,
        network: Arc<Network>,
        inbox: mpsc::Sender<Held>,
        slot: FlowSlot,
    ) -> (Arc<Place>, Leaving) {
        let place = Arc::new(Place::new(slot, self.now_ms()));
        let serial = self.table().add(key, network, inbox, place.clone());
        let leaving = Leaving {
            register: self.clone(),
            key,
            serial,
        };
        (place, leaving)
    }

    /// The clock that places are touched by.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// How much of a limit of idleness is left.
    pub fn idle_left(&self, place: &Place, limit: Duration) -> Duration {
        place.idle_left(self.now_ms(), limit)
    }
}

/// Takes its session out of the register, however it ends.
#[derive(Debug)]
pub(super) struct Leaving {
    register: Arc<Register>,
    key: Key,
    serial: u64,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.register.table().remove(self.key, self.serial);
    }
}

/// Where a session comes from.
pub(super) fn origin(
    ctx: &crate::context::Context,
    network: &Arc<Network>,
    door: Door,
    key: Key,
) -> Origin {
    Origin {
        ctx: ctx.clone(),
        network: network.clone(),
        door,
        source: key.source,
        destination: key.destination,
        waits: Waits::default(),
    }
}

/// Opens a session, unless it has to make room or its network ends meanwhile.
pub(super) async fn opened<T>(
    origin: &Origin,
    place: &Place,
    opening: impl Future<Output = Result<T, Unreached>>,
) -> Result<T, Unreached> {
    let ended = origin.network.ended.clone();
    tokio::select! {
        biased;
        () = place.give_way.cancelled() => Err(Unreached::Cause(Reason::LimitFlows)),
        opened = unless_ended(&ended, opening) => {
            opened.unwrap_or(Err(Unreached::Cause(Reason::RunEnded)))
        }
    }
}

/// What a session has moved, and how long its network's bandwidth wants it to wait.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Packets up and down.
    pub count: (u64, u64),
    pause: Duration,
}

impl Meter {
    /// Counts packets that move now.
    pub fn add(
        &mut self,
        lane: &Lane<'_>,
        way: Way,
        bytes: usize,
        count: usize,
    ) -> Result<(), End> {
        let pause = lane.count(way, bytes)?;
        self.pause = self.pause.max(pause);
        let counter = match way {
            Way::Up => &mut self.count.0,
            Way::Down => &mut self.count.1,
        };
        *counter += count as u64;
        Ok(())
    }

    /// Waits for as long as bandwidth asks for, or until the flow is cut.
    pub async fn rest(&mut self, flow: &Flow) {
        let pause = std::mem::take(&mut self.pause);
        if !pause.is_zero() {
            tokio::select! {
                () = flow.cut.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

/// The same payload has a header of another length where the sandbox uses the other family.
pub(super) fn sized(trouble: Trouble, origin: &Origin, flow: &Flow) -> Trouble {
    let inside_v4 = origin.destination.is_ipv4();
    match (trouble, inside_v4, flow.upstream.is_ipv4()) {
        (Trouble::TooBig(mtu), true, false) => Trouble::TooBig(mtu.saturating_sub(LONGER_HEADER)),
        (Trouble::TooBig(mtu), false, true) => Trouble::TooBig(mtu.saturating_add(LONGER_HEADER)),
        _ => trouble,
    }
}

/// What the kernel said to the dial is what it says to the sandbox; `denied` is how this door refuses.
pub(super) fn trouble_of(why: &Unreached, denied: Trouble) -> Trouble {
    match why {
        Unreached::Failed(failed) if failed.reason == Reason::NameUnresolvable => {
            Trouble::HostUnreachable
        }
        Unreached::Failed(Failed {
            errno: Some(errno), ..
        }) => Trouble::of_errno(*errno, 0).unwrap_or(Trouble::HostUnreachable),
        Unreached::Gone => Trouble::Nothing,
        Unreached::Denied(..) | Unreached::Failed(_) | Unreached::Cause(_) => denied,
    }
}
