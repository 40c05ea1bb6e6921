//! Answers a second of the DNS door, on cached names: `cargo run --release --example dns_answers [socket]`.
//!
//! Without an argument datagrams come from memory: what is measured is the door alone (parse, decide, judge, lease,
//! write), on one thread. With `socket` the door serves 127.0.0.1 for ten seconds on the printed port, for a load
//! generator; the sandbox is 127.0.0.1.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::missing_docs_in_private_items,
    reason = "a measurement, run by hand"
)]

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn main() {}
