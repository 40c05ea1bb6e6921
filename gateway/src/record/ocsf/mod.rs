//! Records as OCSF events, for collectors that speak the Open Cybersecurity Schema Framework.
//!
//! One journal line becomes one event of schema version [`VERSION`]: Network Activity (4001) for flows, HTTP Activity
//! (4002) for flows whose requests were read, DNS Activity (4003) for questions, and Base Event (0) for what happens to
//! networks, the posture and the journal itself. What the schema has no place for stands under `unmapped` with the
//! journal's own words, so nothing is lost. Owns the form; refuses to own reading, filtering and where it goes.

mod event;
mod map;
mod objects;
mod parts;
#[cfg(test)]
mod tests;

pub use event::Event;

use super::Line;

/// The published schema version that events are of.
pub const VERSION: &str = "1.8.0";

/// The event of a journal line.
pub fn event(line: &Line) -> Event {
    map::event(line)
}
