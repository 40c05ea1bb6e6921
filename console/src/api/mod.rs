//! The API's resources, one file each: what is asked, what is answered, which rows of the store are read or written.
//!
//! A handler is reached only by who may (`server::guard`); it decides nothing about that.

pub mod about;
