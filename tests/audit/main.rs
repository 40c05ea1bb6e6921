//! The repository audits itself: licences, sources and duplicates of what is inside, and how the code is laid out,
//! and which attack cases have a test.
//!
//! Needs no network: `cargo metadata` reads the lock file and what cargo has fetched.

mod coverage;
mod crates;
mod layout;
mod tree;
