//! Budgets of one network. Counters are atomics; the rate and bandwidth buckets are short locks, never across an await.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use netpolicy::policy::Limits;
use netpolicy::reason::Reason;

use super::bucket::Bucket;
use super::ceilings::{Ceilings, Taken};

/// Distinct names where the policy names none.
pub const NAMES: u32 = Limits::USUAL_NAMES;

/// Effective limits, defaults filled in.
#[derive(Clone, Copy, Debug)]
struct Effective {
    flows: usize,
    rate: u64,
    upload: u64,
    download: u64,
    bandwidth: Option<u64>,
    names: u64,
    records: u64,
}

impl Effective {
    fn of(limits: &Limits) -> Self {
        Self {
            flows: limits.flows.unwrap_or(Limits::USUAL_FLOWS) as usize,
            rate: u64::from(limits.rate.unwrap_or(Limits::USUAL_RATE)),
            upload: limits.upload.unwrap_or(u64::MAX),
            download: limits.download.unwrap_or(u64::MAX),
            bandwidth: limits.bandwidth,
            names: u64::from(limits.names.unwrap_or(NAMES)),
            // without a written limit the journal's share for each network holds, which comes back with time; a budget
            // for the whole run would cut off a service that merely runs for long
            records: limits.records.unwrap_or(u64::MAX),
        }
    }

    /// A second's worth, but at least what one read moves: a smaller burst would only add wake-ups.
    fn bandwidth_bucket(&self, now: Instant) -> Option<Bucket> {
        self.bandwidth
            .map(|rate| Bucket::new(rate, rate.max(16 * 1024), now))
    }
}

/// Budgets of one network: flows, rate, bytes, names, records. Counters survive restarts.
#[derive(Debug)]
pub struct Ledger {
    limits: ArcSwap<Effective>,
    /// Flows held now; shared with the slots that give their place back.
    flows: Arc<AtomicUsize>,
    pipes: Arc<AtomicUsize>,
    held: Arc<AtomicUsize>,
    rate: Mutex<Bucket>,
    pace_up: Mutex<Option<Bucket>>,
    pace_down: Mutex<Option<Bucket>>,
    upload: AtomicU64,
    download: AtomicU64,
    names: AtomicU64,
    records: AtomicU64,
}

/// One admitted flow; gives its place back on drop.
#[derive(Debug)]
pub struct FlowSlot {
    _taken: Taken,
}

/// Counters to persist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Used {
    /// Bytes up.
    pub upload: u64,
    /// Bytes down.
    pub download: u64,
    /// Distinct names.
    pub names: u64,
    /// Record entries.
    pub records: u64,
}

impl Ledger {
    /// Fresh or restored counters under effective limits.
    pub fn new(limits: &Limits, used: Used) -> Self {
        let (effective, now) = (Effective::of(limits), Instant::now());
        Self {
            flows: Arc::default(),
            pipes: Arc::default(),
            held: Arc::default(),
            rate: Mutex::new(Bucket::new(
                effective.rate,
                effective.rate.saturating_mul(2),
                now,
            )),
            pace_up: Mutex::new(effective.bandwidth_bucket(now)),
            pace_down: Mutex::new(effective.bandwidth_bucket(now)),
            upload: AtomicU64::new(used.upload),
            download: AtomicU64::new(used.download),
            names: AtomicU64::new(used.names),
            records: AtomicU64::new(used.records),
            limits: ArcSwap::from_pointee(effective),
        }
    }

    /// New limits, same counters.
    pub fn set_limits(&self, limits: &Limits) {
        let (effective, now) = (Effective::of(limits), Instant::now());
        lock(&self.rate).set(effective.rate, effective.rate.saturating_mul(2));
        for pace in [&self.pace_up, &self.pace_down] {
            let mut pace = lock(pace);
            match (&mut *pace, effective.bandwidth) {
                (Some(bucket), Some(rate)) => bucket.set(rate, rate.max(16 * 1024)),
                (pace, _) => *pace = effective.bandwidth_bucket(now),
            }
        }
        self.limits.store(Arc::new(effective));
    }

    /// Admits a new flow: rate, concurrent flows, byte budgets left, global ceiling share.
    pub fn admit(&self, ceilings: &Ceilings) -> Result<FlowSlot, Reason> {
        self.admit_at(ceilings, Instant::now())
    }

    fn admit_at(&self, ceilings: &Ceilings, now: Instant) -> Result<FlowSlot, Reason> {
        self.left()?;
        if !lock(&self.rate).take(now) {
            return Err(Reason::LimitRate);
        }
        self.place(ceilings)
    }

