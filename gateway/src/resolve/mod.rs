//! Names: leases handed to sandboxes, and the look-ups behind them.
//!
//! Owns: [`Leases`] (what one network was told, durable before the answer leaves) and [`Resolver`] (the upstream
//! servers, the cache, and what RFC 7050 teaches about NAT64). Refuses to own: whether a name or an address is
//! permitted; every caller comes with a name that netpolicy permitted. Failure stance: closed; a lease that cannot be
//! written is not handed out, an answer that cannot be believed is an error.

pub mod leases;
pub mod upstream;

use std::sync::Arc;

use netpolicy::name::Name;

pub use leases::{Asked, LeaseError, LeasePools, Leases};
pub use upstream::{Addresses, Resolver, Upstreams, Wire};

/// Why a permitted name has no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// NXDOMAIN or no address: does not exist.
    #[error("the name has no address")]
    NoAddress,
    /// The name is an alias, and what it leads to (the last of these) may not be followed. Nobody was asked for it.
    #[error("the name is an alias of one that is denied")]
    Denied(Arc<[Name]>),
    /// SERVFAIL, time-out, refused, malformed.
    #[error("the upstream resolver failed: {0}")]
    Upstream(String),
}
