//! What the client's first bytes are: a TLS ClientHello, an HTTP/1 request head, or something else.
//!
//! Parsers here are total: every byte sequence gives an answer, nothing panics, memory is bounded, and the work is
//! linear in the bytes however they are cut into segments. They read and never change: the bytes inspected are the
//! bytes forwarded. Refuses to own: decisions (netpolicy), reading sockets (relay). Failure stance: what could be read
//! in two ways is malformed.

pub mod chunked;
pub mod hello;
pub mod http;
pub mod quic;
mod sniff;
mod wire;

pub use hello::{Hello, HelloReader};
pub use http::{Head, HeadReader};
#[cfg(test)]
mod tests;

pub use sniff::{Language, Seen, Sight, Sniffer};
