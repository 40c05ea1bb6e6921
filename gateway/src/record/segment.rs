//! Segment files: their names, their order, their lines.
//!
//! `NNNNNNNN.jsonl`, numbered from 1. Owns reading; writing is the journal's alone.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::chain;

/// One segment file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Segment {
    /// Its number.
    pub index: u64,
    /// Where it is.
    pub path: PathBuf,
}

/// The path of a segment.
pub fn path(dir: &Path, index: u64) -> PathBuf {
    dir.join(format!("{index:08}.jsonl"))
}

/// All segments of a journal, oldest first; other files are left alone.
pub fn list(dir: &Path) -> io::Result<Vec<Segment>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let index = name
            .to_str()
            .and_then(|n| n.strip_suffix(".jsonl"))
            .and_then(|n| n.parse().ok());
        if let Some(index) = index {
            all.push(Segment {
                index,
                path: entry.path(),
            });
        }
    }
    all.sort();
    Ok(all)
}

/// Number and time of a segment's first line, if it has a whole one.
pub fn first(segment: &Segment) -> io::Result<Option<(u64, i64)>> {
    let mut lines = Lines::open(&segment.path, 0)?;
    Ok(lines
        .next_line()?
        .and_then(chain::parse)
        .map(|p| (p.seq, p.t)))
}

/// A line is looked for by reading on from here at the latest: less is not worth another seek.
const NEAR: u64 = 64 << 10;

/// Where in a segment to begin to read, so that no line after this number is missed and few before it are read: lines
/// are numbered in order, so halves are ruled out. A line that cannot be read rules nothing out.
pub fn offset_of(segment: &Segment, after: u64) -> io::Result<u64> {
    let mut file = BufReader::with_capacity(1 << 12, File::open(&segment.path)?);
    let (mut begin, mut end) = (0, file.get_ref().metadata()?.len());
    let mut line = Vec::new();
    while end.saturating_sub(begin) > NEAR {
        let middle = begin + (end - begin) / 2;
        file.seek(SeekFrom::Start(middle))?;
        line.clear();
        let rest = file.read_until(b'\n', &mut line)?;
        line.clear();
        file.read_until(b'\n', &mut line)?;
        let text = std::str::from_utf8(&line).ok();
        let number = text
            .and_then(|text| text.strip_suffix('\n'))
            .and_then(chain::parse)
            .map(|line| line.seq);
        match number {
            Some(number) if number <= after => begin = middle + rest as u64,
            _ => end = middle,
        }
    }
    Ok(begin)
}

/// Whole lines of one file.
#[derive(Debug)]
pub struct Lines {
    file: BufReader<File>,
    line: Vec<u8>,
    text: String,
    /// Byte offset behind the last whole line.
    offset: u64,
}

impl Lines {
    /// From a byte offset on.
    pub fn open(path: &Path, offset: u64) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(1 << 16, File::open(path)?);
        file.seek(SeekFrom::Start(offset))?;
        Ok(Self {
            file,
            line: Vec::new(),
            text: String::new(),
            offset,
        })
    }

    /// Byte offset behind the last whole line.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next whole line without its newline. `None` when there is none yet: ask again later, a line that is being
    /// written is never given out half. A line that is not UTF-8 comes as an empty text.
    pub fn next_line(&mut self) -> io::Result<Option<&str>> {
        self.file.read_until(b'\n', &mut self.line)?;
        if self.line.last() != Some(&b'\n') {
            // Half a line or none: read it again from its start.
            self.file.seek(SeekFrom::Start(self.offset))?;
            self.line.clear();
            return Ok(None);
        }
        self.offset += self.line.len() as u64;
        let whole = std::mem::take(&mut self.line);
        self.text = String::from_utf8(whole).unwrap_or_default();
        Ok(Some(self.text.trim_end_matches('\n')))
    }
}
