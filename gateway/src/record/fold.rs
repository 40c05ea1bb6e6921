//! Folding and quotas: one noisy sandbox can neither fill the journal nor push the others' records out.
//!
//! Of equal denials (network, reason, destination) the first few in a window are written, the rest are counted and
//! written as one. A network whose denials come too fast has them folded by reason alone. A network that has written
//! its share of entries or bytes opens no more flows; its share comes back to it as evenly as old lines are removed, so
//! that what a service wrote last month is no reason to end it. Entries about networks, posture and gaps are never held
//! back.

use std::collections::HashMap;

use netpolicy::ids::NetworkId;
use netpolicy::reason::Reason;
use serde::{Deserialize, Serialize};

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

/// Shares come back in steps: in smaller ones rounding would swallow them.
const GIVE_BACK_MS: i64 = 3_600_000;

/// What one network may hold of the record.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    /// Bytes of its lines.
    pub bytes: u64,
    /// Its lines.
    pub entries: u64,
    /// How long lines are kept: what was written before is no longer held.
    pub keep_ms: i64,
}

/// What one network holds of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Recorded {
    /// Bytes of its lines.
    pub bytes: u64,
    /// Its lines.
    pub entries: u64,
    /// Milliseconds since the epoch until which shares were given back.
    pub at_ms: i64,
}

impl Recorded {
    fn give_back(&mut self, quota: &Quota, now: i64) {
        let passed = now.saturating_sub(self.at_ms);
        if self.bytes == 0 || passed < 0 {
            self.at_ms = now;
            return;
        }
        if passed < GIVE_BACK_MS {
            return;
        }
        let share = |whole: u64| {
            let (passed, keep) = (passed.unsigned_abs(), quota.keep_ms.unsigned_abs().max(1));
            u64::try_from(u128::from(whole) * u128::from(passed) / u128::from(keep))
                .unwrap_or(u64::MAX)
        };
        self.bytes = self.bytes.saturating_sub(share(quota.bytes));
        self.entries = self.entries.saturating_sub(share(quota.entries));
        self.at_ms = now;
    }

    fn is_over(&self, quota: &Quota) -> bool {
        self.bytes >= quota.bytes || self.entries >= quota.entries
    }
}

#[derive(Debug, Default)]
struct OfNetwork {
    recorded: Recorded,
    began: i64,
    denials: u32,
    same: HashMap<Key, Same>,
}

/// Folding state of all networks; bounded by networks times [`REMEMBERED`].
#[derive(Debug)]
pub struct Folds {
    quota: Quota,
    networks: HashMap<NetworkId, OfNetwork>,
}

impl Folds {
    /// With so much for each network.
    pub fn new(quota: Quota) -> Self {
        Self {
            quota,
            networks: HashMap::new(),
        }
    }

    /// What a network holds.
    pub fn recorded(&self, network: &NetworkId) -> Recorded {
        self.networks
            .get(network)
            .map(|of| of.recorded)
            .unwrap_or_default()
    }

    /// What a network held when an earlier gateway ended.
    pub fn restore(&mut self, network: &NetworkId, recorded: Recorded) {
        self.networks.entry(network.clone()).or_default().recorded = recorded;
    }

    /// Decides about an entry.
    pub fn admit(&mut self, entry: &Entry, now: i64) -> Verdict {
        match entry {
            Entry::Open(open) => {
                let of = self
                    .networks
                    .entry(open.subject.network.clone())
                    .or_default();
                of.recorded.give_back(&self.quota, now);
                if of.recorded.is_over(&self.quota) {
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
            | Entry::Selftest(_)
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
        if is_over(of.began, now) {
            (of.began, of.denials) = (now, 0);
        }
        of.recorded.give_back(&self.quota, now);
        let crowded = of.denials >= DENIALS || of.recorded.is_over(&self.quota);
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
        if same.held == 0 && is_over(same.began, now) {
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
            Entry::Network(change) if change.ends() => {
                // What it still holds is written by `due` at the end of its window.
                if let Some(of) = self.networks.get_mut(&change.network) {
                    of.recorded = Recorded::default();
                }
                return;
            }
            Entry::Network(_)
            | Entry::Source(_)
            | Entry::Selftest(_)
            | Entry::Posture { .. }
            | Entry::Gap { .. } => {
                return;
            }
        };
        let recorded = &mut self.networks.entry(network.clone()).or_default().recorded;
        recorded.bytes += bytes;
        recorded.entries += 1;
    }

    /// Folded entries whose window is over (or all of them), to be written now.
    pub fn due(&mut self, now: i64, all: bool) -> Vec<Entry> {
        let mut due = Vec::new();
        for of in self.networks.values_mut() {
            of.same.retain(|key, same| {
                if !all && !is_over(same.began, now) {
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
            .retain(|_, of| of.recorded.bytes > 0 || !of.same.is_empty());
        due
    }
}

/// Whether a window is over; one that begins later than now is of a clock that was set back since.
fn is_over(began: i64, now: i64) -> bool {
    !(0..WINDOW_MS).contains(&now.saturating_sub(began))
}

fn destination(denied: &Denied) -> String {
    let subject = &denied.subject;
    match (&subject.name, subject.address) {
        (Some(name), _) => format!("{name}:{}", subject.port),
        (None, Some(address)) => format!("{address}:{}", subject.port),
        (None, None) => subject.port.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3_600_000;
    const QUOTA: Quota = Quota {
        bytes: 30_000,
        entries: 30,
        keep_ms: 30 * DAY,
    };

    fn held(bytes: u64, entries: u64) -> Recorded {
        Recorded {
            bytes,
            entries,
            at_ms: 5,
        }
    }

    #[test]
    fn a_share_is_used_up_by_entries_as_well_as_by_bytes() {
        assert!(held(30_000, 1).is_over(&QUOTA));
        assert!(held(1, 30).is_over(&QUOTA));
        assert!(!held(29_999, 29).is_over(&QUOTA));
    }

    #[test]
    fn a_window_ends_when_its_time_is_over_and_when_the_clock_was_set_back() {
        assert!(!is_over(50_000, 50_000) && !is_over(50_000, 59_999));
        assert!(is_over(50_000, 60_000) && is_over(50_000, 49_999) && is_over(50_000, 0));
    }

    #[test]
    fn a_share_comes_back_as_evenly_as_old_lines_go_and_not_by_setting_the_clock_back() {
        let mut recorded = held(30_000, 30);
        recorded.give_back(&QUOTA, 5 + GIVE_BACK_MS - 1);
        assert_eq!(recorded, held(30_000, 30));
        recorded.give_back(&QUOTA, 5 + DAY);
        assert_eq!((recorded.bytes, recorded.entries), (29_000, 29));
        recorded.give_back(&QUOTA, 0);
        assert_eq!((recorded.bytes, recorded.at_ms), (29_000, 0));
        recorded.give_back(&QUOTA, 60 * DAY);
        assert_eq!((recorded.bytes, recorded.entries), (0, 0));
    }
}
