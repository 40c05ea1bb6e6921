//! The DNS door against hostile sandboxes and hostile servers: one test a promise, each denial with its permitted twin.
//!
//! Sandboxes are addresses of the loopback network, the upstream is a scripted server that keeps every octet it was
//! sent: "nothing left the machine" is read from its log.

mod answers;
mod lab;
mod limits;
mod messages;
mod servers;
mod upstream;
mod verdicts;
