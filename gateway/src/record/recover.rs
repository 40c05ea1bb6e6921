//! Finding the writing end again: after a clean end, a crash, or someone's work on the files.
//!
//! A torn tail (lines after the last signed head that do not fit the chain) is cut. A line that does not fit although
//! the signed head covers it was changed, not torn: that segment is left as evidence and the chain goes on after the
//! head in a new one. So are lines that somebody wrote behind a clean end.

use std::io;
use std::path::Path;

use super::chain::{self, Position};
use super::head::{About, Statement};
use super::keep::{CHECKPOINT, HEAD, SYNC};
use super::segment::{self, Lines, Segment};
use crate::context::now_ms;

/// Where writing goes on.
#[derive(Debug)]
pub struct Found {
    /// Segment to write to.
    pub index: u64,
    /// Its last line.
    pub position: Position,
    /// How many milliseconds of entries may be missing, after an unclean end.
    pub lost_ms: Option<u64>,
}

/// Finds the writing end of a journal.
pub fn recover(dir: &Path) -> io::Result<Found> {
    let head = signed(dir, HEAD)?;
    let covered = head.as_ref().and_then(Statement::position);
    let start = signed(dir, CHECKPOINT)?
        .and_then(|s| s.position())
        .unwrap_or(Position::ORIGIN);
    let segments = segment::list(dir)?;
    let Some(last) = segments.last() else {
        // Nothing there: either new, or everything was taken away; the head knows which.
        let position = covered.unwrap_or(start);
        let lost_ms = (position != start).then(|| window(head.as_ref()));
        return Ok(Found {
            index: 1,
            position,
            lost_ms,
        });
    };
    let before = last_line_before(&segments, last)?.unwrap_or(start);
    let (position, length, intact) = walk(last, before)?;
    let clean = head.as_ref().is_some_and(|h| h.about == About::CleanEnd)
        && covered == Some(position)
        && intact;
    let lost_ms = (!clean).then(|| window(head.as_ref()));
    if let Some(covered) = covered.filter(|c| c.seq > position.seq) {
        tracing::error!(
            head = covered.seq,
            found = position.seq,
            "the journal lacks lines that its signed head covers"
        );
        return Ok(Found {
            index: last.index + 1,
            position: covered,
            lost_ms,
        });
    }
    // Nobody but us writes, and nothing is torn after a clean end: what stands there is left for `verify` to find.
    let ended = head.as_ref().filter(|h| h.about == About::CleanEnd);
    if let (Some(_), Some(covered)) = (ended, covered)
        && (covered.seq < position.seq || !intact)
    {
        tracing::error!(
            head = covered.seq,
            "the journal was written to behind its clean end"
        );
        return Ok(Found {
            index: last.index + 1,
            position: covered,
            lost_ms,
        });
    }
    if !intact {
        let file = std::fs::OpenOptions::new().write(true).open(&last.path)?;
        file.set_len(length)?;
        file.sync_all()?;
    }
    Ok(Found {
        index: last.index,
        position,
        lost_ms,
    })
}

/// A statement that holds; one that does not is as good as none, and is said so.
fn signed(dir: &Path, name: &str) -> io::Result<Option<Statement>> {
    let read = match Statement::read(&dir.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
        read => read.ok().flatten(),
    };
    if read.as_ref().is_some_and(|s| !s.holds()) {
        tracing::error!(
            statement = name,
            "a signed statement about the journal does not hold"
        );
        return Ok(None);
    }
    Ok(read)
}

/// What may be missing: everything since the last sync, or since the head where even that is gone.
fn window(head: Option<&Statement>) -> u64 {
    let least = u64::try_from(SYNC.as_millis()).unwrap_or(u64::MAX);
    head.map_or(least, |h| {
        least.max(u64::try_from(now_ms() - h.t).unwrap_or(0).min(least * 3600))
    })
}

/// The chain's position at the end of the segment before.
fn last_line_before(segments: &[Segment], last: &Segment) -> io::Result<Option<Position>> {
    let Some(before) = segments.iter().rev().find(|s| s.index < last.index) else {
        return Ok(None);
    };
    let mut lines = Lines::open(&before.path, 0)?;
    let mut position = None;
    while let Some(line) = lines.next_line()? {
        position = chain::parse(line).map(|p| p.position()).or(position);
    }
    Ok(position)
}

/// Walks a segment: the last line that fits, the length up to it, and whether that is all there is.
fn walk(segment: &Segment, before: Position) -> io::Result<(Position, u64, bool)> {
    let mut lines = Lines::open(&segment.path, 0)?;
    let (mut position, mut length) = (before, 0);
    while let Some(line) = lines.next_line()? {
        match chain::parse(line).filter(|p| p.follows(position)) {
            Some(parsed) => position = parsed.position(),
            None => return Ok((position, length, false)),
        }
        length = lines.offset();
    }
    Ok((
        position,
        length,
        length == std::fs::metadata(&segment.path)?.len(),
    ))
}
