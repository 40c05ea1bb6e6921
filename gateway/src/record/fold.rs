//! Folding and quotas: one noisy sandbox can neither fill the journal nor push the others' records out.
//!
//! Of equal denials (network, reason, destination) the first few in a window are written, the rest are counted and
//! written as one. A network whose denials come too fast has them folded by reason alone. A network that has written
//! its share of bytes opens no more flows; entries about networks, posture and gaps are never held back.

use std::collections::HashMap;

use netpolicy::ids::NetworkId;
use netpolicy::reason::Reason;

use super::entry::{Denied, Entry};

/// Equal denials written one by one in a window; the sixth is a pattern, not news.
const EQUAL: u32 = 5;
/// Length of a window.
const WINDOW_MS: i64 = 10_000;
/// Denials of one network written in a window, whatever they are about.
const DENIALS: u32 = 500;
/// Destinations remembered for one network; above it denials are folded by reason alone.
const REMEMBERED: usize = 512;

/// What becomes of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Write it.
    Write,
    /// It was counted; the count is written later.
    Folded,
    /// The network has used its share of bytes.
    OverQuota,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Key {
    reason: Reason,
    /// Name or address and port; empty when folded by reason alone.
    destination: String,
    failure: bool,
}

#[derive(Debug)]
struct Same {
    began: i64,
    written: u32,
    held: u64,
    first_held: Option<Box<Denied>>,
}

#[derive(Debug, Default)]
struct OfNetwork {
    bytes: u64,
    began: i64,
    denials: u32,
    same: HashMap<Key, Same>,
}

/// Folding state of all networks; bounded by networks times [`REMEMBERED`].
#[derive(Debug)]
pub struct Folds {
    network_bytes: u64,
    networks: HashMap<NetworkId, OfNetwork>,
}

impl Folds {
    /// With so many bytes for each network.
    pub fn new(network_bytes: u64) -> Self {
        Self {
            network_bytes,
            networks: HashMap::new(),
        }
    }

    /// Decides about an entry.
    pub fn admit(&mut self, entry: &Entry, now: i64) -> Verdict {
        match entry {
            Entry::Open(open) => {
                let of = self
                    .networks
                    .entry(open.subject.network.clone())
                    .or_default();
                if of.bytes >= self.network_bytes {
                    Verdict::OverQuota
                } else {
                    Verdict::Write
                }
            }
            Entry::Denial(denied) => self.fold(denied, false, now),
            Entry::Failure(denied) => self.fold(denied, true, now),
            Entry::Close(_)
            | Entry::Network(_)
            | Entry::Source(_)
            | Entry::Posture { .. }
            | Entry::Gap { .. }
            | Entry::Folded { .. } => Verdict::Write,
        }
    }

    fn fold(&mut self, denied: &Denied, failure: bool, now: i64) -> Verdict {
        let of = self
            .networks
            .entry(denied.subject.network.clone())
            .or_default();
        if now - of.began >= WINDOW_MS {
            (of.began, of.denials) = (now, 0);
        }
        let crowded = of.denials >= DENIALS || of.bytes >= self.network_bytes;
        let mut key = Key {
            reason: denied.reason,
            destination: destination(denied),
            failure,
        };
        if crowded || (of.same.len() >= REMEMBERED && !of.same.contains_key(&key)) {
            key.destination.clear();
        }
        let same = of.same.entry(key).or_insert(Same {
            began: now,
            written: 0,
            held: 0,
            first_held: None,
        });
        // An old window that held nothing starts afresh; one that held something is written out by `due` first.
        if same.held == 0 && now - same.began >= WINDOW_MS {
            (same.began, same.written) = (now, 0);
        }
        if same.written < EQUAL && !crowded {
            same.written += 1;
            of.denials += 1;
            return Verdict::Write;
        }
        same.held += 1;
        same.first_held
            .get_or_insert_with(|| Box::new(denied.clone()));
        Verdict::Folded
    }

    /// Counts what was written, and forgets a network that is gone.
    pub fn wrote(&mut self, entry: &Entry, bytes: u64) {
        let network = match entry {
            Entry::Open(open) => &open.subject.network,
            Entry::Close(close) => &close.subject.network,
            Entry::Denial(denied)
            | Entry::Failure(denied)
            | Entry::Folded { first: denied, .. } => &denied.subject.network,
            Entry::Network(change) if change.change == "detached" => {
                // What it still holds is written by `due` at the end of its window.
                if let Some(of) = self.networks.get_mut(&change.network) {
                    of.bytes = 0;
                }
                return;
            }
            Entry::Network(_) | Entry::Source(_) | Entry::Posture { .. } | Entry::Gap { .. } => {
                return;
            }
        };
        self.networks.entry(network.clone()).or_default().bytes += bytes;
    }

    /// Folded entries whose window is over (or all of them), to be written now.
    pub fn due(&mut self, now: i64, all: bool) -> Vec<Entry> {
        let mut due = Vec::new();
        for of in self.networks.values_mut() {
            of.same.retain(|key, same| {
                if !all && now - same.began < WINDOW_MS {
                    return true;
                }
                if let Some(first) = same.first_held.take() {
                    due.push(Entry::Folded {
                        first,
                        count: same.held,
                        failed: key.failure,
                    });
                }
                false
            });
        }
        self.networks
            .retain(|_, of| of.bytes > 0 || !of.same.is_empty());
        due
    }
}

fn destination(denied: &Denied) -> String {
    let subject = &denied.subject;
    match (&subject.name, subject.address) {
        (Some(name), _) => format!("{name}:{}", subject.port),
        (None, Some(address)) => format!("{address}:{}", subject.port),
        (None, None) => subject.port.to_string(),
    }
}
