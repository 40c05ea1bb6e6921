//! The fence: what the namespace and the kernel rules promise, whatever the policy says.
//!
//! Modules called `denials` hold attacks that must leak through a plain forwarder (`LAB_PLAIN=1`).

mod denials;
mod filter;
mod iptables;
mod kernels;
mod member_forgeries;
mod members;
mod permits;
mod races;
mod selftest;
mod shares;
mod survives;
mod turns;
