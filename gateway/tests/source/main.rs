//! Policies in git against hostile remotes: real git, real keys, repositories made by the test.
//!
//! Each test has its permitted twin: the same remote in order is loaded.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a wrong fixture should fail the test loudly"
)]

mod commits;
mod files;
mod lab;
mod proposals;
mod remotes;
mod servers;
mod signatures;
