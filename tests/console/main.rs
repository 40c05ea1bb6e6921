//! The verbs that speak to a console, by the real binary: against a real console, and against everything that is none.

#![expect(
    clippy::indexing_slicing,
    reason = "an answer without the field is a failed test"
)]

mod files;
mod hostile;
mod interrupts;
mod jobs;
mod output;
mod secrets;
mod signing;
mod tokens;
mod world;
