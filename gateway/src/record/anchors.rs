//! Anchors: the signed head, put where whoever rewrites the journal cannot reach it; and reading them back.
//!
//! An anchor is one signed statement. In `anchors.jsonl` it is a line of its own; in a syslog daemon's file it is the
//! end of a line, after whatever that daemon puts before a message. Refuses to own: when they are made (`keep`).

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::head::Statement;

/// How every anchor begins; what stands before it on a line is the syslog daemon's.
const BEGIN: &str = "{\"about\":";

/// Gives out every line of a file with its number, from 1. A file that is not there holds none.
pub(super) fn read(path: &Path, take: &mut dyn FnMut(u64, &str)) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut lines = BufReader::new(file);
    let (mut line, mut number) = (Vec::new(), 0_u64);
    while lines.read_until(b'\n', &mut line)? > 0 {
        number += 1;
        take(number, &String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(())
}

/// What a line is.
pub(super) enum Found {
    /// An anchor.
    Anchor(Box<Statement>),
    /// It was one.
    Damaged,
    /// Another program's message.
    Nothing,
}

/// Reads a line.
pub(super) fn anchor_in(line: &str) -> Found {
    let Some(text) = line.find(BEGIN).and_then(|at| line.get(at..)) else {
        // A line of its own that is no anchor was one; anything else in a syslog file is somebody else's.
        let own = line.starts_with('{');
        return if own { Found::Damaged } else { Found::Nothing };
    };
    match serde_json::from_str(text.trim_end()) {
        Ok(statement) => Found::Anchor(Box::new(statement)),
        Err(_) => Found::Damaged,
    }
}
