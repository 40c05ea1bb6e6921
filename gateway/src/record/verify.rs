//! Verification: walks every line and compares the chain with every signed statement about it.
//!
//! Finds a changed byte, a cut, an appended, removed or re-ordered line or segment, and a head, checkpoint or anchor
//! that does not agree. Reads only; a journal that is being written verifies as well.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::anchors;
use super::chain::{self, Position};
use super::head::{About, Statement};
use super::keep::{CHECKPOINT, HEAD};
use super::segment::{self, Lines};

/// Findings listed; a thoroughly damaged journal needs no longer list.
const FINDINGS: usize = 100;

/// What kind of damage.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The bytes of a line do not have the hash that it claims.
    Changed,
    /// A line is no journal line at all.
    Malformed,
    /// Lines are missing or stand in another order.
    Broken,
    /// The end is missing: a signed statement covers lines that are not there.
    Cut,
    /// The beginning is missing without a signed checkpoint.
    Beheaded,
    /// A signed statement names another hash for a line.
    Replaced,
    /// A statement's signature does not hold, or is by another key.
    Signature,
    /// Lines stand behind a clean end, after which the gateway wrote none.
    Appended,
}

/// One piece of damage.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// What kind.
    pub kind: Kind,
    /// File, and line number in it where one is meant.
    pub place: String,
    /// Number of the line that was expected or claimed.
    pub seq: u64,
    /// In words.
    pub message: String,
}

/// What verification found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Segments read.
    pub segments: usize,
    /// Lines read.
    pub lines: u64,
    /// Number of the first line kept.
    pub first: Option<u64>,
    /// Number of the last.
    pub last: Option<u64>,
    /// Hash of the last.
    pub head: Option<String>,
    /// Anchors that agreed with a line.
    pub anchors: usize,
    /// Lines after the last signed statement: written in the last second, or by somebody without the key.
    pub unsigned: u64,
    /// Losses that the journal itself states (number of the line, milliseconds).
    pub gaps: Vec<(u64, u64)>,
    /// Public key that signed, in hex.
    pub key: Option<String>,
    /// Damage; empty if all is well.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing is wrong (stated gaps are not damage).
    pub fn ok(&self) -> bool {
        self.findings.is_empty()
    }

    pub(super) fn find(
        &mut self,
        kind: Kind,
        place: impl Into<String>,
        seq: u64,
        message: impl Into<String>,
    ) {
        if self.findings.len() < FINDINGS {
            self.findings.push(Finding {
                kind,
                place: place.into(),
                seq,
                message: message.into(),
            });
        }
    }
}

/// Verifies a journal against its own statements and the anchors beside its folder.
pub fn verify(dir: &Path) -> io::Result<Report> {
    let anchors = dir.parent().unwrap_or(dir).join("anchors.jsonl");
    verify_against(dir, &anchors, None)
}

/// Verifies against anchors kept elsewhere (also as a syslog daemon wrote them down), and a public key (hex) that must
/// have signed.
pub fn verify_against(dir: &Path, anchors: &Path, key: Option<&str>) -> io::Result<Report> {
    let mut report = Report {
        key: key.map(str::to_owned),
        ..Report::default()
    };
    let mut stated = Stated::default();
    // The head is read before the lines: a journal that is being written is then never behind its head.
    for (name, about) in [(HEAD, "head"), (CHECKPOINT, "checkpoint")] {
        match Statement::read(&dir.join(name)) {
            Ok(Some(statement)) => stated.take(&mut report, name, &statement),
            Ok(None) if name == HEAD => {
                report.find(Kind::Signature, name, 0, "there is no signed head");
            }
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                report.find(
                    Kind::Signature,
                    name,
                    0,
                    format!("the {about} cannot be read"),
                );
            }
            Err(error) => return Err(error),
        }
    }
    anchors::read(anchors, key, &mut report, &mut stated)?;
    let end = walk(dir, &mut report, &mut stated)?;
    report.last = (end.seq > 0).then_some(end.seq);
    report.head = (end.seq > 0).then(|| end.link.to_string());
    ends(&mut report, &stated, end);
    Ok(report)
}

/// Compares where the lines end with where statements say that they do.
fn ends(report: &mut Report, stated: &Stated, end: Position) {
    let newest = stated.positions.iter().next_back();
    report.unsigned = end.seq.saturating_sub(newest.map_or(0, |(seq, _)| *seq));
    if let Some((seq, (_, place))) = newest.filter(|(seq, _)| **seq > end.seq) {
        report.find(
            Kind::Cut,
            place.clone(),
            *seq,
            format!(
                "lines up to {seq} were signed, the journal ends at {}",
                end.seq
            ),
        );
    }
    if let Some(clean) = stated.clean_end.filter(|clean| end.seq > clean.seq) {
        let message = format!(
            "the gateway ended at line {}, lines up to {} stand behind it",
            clean.seq, end.seq
        );
        report.find(Kind::Appended, HEAD, clean.seq + 1, message);
    }
}

