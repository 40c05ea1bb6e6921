//! The outside: addresses of the machine followed live, and the only place that opens upstream connections.

pub mod dial;

pub use dial::Dialer;
