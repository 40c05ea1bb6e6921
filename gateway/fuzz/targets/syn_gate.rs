//! Random first SYNs, dial results, accepts and time against the SYN gate's table.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use gateway::listen::gate::state::{Arrival, Bounds, Effect, Key, Outcome, Table, Verdict};

/// What a walk met.
#[derive(Debug, Default)]
pub struct Met {
    pub accepted: usize,
    pub paired: usize,
    pub dropped: usize,
}

const EACH: usize = 4;
const TOTAL: usize = 9;

/// Follows the events and checks the promises after each of them.
pub fn run(events: &[u8]) {
    walk(events);
}

struct Walk {
    table: Table<u64, u64>,
    now: Duration,
    packet: u32,
    /// Packets without a verdict.
    open: HashSet<u32>,
    /// Packets of each serial's 4-tuple, for "never accepted without a pair".
    keys: HashMap<u32, Key>,
    /// 4-tuples that are ready or active.
    pairs: HashMap<Key, u64>,
    serials: Vec<(u64, Key)>,
    live_upstreams: HashSet<u64>,
    active: HashSet<u64>,
    upstream: u64,
    met: Met,
}

/// See [`run`].
pub fn walk(events: &[u8]) -> Met {
    let bounds = Bounds {
        each: EACH,
        total: TOTAL,
        ..Bounds::default()
    };
    let mut walk = Walk {
        table: Table::new(bounds),
        now: Duration::ZERO,
        packet: 0,
        open: HashSet::new(),
        keys: HashMap::new(),
        pairs: HashMap::new(),
        serials: Vec::new(),
        live_upstreams: HashSet::new(),
        active: HashSet::new(),
        upstream: 0,
        met: Met::default(),
    };
    for pair in events.chunks_exact(2) {
        walk.step(pair[0], pair[1]);
        assert!(walk.table.dialing() <= TOTAL, "dials are bounded");
    }
    // in the end everything that was held is let go and everything that waited is discarded
    walk.now += Duration::from_mins(1);
    let effects = walk.table.tick(walk.now);
    walk.check(effects);
    assert!(
        walk.open.is_empty(),
        "packets without a verdict: {:?}",
        walk.open
    );
    walk.met
}

impl Walk {
    fn step(&mut self, event: u8, detail: u8) {
        match event % 7 {
            0 => self.syn(detail),
            1 => self.with_serial(detail, |walk, serial, _| {
                let _ = walk.table.own(serial, serial);
            }),
            2 => self.with_serial(detail, |walk, serial, key| {
                walk.upstream += 1;
                let upstream = walk.upstream;
                walk.live_upstreams.insert(upstream);
                let effects = walk.table.ready(serial, upstream, walk.now);
                if !effects.contains(&Effect::Discard(upstream)) {
                    walk.pairs.insert(key, serial);
                }
                walk.check(effects);
            }),
            3 => self.with_serial(detail, |walk, serial, _| {
                let effects = walk.table.refuse(serial, Verdict::Reset);
                walk.check(effects);
            }),
            4 => self.accept(detail),
            5 => self.with_serial(detail, |walk, serial, key| {
                walk.table.close(serial);
                if walk.active.remove(&serial) && walk.pairs.get(&key) == Some(&serial) {
                    walk.pairs.remove(&key);
                }
            }),
            _ => {
                self.now += Duration::from_millis(u64::from(detail) * 200);
                let effects = self.table.tick(self.now);
                self.check(effects);
            }
        }
    }

    fn key(detail: u8) -> Key {
        (
            ([198, 18, 0, detail & 3], u16::from(detail >> 2 & 15)).into(),
            ([192, 0, 2, 1], 443).into(),
        )
    }

    fn syn(&mut self, detail: u8) {
        self.packet += 1;
        let key = Self::key(detail);
        let packet = self.packet;
        self.open.insert(packet);
        self.keys.insert(packet, key);
        let arrival = Arrival {
            key,
            isn: u32::from(detail >> 6),
            packet,
            network: u64::from(detail & 3),
        };
        let (outcome, effects) = self.table.syn(arrival, self.now);
        if let Outcome::New(serial) = outcome {
            self.pairs.remove(&key);
            self.serials.push((serial, key));
        }
        self.check(effects);
    }

    fn accept(&mut self, detail: u8) {
        let key = Self::key(detail);
        if let Some((serial, _, upstream)) = self.table.accept(key) {
            assert_eq!(
                self.pairs.get(&key),
                Some(&serial),
                "paired with what its own SYN led to"
            );
            assert!(
                self.live_upstreams.remove(&upstream),
                "an upstream is handed over once"
            );
            self.active.insert(serial);
            self.met.paired += 1;
            assert!(self.table.accept(key).is_none(), "a socket is paired once");
        }
    }

    fn with_serial(&mut self, detail: u8, act: impl FnOnce(&mut Self, u64, Key)) {
        let Some(&(serial, key)) = self
            .serials
            .get(usize::from(detail) % self.serials.len().max(1))
        else {
            return;
        };
        act(self, serial, key);
    }

    fn check(&mut self, effects: Vec<Effect<u64>>) {
        for effect in effects {
            match effect {
                Effect::Verdict(packet, verdict) => {
                    assert!(
                        self.open.remove(&packet),
                        "a second verdict for packet {packet}"
                    );
                    if verdict == Verdict::Accept {
                        let key = self.keys[&packet];
                        assert!(self.pairs.contains_key(&key), "accepted without a pair");
                        self.met.accepted += 1;
                    } else {
                        self.met.dropped += 1;
                    }
                }
                Effect::Discard(upstream) => {
                    assert!(
                        self.live_upstreams.remove(&upstream),
                        "discarded twice or never dialled"
                    );
                }
            }
        }
    }
}
