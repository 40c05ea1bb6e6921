//! The uplink: the namespace the gateway was started in, its addresses and routes, and dialling from it.

pub mod follow;
