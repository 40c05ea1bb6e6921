//! What a job can do to its sandbox, to the machine, and to the program that runs it.
//!
//! Probes are Python programs in `probes`, which run inside and print what they achieved as one JSON line; the tests
//! judge. Each test names the attack cases that it covers (`tests/cases/coverage.tsv`).
#![expect(
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic in a helper is how its test fails"
)]

mod acknowledged;
mod egress;
mod ends;
mod fields;
mod images;
mod isolation;
mod leftovers;
mod network;
mod output;
mod power;
mod resources;
pub mod world;
