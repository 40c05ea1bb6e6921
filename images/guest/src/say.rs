//! What people read. A reader that went away (`| head`), or an engine that closed the pipe, is no failure of this program:
//! the macros of the standard library panic there, and a panic of process 1 would end its sandbox.

use std::fmt::Display;
use std::io::Write;

/// A line to standard output.
pub fn out(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A line to standard error.
pub fn note(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
