//! The states of first SYNs, apart from any I/O: events in, verdicts out. Time is a parameter, counted from any start.
//!
//! An entry per 4-tuple: `Dialing` (the SYN may be held in the kernel) -> `Ready` (what the accepted socket will be paired
//! with) -> `Active` (until the relay ends).
//!
//! | SYN arrives while | same ISN | other ISN (same port reused) |
//! |---|---|---|
//! | nothing | new attempt, hold | |
//! | Dialing, holding | drop the copy | drop the old held one, abandon the old attempt, start anew |
//! | Dialing, held let go | hold this copy | as above |
//! | Ready | accept (SYN-ACK lost, backlog full) | discard what was dialled, start anew |
//! | Active | accept (the kernel finds the established socket) | start anew; the kernel sends its challenge ACK |
//!
//! Invariants: a packet gets exactly one verdict; a packet is accepted only while its entry is Ready or Active; dials
//! are bounded for each network and in total, and it is the oldest that makes room, so that a scan of silent hosts
//! starves only itself. Nothing waits to be accepted for a network that has ended. Entries are removed by serial, never
//! by key: a late answer never meets a newer attempt.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

pub use super::event::{Arrival, Effect, Key, Outcome, Verdict};

/// How long things last.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// A SYN is held at most this long; then the queue's slot is free and the sender's next copy is held instead.
    pub hold: Duration,
    /// What was dialled waits at most this long to be accepted: the sandbox gave up.
    pub ready: Duration,
    /// Attempts in progress for each network.
    pub each: usize,
    /// Attempts in progress over all networks.
    pub total: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(3),
            ready: Duration::from_secs(10),
            each: 256,
            total: 4096,
        }
    }
}

#[derive(Debug)]
enum State<R> {
    Dialing { held: Option<u32> },
    Ready(R),
    Active,
}

#[derive(Debug)]
struct Entry<A, R> {
    isn: u32,
    serial: u64,
    network: u64,
    /// What the attempt owns (its flow's place, its task); dropping it abandons the attempt. Handed over on accept.
    attempt: Option<A>,
    state: State<R>,
}

/// All entries. `A` is what an attempt owns, `R` what it is ready with.
#[derive(Debug)]
pub struct Table<A, R> {
    bounds: Bounds,
    entries: HashMap<Key, Entry<A, R>>,
    keys: HashMap<u64, Key>,
    /// Attempts in progress of each network, oldest first; serials of ended ones are skipped.
    order: HashMap<u64, Dials>,
    dialing: usize,
    serial: u64,
    holds: VecDeque<(Duration, u64, u32)>,
    readies: VecDeque<(Duration, u64)>,
}

#[derive(Debug, Default)]
struct Dials {
    live: usize,
    serials: VecDeque<u64>,
}

