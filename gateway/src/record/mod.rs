//! The record: what every flow was, why it was permitted or denied, and how it ended.

pub mod entry;

pub use entry::Entry;

/// One line of the journal.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Line {
    /// Position in the chain, from 1, without holes.
    pub seq: u64,
    /// Milliseconds since the epoch.
    pub t: i64,
    /// Hash of the line before.
    pub prev: String,
    /// SHA-256 over `prev` and this line without its two hashes.
    pub hash: String,
    /// What happened.
    #[serde(flatten)]
    pub entry: Entry,
}

/// The hash-chained journal.
#[derive(Debug)]
pub struct Journal {}

/// The journal cannot be written: new flows are refused.
#[derive(Debug, thiserror::Error)]
#[error("writing the journal")]
pub struct Unwritable(#[source] pub std::io::Error);

impl Journal {
    /// Appends with write(2) before it returns. Denials are folded above a rate. `network` keys quota and folding.
    pub fn append(&self, _entry: Entry) -> Result<(), Unwritable> { todo!() }
    /// Whether the last write worked; doors refuse new flows when not.
    pub fn writable(&self) -> bool { todo!() }
}
