//! skeleton
pub mod kernel;
pub mod uplink;
