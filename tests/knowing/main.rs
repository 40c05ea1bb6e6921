//! Knowing: the record in other forms, metrics, live views, packet captures, telemetry.

mod capture;
mod crowd;
mod explain;
mod metrics;
mod records;
mod telemetry;
mod watch;
