//! The TCP doors against hostile sandboxes and hostile origins: one test a promise, each denial with its permitted twin.
//!
//! Two network namespaces for each test: `inside`, where every address is local and the doors listen, and the test's
//! own, which is the uplink with its origins. What reached an origin is read from the origin.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a wrong fixture should fail the test loudly"
)]

mod dials;
mod ends;
mod gate;
mod http;
mod http2;
mod http2_ends;
mod http_answers;
mod lab;
mod limits;
mod proxy;
mod stream;
mod talk;
