//! Moves the bytes of flows that may be relayed, and mirrors how they end.
//!
//! [`pump`] moves one direction (small pieces through a scratch buffer of the thread, bulk by splice through a lent
//! pipe), [`stream`] runs both directions of a `tls` or `any` flow, [`http`] one request after the other, [`http2`] many at
//! a time. Nothing is
//! forwarded before `decide_bytes` minted its permit, and then exactly the bytes that were inspected. An idle flow holds
//! two descriptors and no buffer. FIN is passed on as FIN, a reset or time-out as a reset.

pub mod answer;
pub mod http;
pub mod http2;
mod lane;
pub mod pipes;
mod pump;
pub mod stream;

pub(crate) use answer::destination_text;
pub use answer::{Answer, Explain};
#[cfg(test)]
pub use lane::tests::SILENT;
pub use lane::{End, Lane, Notes, Refusal, Waits, Way, heard, plain_denial};
pub(crate) use pump::{reset, send};
pub use stream::Early;
pub(crate) use stream::read_more;
