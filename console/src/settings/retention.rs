//! The `retention` part of the console section: how long the store keeps what only grows.
//!
//! The audit log has no row here: it is one chain from its first entry, and is kept.

use netpolicy::document::Mistakes;
use netpolicy::document::shape::{Field, Kind, Need, Shape};
use netpolicy::document::tree::Node;

use crate::clock::{DAY, Millis};

/// Ten years.
const MOST: u64 = 3650;

/// How long things are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Runs that are over, with everything of them.
    pub runs: Millis,
    /// What they printed.
    pub output: Millis,
    /// Where they went.
    pub flows: Millis,
    /// What was sent to whom.
    pub deliveries: Millis,
    /// What readers of the event stream can go back to.
    pub events: Millis,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            runs: 90 * DAY,
            output: 90 * DAY,
            flows: 90 * DAY,
            deliveries: 30 * DAY,
            events: 7 * DAY,
        }
    }
}

const fn days(key: &'static str, help: &'static str) -> Field {
    Field {
        key,
        kind: Kind::Whole { min: 1, max: MOST },
        need: Need::Optional,
        help,
    }
}

/// See the module.
pub static RETENTION: Shape = Shape {
    what: "the console's retention",
    fields: &[
        days("runs", "Days that a run is kept after its end. Default 90."),
        days(
            "output",
            "Days that what it printed is kept, never longer than the run. Default as runs.",
        ),
        days(
            "flows",
            "Days that its flows are kept, never longer than the run. Default as runs.",
        ),
        days(
            "deliveries",
            "Days that sent notifications can be looked up. Default 30.",
        ),
        days(
            "events",
            "Days that readers of the event stream can go back. Default 7.",
        ),
    ],
    bonds: &[],
};

/// From a section whose shape was checked.
pub fn read(section: Option<&Node>, mistakes: &mut Mistakes) -> Retention {
    let usual = Retention::default();
    let Some(section) = section else { return usual };
    let days = |key: &str| {
        let text = section.field(key).and_then(Node::scalar)?;
        // what does not fit its shape was noted
        Some(text.parse::<Millis>().ok()?.saturating_mul(DAY))
    };
    let runs = days("runs").unwrap_or(usual.runs);
    let retention = Retention {
        runs,
        output: days("output").unwrap_or(runs),
        flows: days("flows").unwrap_or(runs),
        deliveries: days("deliveries").unwrap_or(usual.deliveries),
        events: days("events").unwrap_or(usual.events),
    };
    if retention.output > runs || retention.flows > runs {
        let message = "`output` and `flows` go with their run: not more days than `runs`";
        mistakes.add(&section.at, message);
    }
    retention
}
