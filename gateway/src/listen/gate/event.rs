//! What goes into the table of first SYNs and what comes out of it.

use std::net::SocketAddr;

/// Source and destination of a SYN.
pub type Key = (SocketAddr, SocketAddr);

/// What the kernel does with a held packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// Goes on to the listener.
    Accept,
    /// Is answered with a reset.
    Reset,
    /// Is answered with host unreachable.
    HostUnreachable,
    /// Is answered with no route.
    NetUnreachable,
    /// Is answered with administratively prohibited.
    Prohibited,
    /// Vanishes; the sender tries again.
    Drop,
}

/// What the caller must do, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect<R> {
    /// Send this verdict for this packet.
    Verdict(u32, Verdict),
    /// Nobody took it: close it with a reset.
    Discard(R),
}

/// A first SYN as the queue delivers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// 4-tuple.
    pub key: Key,
    /// Initial sequence number.
    pub isn: u32,
    /// The kernel's id of the held packet.
    pub packet: u32,
    /// Whose it is: any number that is unique for a live network.
    pub network: u64,
}

/// What a SYN led to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A copy of a known one: nothing to do but the effects.
    Known,
    /// A new attempt, held under this serial: decide, dial, then settle.
    New(u64),
}
