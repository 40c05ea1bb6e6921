//! The record: what every flow was, why it was permitted or denied, and how it ended.
//!
//! Owns the hash-chained journal: [`entry`] says what is written, [`chain`] in which form, [`journal`] appends,
//! [`fold`] keeps one noisy sandbox from filling it, [`keep`] syncs, signs, anchors and removes what is too old,
//! [`read`] gives it out again, [`ocsf`] in another form, and [`verify`] finds what was changed. Records and tracing
//! never mix.
//!
//! Failure stance: a journal that cannot be written refuses new flows; what may have been lost is stated in it.

pub mod age;
mod anchors;
pub mod chain;
pub mod entry;
pub mod fold;
pub mod head;
pub mod journal;
pub mod keep;
pub mod ocsf;
pub mod read;
mod recover;
pub mod segment;
pub mod syslog;
#[cfg(test)]
mod tests;
pub mod verify;

pub use entry::Entry;
pub use fold::Recorded;
pub use journal::{Journal, JournalConfig, JournalError, JournalState, Unwritable};
pub use read::{Reader, export};
pub use verify::{Report, verify};

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
