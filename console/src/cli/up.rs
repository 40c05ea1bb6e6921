//! `up`.
use crate::exit::{Failure, Verdict};
use super::Shared;
#[derive(Debug, clap::Args)]
pub struct Arguments {}
pub fn perform(_a: &Arguments, _s: &Shared) -> Verdict { Err(Failure::new("soon")) }
