//! The time of day as the store keeps it, and names for its rows.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 UTC.
pub type Millis = i64;

/// One second.
pub const SECOND: Millis = 1_000;
/// One minute.
pub const MINUTE: Millis = 60 * SECOND;
/// One hour.
pub const HOUR: Millis = 60 * MINUTE;
/// One day.
pub const DAY: Millis = 24 * HOUR;

/// Now. Functions that decide something by time take it as a parameter; this is for whoever calls them.
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| {
        Millis::try_from(d.as_millis()).unwrap_or(Millis::MAX)
    })
}

/// A new id: UUIDv7, so that rows of one table lie in the order of their making.
pub fn id() -> String {
    uuid::Uuid::now_v7().to_string()
}