impl<A, R> Table<A, R> {
    /// Empty.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            entries: HashMap::new(),
            keys: HashMap::new(),
            order: HashMap::new(),
            dialing: 0,
            serial: 0,
            holds: VecDeque::new(),
            readies: VecDeque::new(),
        }
    }

    /// A first SYN arrived.
    pub fn syn(&mut self, syn: Arrival, now: Duration) -> (Outcome, Vec<Effect<R>>) {
        let mut effects = Vec::new();
        if let Some(entry) = self.entries.get_mut(&syn.key) {
            if entry.isn == syn.isn && entry.network == syn.network {
                match &mut entry.state {
                    State::Dialing { held: held @ None } => {
                        *held = Some(syn.packet);
                        self.holds
                            .push_back((now + self.bounds.hold, entry.serial, syn.packet));
                    }
                    State::Dialing { .. } => {
                        effects.push(Effect::Verdict(syn.packet, Verdict::Drop));
                    }
                    State::Ready(_) | State::Active => {
                        effects.push(Effect::Verdict(syn.packet, Verdict::Accept));
                    }
                }
                return (Outcome::Known, effects);
            }
            let serial = entry.serial;
            self.remove(serial, &mut effects);
        }
        self.make_room(syn.network, &mut effects);
        (Outcome::New(self.start(syn, now)), effects)
    }

    fn start(&mut self, syn: Arrival, now: Duration) -> u64 {
        self.serial += 1;
        let serial = self.serial;
        let state = State::Dialing {
            held: Some(syn.packet),
        };
        self.entries.insert(
            syn.key,
            Entry {
                isn: syn.isn,
                serial,
                network: syn.network,
                attempt: None,
                state,
            },
        );
        self.keys.insert(serial, syn.key);
        let dials = self.order.entry(syn.network).or_default();
        dials.live += 1;
        dials.serials.push_back(serial);
        self.dialing += 1;
        self.holds
            .push_back((now + self.bounds.hold, serial, syn.packet));
        serial
    }

    /// Ties what an attempt owns to its entry; gives it back if the attempt is over already.
    pub fn own(&mut self, serial: u64, attempt: A) -> Result<(), A> {
        match self.by_serial(serial) {
            Some(entry) => {
                entry.attempt = Some(attempt);
                Ok(())
            }
            None => Err(attempt),
        }
    }

    /// The attempt led to something that an accepted socket will be paired with.
    pub fn ready(&mut self, serial: u64, with: R, now: Duration) -> Vec<Effect<R>> {
        let deadline = now + self.bounds.ready;
        let Some(entry) = self.by_serial(serial) else {
            return vec![Effect::Discard(with)];
        };
        let State::Dialing { held } = &mut entry.state else {
            return vec![Effect::Discard(with)];
        };
        let held = held.take();
        let network = entry.network;
        entry.state = State::Ready(with);
        self.no_longer_dialing(network);
        self.readies.push_back((deadline, serial));
        held.map(|packet| Effect::Verdict(packet, Verdict::Accept))
            .into_iter()
            .collect()
    }

    /// The attempt failed or was denied.
    pub fn refuse(&mut self, serial: u64, verdict: Verdict) -> Vec<Effect<R>> {
        // an accept without something to pair with would be a promise that nobody keeps
        let verdict = if verdict == Verdict::Accept {
            Verdict::Drop
        } else {
            verdict
        };
        let Some(entry) = self.by_serial(serial) else {
            return Vec::new();
        };
        let State::Dialing { held } = &mut entry.state else {
            return Vec::new();
        };
        let effects = held
            .take()
            .map(|packet| Effect::Verdict(packet, verdict))
            .into_iter()
            .collect();
        self.remove(serial, &mut Vec::new());
        effects
    }

    /// A socket was accepted: what it is paired with, if a verdict led to it.
    pub fn accept(&mut self, key: Key) -> Option<(u64, Option<A>, R)> {
        let entry = self.entries.get_mut(&key)?;
        if !matches!(entry.state, State::Ready(_)) {
            return None;
        }
        match std::mem::replace(&mut entry.state, State::Active) {
            State::Ready(with) => Some((entry.serial, entry.attempt.take(), with)),
            State::Dialing { .. } | State::Active => None,
        }
    }

    /// The relay of an accepted socket is over.
    pub fn close(&mut self, serial: u64) {
        let active = |entry: &mut Entry<A, R>| matches!(entry.state, State::Active);
        if self.by_serial(serial).is_some_and(active) {
            self.remove(serial, &mut Vec::new());
        }
    }

    /// Drops the oldest attempt in progress of a network, so that a newer one finds its place.
    pub fn drop_oldest(&mut self, network: u64, spare: u64) -> Option<Vec<Effect<R>>> {
        let dials = self.order.get_mut(&network)?;
        let oldest = loop {
            let serial = *dials.serials.front()?;
            let dialing = self
                .keys
                .get(&serial)
                .and_then(|key| self.entries.get(key))
                .is_some_and(|entry| matches!(entry.state, State::Dialing { .. }));
            if dialing {
                break serial;
            }
            dials.serials.pop_front();
        };
        if oldest == spare {
            return None;
        }
        let mut effects = Vec::new();
        self.remove(oldest, &mut effects);
        Some(effects)
    }

    /// Lets go what waits to be accepted in a network that has ended. What is dialling or active ends by itself, and is
    /// written down.
    pub fn forget(&mut self, network: u64) -> Vec<Effect<R>> {
        let waiting: Vec<u64> = self
            .entries
            .values()
            .filter(|entry| entry.network == network && matches!(entry.state, State::Ready(_)))
            .map(|entry| entry.serial)
            .collect();
        let mut effects = Vec::new();
        for serial in waiting {
            self.remove(serial, &mut effects);
        }
        effects
    }

    /// Lets go what was held or ready for too long.
    pub fn tick(&mut self, now: Duration) -> Vec<Effect<R>> {
        let mut effects = Vec::new();
        while let Some(&(deadline, serial, packet)) = self.holds.front()
            && deadline <= now
        {
            self.holds.pop_front();
            if let Some(Entry {
                state: State::Dialing { held },
                ..
            }) = self.by_serial(serial)
                && *held == Some(packet)
            {
                *held = None;
                effects.push(Effect::Verdict(packet, Verdict::Drop));
            }
        }
        while let Some(&(deadline, serial)) = self.readies.front()
            && deadline <= now
        {
            self.readies.pop_front();
            if self
                .by_serial(serial)
                .is_some_and(|entry| matches!(entry.state, State::Ready(_)))
            {
                self.remove(serial, &mut effects);
            }
        }
        effects
    }

    /// Attempts in progress.
    pub fn dialing(&self) -> usize {
        self.dialing
    }

    /// Entries in any state.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn by_serial(&mut self, serial: u64) -> Option<&mut Entry<A, R>> {
        self.entries.get_mut(self.keys.get(&serial)?)
    }

    fn make_room(&mut self, network: u64, effects: &mut Vec<Effect<R>>) {
        if self
            .order
            .get(&network)
            .is_some_and(|dials| dials.live >= self.bounds.each)
        {
            effects.extend(self.drop_oldest(network, 0).unwrap_or_default());
        }
        if self.dialing >= self.bounds.total {
            // whoever has most gives way; a network within its fair part never does
            let greediest = self
                .order
                .iter()
                .max_by_key(|(_, dials)| dials.live)
                .map(|(network, _)| *network);
            effects.extend(
                greediest
                    .and_then(|network| self.drop_oldest(network, 0))
                    .unwrap_or_default(),
            );
        }
    }

    fn remove(&mut self, serial: u64, effects: &mut Vec<Effect<R>>) {
        let Some(entry) = self
            .keys
            .remove(&serial)
            .and_then(|key| self.entries.remove(&key))
        else {
            return;
        };
        match entry.state {
            State::Dialing { held } => {
                effects.extend(held.map(|packet| Effect::Verdict(packet, Verdict::Drop)));
                self.no_longer_dialing(entry.network);
            }
            State::Ready(with) => effects.push(Effect::Discard(with)),
            State::Active => {}
        }
    }

    fn no_longer_dialing(&mut self, network: u64) {
        self.dialing = self.dialing.saturating_sub(1);
        let Some(dials) = self.order.get_mut(&network) else {
            return;
        };
        dials.live = dials.live.saturating_sub(1);
        if dials.live == 0 {
            self.order.remove(&network);
        } else if dials.serials.len() > 2 * dials.live + 16 {
            // ended attempts behind a slow oldest one would pile up
            let (keys, entries) = (&self.keys, &self.entries);
            dials.serials.retain(|serial| {
                keys.get(serial)
                    .and_then(|key| entries.get(key))
                    .is_some_and(|entry| matches!(entry.state, State::Dialing { .. }))
            });
        }
    }
}