/// What signed statements say, by line number.
#[derive(Debug, Default)]
pub(super) struct Stated {
    positions: BTreeMap<u64, (Position, String)>,
    checkpoint: Option<Position>,
    /// The head says that the gateway ended cleanly here.
    clean_end: Option<Position>,
}

impl Stated {
    pub(super) fn take(&mut self, report: &mut Report, place: &str, statement: &Statement) {
        let seq = statement.seq;
        let Some(position) = statement.position().filter(|_| statement.holds()) else {
            return report.find(Kind::Signature, place, seq, "the signature does not hold");
        };
        if *report.key.get_or_insert_with(|| statement.key.clone()) != statement.key {
            return report.find(Kind::Signature, place, seq, "signed by another key");
        }
        match statement.about {
            About::Checkpoint => self.checkpoint = Some(position),
            About::CleanEnd => self.clean_end = Some(position),
            About::Head => {}
        }
        if seq == 0 {
            return;
        }
        if let Some((other, at)) = self
            .positions
            .get(&seq)
            .filter(|(other, _)| *other != position)
        {
            let message = format!(
                "{at} and {place} name different hashes ({} and {})",
                other.link, position.link
            );
            report.find(Kind::Replaced, place, seq, message);
        }
        self.positions.insert(seq, (position, place.to_owned()));
    }
}

/// Walks all lines; returns where the chain ends.
fn walk(dir: &Path, report: &mut Report, stated: &mut Stated) -> io::Result<Position> {
    let mut at: Option<Position> = None;
    let segments = segment::list(dir)?;
    for (nth, segment) in segments.iter().enumerate() {
        report.segments += 1;
        let name = segment
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut lines = Lines::open(&segment.path, 0)?;
        let mut number = 0_u64;
        while let Some(line) = lines.next_line()? {
            number += 1;
            report.lines += 1;
            let place = || format!("{name} line {number}");
            let expected = at.map_or(0, |p| p.seq) + 1;
            let Some(parsed) = chain::parse(line) else {
                report.find(Kind::Malformed, place(), expected, "not a journal line");
                continue;
            };
            if parsed.hash != parsed.computed {
                report.find(
                    Kind::Changed,
                    place(),
                    parsed.seq,
                    "the line's bytes do not have the hash that it claims",
                );
            }
            match at {
                None => begin(report, stated, &parsed, &place()),
                Some(p) if parsed.seq != p.seq + 1 => {
                    report.find(
                        Kind::Broken,
                        place(),
                        expected,
                        format!("line {expected} should stand here, it is {}", parsed.seq),
                    );
                }
                Some(p) if parsed.prev != p.link => {
                    report.find(
                        Kind::Broken,
                        place(),
                        parsed.seq,
                        "the line does not follow the one before",
                    );
                }
                Some(_) => {}
            }
            compare(report, stated, &parsed);
            if let Some(window) = gap(line) {
                report.gaps.push((parsed.seq, window));
            }
            at = Some(parsed.position());
        }
        // Half a line at the very end is being written, unless nobody writes any more.
        let writing = nth + 1 == segments.len() && stated.clean_end.is_none();
        if !writing && lines.offset() != std::fs::metadata(&segment.path)?.len() {
            let seq = at.map_or(0, |p| p.seq) + 1;
            report.find(
                Kind::Malformed,
                name,
                seq,
                "bytes after the last whole line",
            );
        }
    }
    Ok(at.or(stated.checkpoint).unwrap_or(Position::ORIGIN))
}

fn begin(report: &mut Report, stated: &Stated, first: &chain::Parsed, place: &str) {
    report.first = Some(first.seq);
    let start = stated.checkpoint.unwrap_or(Position::ORIGIN);
    // A crash between checkpoint and removal leaves a segment that the checkpoint already covers.
    let covered = first.seq <= start.seq && (first.seq > 1 || first.prev == Position::ORIGIN.link);
    if !covered && (first.seq != start.seq + 1 || first.prev != start.link) {
        let message = format!(
            "the journal begins at line {}, it should begin at {}",
            first.seq,
            start.seq + 1
        );
        report.find(Kind::Beheaded, place, start.seq + 1, message);
    }
}

fn compare(report: &mut Report, stated: &Stated, line: &chain::Parsed) {
    let Some((position, place)) = stated.positions.get(&line.seq) else {
        return;
    };
    if *position != line.position() || line.hash != line.computed {
        let message = format!("line {} is not the one that was signed", line.seq);
        report.find(Kind::Replaced, place.clone(), line.seq, message);
    } else if place.starts_with("anchors") {
        report.anchors += 1;
    }
}

fn gap(line: &str) -> Option<u64> {
    // Cheap test first: gaps are rare and most of the time goes into hashing.
    line.contains("\"kind\":\"gap\"").then_some(())?;
    match serde_json::from_str::<super::Line>(line).ok()?.entry {
        super::Entry::Gap { window_ms } => Some(window_ms),
        _ => None,
    }
}
