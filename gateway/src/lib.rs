//! skeleton
pub mod kernel;
