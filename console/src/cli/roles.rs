//! `roles`.
use crate::exit::{Failure, Verdict};
use super::Shared;
#[derive(Debug, clap::Args)]
pub struct RunnerArguments {}
pub fn runner(_a: &RunnerArguments, _s: &Shared) -> Verdict { Err(Failure::new("soon")) }
