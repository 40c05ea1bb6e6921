//! Jobs as people write them: what runs, under which network, when, and what follows a failure.
//!
//! Owns the JSON form ([`spec`]), what is wrong with one ([`check`]), the policy that its network setting means and what
//! that reaches ([`network`], [`reach`]), when a schedule is due ([`schedule`]) and who starts it then ([`timely`]). Refuses to own rows
//! ([`crate::store`]), decisions (netpolicy) and who may ([`crate::access`]).

pub mod check;
pub mod expect;
pub mod network;
pub mod past;
pub mod reach;
pub mod schedule;
pub mod spec;
pub mod timely;
pub mod work;
