//! The DNS door against hostile sandboxes and hostile servers: one test a promise, each denial with its permitted twin.
//!
//! Sandboxes are addresses of the loopback network, the upstream is a scripted server that keeps every octet it was
//! sent: "nothing left the machine" is read from its log.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a wrong fixture should fail the test loudly"
)]

mod aliases;
mod answers;
mod door;
mod lab;
mod limits;
mod local;
mod messages;
mod policies;
mod records;
mod servers;
mod upstream;
mod verdicts;
