//! Anchors: the signed head, put where whoever rewrites the journal cannot reach it; and reading them back.
//!
//! An anchor is one signed statement. In `anchors.jsonl` it is a line of its own; in a syslog daemon's file it is the
//! end of a line, after whatever that daemon puts before a message. Refuses to own: when they are made (`keep`).

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::head::Statement;
use super::verify::{Kind, Report, Stated};

/// How every anchor begins; what stands before it on a line is the syslog daemon's.
const BEGIN: &str = "{\"about\":";

/// Takes the anchors of a file into account. A file that is not there holds none.
///
/// A syslog file may hold the anchors of several gateways: with a key they are told apart, without one an anchor by
/// another key is a finding, because a journal made anew under a new key would look the same.
pub(super) fn read(
    path: &Path,
    key: Option<&str>,
    report: &mut Report,
    stated: &mut Stated,
) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut lines = BufReader::new(file);
    let (mut line, mut number) = (Vec::new(), 0_u64);
    while lines.read_until(b'\n', &mut line)? > 0 {
        number += 1;
        let text = String::from_utf8_lossy(&line);
        match anchor_in(&text) {
            Found::Anchor(statement) => {
                let others = key.is_some_and(|key| key != statement.key) && !text.starts_with('{');
                if !others {
                    stated.take(report, &format!("anchors line {number}"), &statement);
                }
            }
            Found::Damaged => {
                let place = format!("anchors line {number}");
                report.find(Kind::Signature, place, 0, "the anchor cannot be read");
            }
            Found::Nothing => {}
        }
        line.clear();
    }
    Ok(())
}

enum Found {
    Anchor(Box<Statement>),
    Damaged,
    /// Another program's message.
    Nothing,
}

fn anchor_in(line: &str) -> Found {
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
