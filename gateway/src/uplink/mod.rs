//! The outside: addresses of the machine followed live, and the only place that opens upstream connections.

pub mod datagrams;
pub mod dial;
pub mod echo;
pub mod follow;
pub mod here;
pub mod own;

pub use dial::Dialer;
pub use here::Here;
