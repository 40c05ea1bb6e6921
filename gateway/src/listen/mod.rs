//! Doors: each turns one wire shape into questions for netpolicy and never decides itself.
//!
//! [`dns`] answers names; [`tcp`] takes what the kernel delivered transparently, paired with the first SYNs that
//! [`gate`] answered; [`udp`] takes datagrams and [`echo`] takes pings, as [`sessions`]; [`proxy`] speaks the explicit
//! proxy protocol. TCP doors end in [`flow`]: route, dial, decide bytes, relay, record. [`deny`] says no in the language
//! that the client spoke.

pub mod broker;
pub mod deny;
pub mod dns;
pub mod echo;
pub mod flow;
pub mod gate;
pub mod proxy;
mod record;
mod route;
mod sessions;
pub mod tcp;
pub mod udp;

pub use broker::serve_broker;
pub use echo::serve_echo;
pub use gate::{Gate, serve_gate};
pub use proxy::{PORT as PROXY_PORT, serve_proxy, serve_socket};
pub use tcp::serve_tcp;
pub use udp::serve_udp;
