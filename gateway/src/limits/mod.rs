//! Budgets of a network and global ceilings that are shared out, so that no network can starve another.
//!
//! [`Ledger`] counts what one network uses: flows, new flows a second, bytes, bandwidth, names, record entries.
//! [`Ceilings`] holds what the whole gateway has: descriptors ([`Descriptors`] shares them out), and with them flows, dials
//! and pipes. Refuses to own:
//! when a flow ends (its slot is a guard) and what a reason looks like to the sandbox. Invariant: a number that was
//! taken is given back exactly once, by drop. Failure stance: at a limit a flow is denied, never an `EMFILE`.

mod bucket;
mod ceilings;
mod descriptors;
mod ledger;

pub use bucket::Bucket;
pub use ceilings::{Ceilings, Share, Taken};
pub use descriptors::Descriptors;
pub use ledger::{FlowSlot, Ledger, NAMES, Used};
