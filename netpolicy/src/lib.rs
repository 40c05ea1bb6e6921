//! Policies, names, addresses and decisions of Sallyport, as pure functions.
//!
//! Owns: the canonical form of names ([`name`]) and the classes of addresses ([`addr`]), the grammar of policy
//! files ([`document`]), their checked meaning ([`policy`]), the two decisions ([`decide`]), why a decision came
//! out as it did ([`explain`]), what in a policy does nothing or more than it looks ([`lint`]),
//! what changes between two policies ([`diff`]), what
//! records say about one ([`replay`], [`learn`]), what people read about them ([`guide`]) and the kernel rules as
//! plain data ([`ruleset`]).
//!
//! Refuses to own: I/O, clocks, sockets, threads. Time and resolver answers are parameters. Nothing here is unsafe.
//!
//! The journey of a policy file: text -> `document` (spanned tree, every mistake at once) -> `policy` (checked
//! meaning) -> `decide::Snapshot` (layers that only narrow) -> `decide_connect` / `decide_bytes`.
#![forbid(unsafe_code)]

pub mod addr;
#[cfg(test)]
mod arbitrary;
pub mod decide;
pub mod diff;
pub mod document;
pub mod explain;
pub mod guide;
pub mod ids;
pub mod learn;
pub mod lint;
pub mod name;
pub mod policy;
pub mod reason;
pub mod replay;
pub mod ruleset;
pub mod time;
