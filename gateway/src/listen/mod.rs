//! Doors: each turns one wire shape into questions for netpolicy and never decides itself.

pub mod dns;
