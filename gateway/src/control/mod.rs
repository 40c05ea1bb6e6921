//! The control API: HTTP/1.1 and JSON over a Unix socket, each verb allowed per peer uid.
//!
//! Owns the wire types ([`api`]), the client that the runner and the CLI use ([`client`]), the exchange that it is made
//! of ([`exchange`]), descriptors that travel with the first byte ([`descriptor`]) and the server. Refuses to own:
//! composition of policies, the kernel, records; it asks those parts. The gateway never opens a path that a client
//! names; the one exception is a broker socket, which it connects to and which must be a socket owned by root or by the
//! peer that named it.
//!
//! Failure stance: a request that is not exactly understood changes nothing and is answered with a [`api::Problem`].

pub mod access;
pub mod api;
mod check;
pub mod client;
pub mod descriptor;
pub mod disposal;
pub mod exchange;
mod explain;
pub mod handover;
mod ingress;
pub mod places;
pub mod problems;
pub mod readers;
mod refused;
mod routes;
pub mod server;
mod sources;
mod statements;
mod streams;
pub mod threads;
pub mod verbs;

pub use api::{AttachRequest, PolicySource, Problem};
pub use client::{Client, ClientError};
pub use handover::Handover;
