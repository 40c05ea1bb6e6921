//! Budgets of a run, and how layers narrow them.

use serde::{Deserialize, Serialize};

/// Budgets; `None` is the gateway's default (256 flows, 50 new a second, 500 names; no byte limits).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Concurrent flows.
    pub flows: Option<u32>,
    /// New flows a second.
    pub rate: Option<u32>,
    /// Bytes up for the whole run.
    pub upload: Option<u64>,
    /// Bytes down for the whole run.
    pub download: Option<u64>,
    /// Bytes a second, each way.
    pub bandwidth: Option<u64>,
    /// Distinct names.
    pub names: Option<u32>,
    /// Record entries for the whole run; without it the share of the record that each network has (a million entries and
    /// a gigabyte, given back over the time that lines are kept).
    pub records: Option<u64>,
}

impl Limits {
    /// Concurrent flows where no layer names a number.
    pub const USUAL_FLOWS: u32 = 256;
    /// New flows a second where no layer names a number.
    pub const USUAL_RATE: u32 = 50;
    /// Distinct names where no layer names a number.
    pub const USUAL_NAMES: u32 = 500;

    /// Both at once: of each budget the narrower.
    #[must_use]
    pub fn narrowed_by(&self, other: &Self) -> Self {
        Self {
            flows: narrower(self.flows, other.flows),
            rate: narrower(self.rate, other.rate),
            upload: narrower(self.upload, other.upload),
            download: narrower(self.download, other.download),
            bandwidth: narrower(self.bandwidth, other.bandwidth),
            names: narrower(self.names, other.names),
            records: narrower(self.records, other.records),
        }
    }
}

/// The smaller of two budgets. A layer that says nothing does not narrow.
fn narrower<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wider_layer_never_raises_a_budget() {
        let floor = Limits {
            flows: Some(10),
            upload: Some(100),
            ..Limits::default()
        };
        let job = Limits {
            flows: Some(500),
            upload: Some(50),
            names: Some(3),
            ..Limits::default()
        };
        let both = floor.narrowed_by(&job);
        assert_eq!(
            (both.flows, both.upload, both.names),
            (Some(10), Some(50), Some(3))
        );
        assert_eq!(both, job.narrowed_by(&floor));
        assert_eq!(both.download, None);
    }
}
