//! Metrics: the record's facts as numbers, for Prometheus and whatever reads its text.
//!
//! [`Meters`] counts as things happen, [`scrape`] looks at what is a state, [`serve`] answers on the management
//! listener. Labels come from fixed lists (reason codes, doors, DNS codes): nothing that a sandbox, a policy or a caller
//! names is ever one, so neither size nor content is anybody's choice. Refuses to own: why something happened (record).

mod meters;
mod scrape;
mod serve;
#[cfg(test)]
mod tests;

pub use meters::Meters;
pub use scrape::Scrape;
pub use serve::{Listener, bind, serve};
