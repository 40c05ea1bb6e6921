//! Names: leases handed to sandboxes, and the look-ups behind them.

use std::net::IpAddr;

use netpolicy::name::Name;

/// Addresses and names handed out to one network; durable before the answer is sent.
#[derive(Debug)]
pub struct Leases {}

/// A lease could not be made.
#[derive(Debug, thiserror::Error)]
#[error("stub")]
pub struct LeaseError;

impl Leases {
    /// The name behind a synthetic address.
    pub fn find(&self, _address: IpAddr) -> Option<Name> { todo!() }
    /// Names bound to a real address (`names: real`).
    pub fn bound(&self, _address: IpAddr) -> Vec<Name> { todo!() }
    /// How many distinct names.
    pub fn len(&self) -> usize { todo!() }
    /// None yet.
    pub fn is_empty(&self) -> bool { self.len() == 0 }
}

/// Upstream resolvers: the system's or `gateway.resolvers`, with split DNS by domain.
#[derive(Debug)]
pub struct Resolver {}

/// Why a permitted name has no usable answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LookupError {
    /// NXDOMAIN or no address: does not exist.
    #[error("the name has no address")]
    NoAddress,
    /// SERVFAIL, time-out, refused, malformed.
    #[error("the upstream resolver failed: {0}")]
    Upstream(String),
}

impl Resolver {
    /// Every address of a name, A then AAAA, CNAMEs followed. Cached at most 60 s. Call only with a permitted name.
    pub async fn addresses(&self, _name: &Name) -> Result<Vec<IpAddr>, LookupError> { todo!() }
}
