//! nf_tables: the ruleset lowered to the kernel's expressions, written through libnftnl, read back without it.
//!
//! Owns: the one table. [`lower`] says which kernel expressions a rule is; [`write`] hands them to libnftnl;
//! [`read`] parses a dump of the kernel into the same form with our own netlink code; [`check`] compares.
//! Refuses to own: which rules there are (netpolicy) and when they are applied (posture).

pub mod check;
pub mod lower;
pub mod read;
pub mod write;

mod ext;

pub use read::Counter;
