//! The gateway: the per-run networks, their DNS, doors, kernel rules and flow record; the only way out and in.
//!
//! The journey of a flow, in the order of the folders: a kernel rule delivers a packet shape to a door ([`listen`]),
//! the source address names the [`network`], a lease or look-up names the destination ([`resolve`]), netpolicy decides
//! to connect, [`uplink`] dials what was permitted, [`detect`] reads the first bytes, netpolicy decides on them,
//! [`relay`] moves bytes, [`record`] keeps what happened. [`control`] attaches and detaches networks, [`policy`]
//! composes their layers, [`source`] follows policies in git, [`posture`] says whether anything may pass at all,
//! [`metrics`] counts.
//!
//! Refuses to own: the container engine, people, the store. Failure stance: closed; what cannot be verified seals.

pub mod appliance;
pub mod capture;
pub mod config;
pub mod context;
pub mod control;
pub mod detect;
pub mod kernel;
pub mod limits;
pub mod listen;
pub mod member;
pub mod metrics;
pub mod network;
pub mod ordinary;
pub mod policy;
pub mod posture;
pub mod record;
pub mod relay;
pub mod resolve;
pub mod selftest;
pub mod source;
pub mod tasks;
pub mod telemetry;
pub mod uplink;

pub use appliance::{Appliance, BuildError, build, run, uninstall};
