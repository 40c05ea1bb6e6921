//! Jobs as people write them: what runs, under which network, when, and what follows a failure.
//!
//! Owns the JSON form ([`spec`]). Refuses to own rows ([`crate::store`]) and who may
//! ([`crate::access`]).

pub mod spec;
