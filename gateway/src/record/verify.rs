//! Verification: walks every line and compares the chain with every signed statement about it.
//!
//! Finds a changed byte, a cut, an appended, removed or re-ordered line or segment, and a head, checkpoint or anchor
//! that does not agree. Reads only; a journal that is being written verifies as well. [`verify_against`] reads a folder;
//! whoever has lines and statements from elsewhere gives them to a [`Verifier`], statements first.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::anchors::{self, Found};
use super::chain::{self, Position};
use super::head::{About, Statement};
use super::keep::{CHECKPOINT, HEAD};
use super::segment::{self, Lines, Segment};

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
    /// A statement's signature does not hold, or is by another key than the others'.
    Signature,
    /// A statement is by another key than the one that must have signed.
    Foreign,
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
    /// Whether all that is wrong is that somebody else signed.
    pub fn is_foreign(&self) -> bool {
        !self.ok() && self.findings.iter().all(|f| f.kind == Kind::Foreign)
    }

    /// Whether nothing is wrong (stated gaps are not damage).
    pub fn ok(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, kind: Kind, place: impl Into<String>, seq: u64, message: impl Into<String>) {
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
/// have signed. A folder in which nothing is a journal's, and about which nothing is stated, is an error and not a
/// finding.
pub fn verify_against(dir: &Path, anchors: &Path, key: Option<&str>) -> io::Result<Report> {
    let mut verifier = Verifier::new(key);
    // The head is read before the lines: a journal that is being written is then never behind its head.
    for name in STATEMENTS {
        match std::fs::read(dir.join(name)) {
            Ok(bytes) => verifier.statement(name, &bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    verifier.anchors(anchors)?;
    let segments = segment::list(dir)?;
    if segments.is_empty() && verifier.is_silent() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "it holds no journal",
        ));
    }
    walk(&segments, &mut verifier)?;
    Ok(verifier.finish())
}

/// Files beside the segments that hold one signed statement each.
pub const STATEMENTS: [&str; 2] = [HEAD, CHECKPOINT];

/// Takes statements, then lines, and compares.
#[derive(Debug)]
pub struct Verifier {
    report: Report,
    stated: Stated,
    /// Whether a key was named that must have signed.
    key_named: bool,
    at: Option<Position>,
}

impl Verifier {
    /// Knows nothing yet; with a key (hex) that must have signed, if one is named.
    pub fn new(key: Option<&str>) -> Self {
        Self {
            report: Report {
                key: key.map(str::to_owned),
                ..Report::default()
            },
            stated: Stated::default(),
            key_named: key.is_some(),
            at: None,
        }
    }

    /// Whether nothing was stated, neither right nor wrong.
    fn is_silent(&self) -> bool {
        !self.stated.head && self.stated.positions.is_empty() && self.report.ok()
    }

    /// One of [`STATEMENTS`], as it stands in its file.
    pub fn statement(&mut self, name: &str, bytes: &[u8]) {
        self.stated.head |= name == HEAD;
        // An empty file is damage as well, not the end of something that is still being read.
        if let Ok(statement) = serde_json::from_slice::<Statement>(bytes) {
            self.take(name, &statement);
        } else {
            let message = format!("the {} cannot be read", name.trim_end_matches(".json"));
            self.report.find(Kind::Signature, name, 0, message);
        }
    }

    /// A file of anchors; one that is not there holds none.
    pub fn anchors(&mut self, path: &Path) -> io::Result<()> {
        anchors::read(path, &mut |number, line| self.anchor(number, line))
    }

    /// A line of a file of anchors.
    ///
    /// A syslog file may hold the anchors of several gateways: with a key they are told apart, without one an anchor by
    /// another key is a finding, because a journal made anew under a new key would look the same.
    pub fn anchor(&mut self, number: u64, line: &str) {
        let place = format!("anchors line {number}");
        match anchors::anchor_in(line) {
            Found::Anchor(statement) => {
                let others = self.key_named
                    && self.report.key.as_ref() != Some(&statement.key)
                    && !line.starts_with('{');
                if !others {
                    self.take(&place, &statement);
                }
            }
            Found::Damaged => {
                self.report
                    .find(Kind::Signature, place, 0, "the anchor cannot be read");
            }
            Found::Nothing => {}
        }
    }

    fn take(&mut self, place: &str, statement: &Statement) {
        let seq = statement.seq;
        let Some(position) = statement.position().filter(|_| statement.holds()) else {
            let message = "the signature does not hold";
            return self.report.find(Kind::Signature, place, seq, message);
        };
        let key = self.report.key.get_or_insert_with(|| statement.key.clone());
        if *key != statement.key {
            let (kind, message) = if self.key_named {
                let message = format!("signed by {}, not by the key given", statement.key);
                (Kind::Foreign, message)
            } else {
                let message = format!("signed by {}, what came before by {key}", statement.key);
                (Kind::Signature, message)
            };
            self.stated.foreign_checkpoint |= statement.about == About::Checkpoint;
            // once for each key: a stranger's anchors are one finding, not one for each minute
            if self.stated.strangers.insert(statement.key.clone()) {
                self.report.find(kind, place, seq, message);
            }
            return;
        }
        self.stated
            .take(&mut self.report, place, statement, position);
    }

    /// The next line, without its newline, and where it stands.
    pub fn line(&mut self, line: &str, place: &dyn Fn() -> String) {
        let Self {
            report, stated, at, ..
        } = self;
        report.lines += 1;
        let expected = at.map_or(0, |p| p.seq) + 1;
        let Some(parsed) = chain::parse(line) else {
            let message = "not a journal line";
            return report.find(Kind::Malformed, place(), expected, message);
        };
        if parsed.hash != parsed.computed {
            let message = "the line's bytes do not have the hash that it claims";
            report.find(Kind::Changed, place(), parsed.seq, message);
        }
        match at {
            None => begin(report, stated, &parsed, &place()),
            Some(p) if parsed.seq != p.seq + 1 => {
                let message = format!("line {expected} should stand here, it is {}", parsed.seq);
                report.find(Kind::Broken, place(), expected, message);
            }
            Some(p) if parsed.prev != p.link => {
                let message = "the line does not follow the one before";
                report.find(Kind::Broken, place(), parsed.seq, message);
            }
            Some(_) => {}
        }
        compare(report, stated, &parsed);
        if let Some(window) = gap(line) {
            report.gaps.push((parsed.seq, window));
        }
        *at = Some(parsed.position());
    }

    /// What was found.
    pub fn finish(self) -> Report {
        let (mut report, stated) = (self.report, self.stated);
        let end = self.at.or(stated.checkpoint).unwrap_or(Position::ORIGIN);
        if !stated.head {
            report.find(Kind::Signature, HEAD, 0, "there is no signed head");
        }
        report.last = (end.seq > 0).then_some(end.seq);
        report.head = (end.seq > 0).then(|| end.link.to_string());
        ends(&mut report, &stated, end);
        report
    }
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
struct Stated {
    positions: BTreeMap<u64, (Position, String)>,
    /// Whether there was a head, whatever it was worth.
    head: bool,
    checkpoint: Option<Position>,
    /// The head says that the gateway ended cleanly here.
    clean_end: Option<Position>,
    /// Other keys that signed.
    strangers: BTreeSet<String>,
    foreign_checkpoint: bool,
}

impl Stated {
    fn take(
        &mut self,
        report: &mut Report,
        place: &str,
        statement: &Statement,
        position: Position,
    ) {
        let seq = statement.seq;
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

/// Walks all lines of all segments.
fn walk(segments: &[Segment], verifier: &mut Verifier) -> io::Result<()> {
    for (nth, segment) in segments.iter().enumerate() {
        verifier.report.segments += 1;
        let name = segment.path.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let mut lines = Lines::open(&segment.path, 0)?;
        let mut number = 0_u64;
        while let Some(line) = lines.next_line()? {
            number += 1;
            verifier.line(line, &|| format!("{name} line {number}"));
        }
        // Half a line at the very end is being written, unless nobody writes any more.
        let writing = nth + 1 == segments.len() && verifier.stated.clean_end.is_none();
        if !writing && lines.offset() != std::fs::metadata(&segment.path)?.len() {
            let seq = verifier.at.map_or(0, |p| p.seq) + 1;
            let message = "bytes after the last whole line";
            verifier.report.find(Kind::Malformed, name, seq, message);
        }
    }
    Ok(())
}

fn begin(report: &mut Report, stated: &Stated, first: &chain::Parsed, place: &str) {
    report.first = Some(first.seq);
    let start = stated.checkpoint.unwrap_or(Position::ORIGIN);
    // A crash between checkpoint and removal leaves a segment that the checkpoint already covers.
    let covered = first.seq <= start.seq && (first.seq > 1 || first.prev == Position::ORIGIN.link);
    // where the rest begins is then somebody else's word, which is a finding already
    let unknown = stated.checkpoint.is_none() && stated.foreign_checkpoint;
    if !covered && !unknown && (first.seq != start.seq + 1 || first.prev != start.link) {
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
