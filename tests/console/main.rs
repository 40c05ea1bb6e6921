//! The verbs that speak to a console, by the real binary: against a real console, and against everything that is none.

mod hostile;
mod jobs;
mod output;
mod tokens;
mod world;
