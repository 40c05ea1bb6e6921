//! The lab: namespaces made by the test itself that play the machine's uplink, the internet, a LAN and sandboxes.
//!
//! A test builds a [`Lab`], attaches [`Sandbox`]es to a real `sallyport gateway` child, attacks from inside with
//! [`client`] or [`raw`], and asserts on what the [`capture`] of the uplink and the origins' own logs saw: never on
//! what the gateway says about itself alone. With `LAB_PLAIN=1` an ordinary forwarder stands where the gateway would,
//! and every denial must then show a leak; a test that passes without the gateway proves nothing.
//!
//! Nothing leaves the machine: the "internet" is a namespace that owns public addresses on its own loopback.
//! Refuses to own: any judgement about policies. Failure stance: what cannot be set up fails the test.

#![expect(
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "test support: a panic is how a broken lab fails its test"
)]

pub mod capture;
pub mod cli;
pub mod client;
pub mod control;
pub mod dns;
pub mod frame;
pub mod gateway;
pub mod h3;
pub mod heaviest;
mod lab;
pub mod log;
pub mod namespace;
pub mod origin;
pub mod pace;
mod plain;
pub mod policies;
pub mod probe;
pub mod quic;
pub mod raw;
mod sandbox;
mod sweep;
pub mod tls;
pub mod topology;
pub mod user;
pub mod wait;

pub use lab::{Builder, Lab, Mode};
pub use probe::{Leak, denied};
pub use sandbox::Sandbox;
pub use user::User;
