//! `sallyport`: one binary, several roles (`gateway`, `runner`, `up`) and the verbs that people and scripts use.
//!
//! Owns: arguments, configuration, output, exit codes. Refuses to own: any decision; those are netpolicy's, the
//! gateway's and the runner's. Exit codes are a contract (`exit.rs`); data goes to standard output, words to standard
//! error, and nothing that a sandbox can influence reaches a terminal unescaped.

mod cli;
mod config;
mod engine;
mod exit;
mod show;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
