//! Real programs in a real container, behind a real gateway, against real servers: what works is permitted, and its
//! twin (the same command towards a name or address that the policy does not permit) fails fast, leaves no packet on
//! the uplink and stands in the record with its reason.
//!
//! The programs and the servers come from `tests/images/programs` (`./dev programs` builds them). One test per family,
//! because one sandbox runs many programs; a family reports every step that went wrong, not the first.

mod musl;
mod packages;
mod plan;
mod remote;
mod resolvers;
mod runtimes;
mod servers;
mod sets;
mod transcript;
mod web;
mod world;

/// Debian with the programs.
const DEBIAN: &str = "sallyport/test-programs:latest";
/// A musl userland without any Debian library.
const MUSL: &str = "sallyport/test-musl:latest";