    /// The budget that is used up, if one is: nothing new passes then, whatever it is.
    fn left(&self) -> Result<(), Reason> {
        let limits = self.limits.load();
        if self.upload.load(Ordering::Relaxed) >= limits.upload {
            return Err(Reason::LimitUpload);
        }
        if self.download.load(Ordering::Relaxed) >= limits.download {
            return Err(Reason::LimitDownload);
        }
        if self.records.load(Ordering::Relaxed) >= limits.records {
            return Err(Reason::LimitRecords);
        }
        Ok(())
    }

    /// Why a flow would not be admitted at this moment, whatever its destination. Takes nothing.
    pub fn used_up(&self) -> Option<Reason> {
        let full = self.flows() >= self.limits.load().flows;
        self.left()
            .err()
            .or_else(|| full.then_some(Reason::LimitFlows))
    }

    /// Whether another distinct name may be asked for. Counts none.
    pub fn has_name(&self) -> bool {
        self.names.load(Ordering::Relaxed) < self.limits.load().names
    }

    /// Takes a flow's place without counting a new attempt: an attempt whose place was just made free.
    pub(crate) fn place(&self, ceilings: &Ceilings) -> Result<FlowSlot, Reason> {
        let most = self.limits.load().flows.min(ceilings.most_flows_each());
        let taken = ceilings.flows.take(&self.flows).ok_or(Reason::LimitFlows)?;
        // counted after taking, so that two that come at once cannot both be the last
        if self.flows.load(Ordering::Acquire) > most {
            Err(Reason::LimitFlows)
        } else {
            Ok(FlowSlot { _taken: taken })
        }
    }

    /// Borrows the right to one pipe, if this network's share allows it.
    pub(crate) fn pipe(&self, ceilings: &Ceilings) -> Option<Taken> {
        ceilings.pipes.take(&self.pipes)
    }

    /// A place for a datagram that waits for a decision, if this network's share allows it.
    pub(crate) fn hold(&self, ceilings: &Ceilings) -> Option<Taken> {
        ceilings.held.take(&self.held)
    }

    /// Flows held now.
    pub fn flows(&self) -> usize {
        self.flows.load(Ordering::Acquire)
    }

    /// Counts bytes up; Err when the budget is used up (the flow ends with the reason).
    pub fn upload(&self, bytes: u64) -> Result<(), Reason> {
        spend(
            &self.upload,
            bytes,
            self.limits.load().upload,
            Reason::LimitUpload,
        )
    }

    /// Counts bytes down.
    pub fn download(&self, bytes: u64) -> Result<(), Reason> {
        spend(
            &self.download,
            bytes,
            self.limits.load().download,
            Reason::LimitDownload,
        )
    }

    /// Bytes that may still go up.
    pub fn upload_left(&self) -> u64 {
        self.limits
            .load()
            .upload
            .saturating_sub(self.upload.load(Ordering::Relaxed))
    }

    /// Bytes that may still come down.
    pub fn download_left(&self) -> u64 {
        self.limits
            .load()
            .download
            .saturating_sub(self.download.load(Ordering::Relaxed))
    }

    /// How long a relay waits after moving these bytes up, so that the network keeps its bandwidth.
    pub fn pace_up(&self, bytes: u64) -> Duration {
        pace(&self.pace_up, bytes)
    }

    /// Same, down.
    pub fn pace_down(&self, bytes: u64) -> Duration {
        pace(&self.pace_down, bytes)
    }

    /// Counts a name that was not seen before.
    pub fn name(&self) -> Result<(), Reason> {
        count(&self.names, self.limits.load().names, Reason::LimitNames)
    }

    /// Counts a record entry.
    pub fn record(&self) -> Result<(), Reason> {
        count(
            &self.records,
            self.limits.load().records,
            Reason::LimitRecords,
        )
    }

    /// Counters now.
    pub fn used(&self) -> Used {
        Used {
            upload: self.upload.load(Ordering::Relaxed),
            download: self.download.load(Ordering::Relaxed),
            names: self.names.load(Ordering::Relaxed),
            records: self.records.load(Ordering::Relaxed),
        }
    }
}

/// Bytes that were moved stay counted, also those that went over.
fn spend(counter: &AtomicU64, bytes: u64, most: u64, reason: Reason) -> Result<(), Reason> {
    let before = counter.fetch_add(bytes, Ordering::Relaxed);
    if before.saturating_add(bytes) > most {
        Err(reason)
    } else {
        Ok(())
    }
}

/// One more, or not counted at all.
fn count(counter: &AtomicU64, most: u64, reason: Reason) -> Result<(), Reason> {
    let next = |n: u64| (n < most).then_some(n + 1);
    counter
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
        .map(drop)
        .map_err(|_| reason)
}

fn pace(bucket: &Mutex<Option<Bucket>>, bytes: u64) -> Duration {
    lock(bucket)
        .as_mut()
        .map_or(Duration::ZERO, |b| b.spend(bytes, Instant::now()))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
