//! Reading the journal back: a cursor that is a line's number, so that a reader resumes where it was.
//!
//! Reads the files while they are written to; what is given out is exactly the bytes of whole lines.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::chain;
use super::segment::{self, Lines, Segment};

/// Reads lines after a cursor.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    after: u64,
    at: Option<(Segment, Lines)>,
}

impl Reader {
    /// Lines after this number; 0 begins with the oldest that is kept.
    pub fn open(dir: &Path, after: u64) -> io::Result<Self> {
        let mut at = None;
        for candidate in segment::list(dir)?.into_iter().rev() {
            let begins = segment::first(&candidate)?;
            at = Some(candidate);
            if begins.is_some_and(|(seq, _)| seq <= after + 1) {
                break;
            }
        }
        let at = at
            .map(|s| {
                let offset = segment::offset_of(&s, after)?;
                Lines::open(&s.path, offset).map(|lines| (s, lines))
            })
            .transpose()?;
        Ok(Self {
            dir: dir.to_owned(),
            after,
            at,
        })
    }

    /// Number of the last line given out.
    pub fn cursor(&self) -> u64 {
        self.after
    }

    /// The next line, without its newline; `None` when there is none yet.
    pub fn next_line(&mut self) -> io::Result<Option<String>> {
        loop {
            let Some((at, lines)) = &mut self.at else {
                let Some(first) = segment::list(&self.dir)?.into_iter().next() else {
                    return Ok(None);
                };
                let lines = Lines::open(&first.path, 0)?;
                self.at = Some((first, lines));
                continue;
            };
            while let Some(line) = lines.next_line()? {
                // A line that does not parse is given out too: whoever exports must see it.
                let seq = chain::parse(line).map(|p| p.seq);
                if seq.is_none_or(|seq| seq > self.after) {
                    let line = line.to_owned();
                    self.after = seq.unwrap_or(self.after);
                    return Ok(Some(line));
                }
            }
            let index = at.index;
            let Some(next) = segment::list(&self.dir)?
                .into_iter()
                .find(|s| s.index > index)
            else {
                return Ok(None);
            };
            // The writer may have finished this segment between the read above and the listing.
            if let Some(line) = lines.next_line()? {
                let line = line.to_owned();
                self.after = chain::parse(&line).map_or(self.after, |p| p.seq);
                return Ok(Some(line));
            }
            let fresh = Lines::open(&next.path, 0)?;
            self.at = Some((next, fresh));
        }
    }
}

/// Which lines to export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Since {
    /// Only lines after this number.
    pub seq: u64,
    /// Only lines from this time on, in milliseconds since the epoch.
    pub t: Option<i64>,
}

/// Writes lines as JSON Lines; returns the number of the last one (the cursor to go on from).
pub fn export(dir: &Path, since: Since, into: &mut impl Write) -> io::Result<u64> {
    let mut reader = Reader::open(dir, since.seq)?;
    while let Some(line) = reader.next_line()? {
        let early = since
            .t
            .is_some_and(|t| chain::parse(&line).is_some_and(|p| p.t < t));
        if !early {
            into.write_all(line.as_bytes())?;
            into.write_all(b"\n")?;
        }
    }
    into.flush()?;
    Ok(reader.cursor())
}
