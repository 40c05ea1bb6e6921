//! Budgets of a network and global ceilings that are shared out, so that no network can starve another.

use netpolicy::reason::Reason;

/// Budgets of one network: flows, rate, bytes, names, records. Counters survive restarts.
#[derive(Debug)]
pub struct Ledger {}

/// One admitted flow; gives its place back on drop.
#[derive(Debug)]
pub struct FlowSlot {}

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
    pub fn new(_limits: &netpolicy::policy::Limits, _used: Used) -> Self { todo!() }
    /// New limits, same counters.
    pub fn set_limits(&self, _limits: &netpolicy::policy::Limits) { todo!() }
    /// Admits a new flow: rate, concurrent flows, byte budgets left, global ceiling share.
    pub fn admit(&self, _ceilings: &Ceilings) -> Result<FlowSlot, Reason> { todo!() }
    /// Counts bytes up; Err when the budget is used up (the flow ends with the reason).
    pub fn upload(&self, _bytes: u64) -> Result<(), Reason> { todo!() }
    /// Counts bytes down.
    pub fn download(&self, _bytes: u64) -> Result<(), Reason> { todo!() }
    /// Counts a name that was not seen before.
    pub fn name(&self) -> Result<(), Reason> { todo!() }
    /// Counts a record entry.
    pub fn record(&self) -> Result<(), Reason> { todo!() }
    /// Counters now.
    pub fn used(&self) -> Used { todo!() }
}

/// Descriptors, uplink ports, new flows: global ceilings, shared out over the live networks.
#[derive(Debug)]
pub struct Ceilings {}
