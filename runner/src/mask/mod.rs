//! Values of a run's secrets are no part of what it prints: stars are, before anything leaves the runner.
//!
//! Owns which values and forms are looked for ([`forms`]) and how streams are ([`scan`]). Each of the two outputs is
//! looked at alone and both together as they are kept, so a value that is printed in two writes, or half to each output,
//! is found. What could become a value waits for what follows, for [`PATIENCE`]. Invariants: 64 KiB wait at most, and an
//! automaton has a bounded size; the time is that of reading. Failure stance: secrets that are too large to be
//! looked for even as they are fail the run; what is looked for in fewer forms, or is too short, is said.

mod forms;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::time::Instant;

use self::scan::{Patterns, Piece, Scan};

pub use self::forms::LEAST;

/// Bytes of all patterns together; an automaton takes some twenty times as much.
const MOST: usize = 1 << 20;

/// How long output that may be the beginning of a value waits for the rest.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The secrets of this run are too large to be found in its output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the secrets have more than {MOST} bytes together: they could not be masked in its output")]
pub struct TooLarge;

/// What is not masked, or not in every form: the names of the secrets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Left {
    /// They are shorter than [`LEAST`] bytes.
    pub short: Vec<String>,
    /// Some of their lines are: those are masked as parts of the whole only.
    pub lines: Vec<String>,
    /// They are looked for as they are, not encoded: all forms together would be too large.
    pub plain: Vec<String>,
}

impl Left {
    /// Whether everything is masked.
    pub const fn is_nothing(&self) -> bool {
        self.short.is_empty() && self.lines.is_empty() && self.plain.is_empty()
    }
}

/// Masks what a run prints and what is said about it.
#[derive(Clone)]
pub struct Mask {
    patterns: Option<Arc<Patterns>>,
}

impl Mask {
    /// Of secrets, by name; what it leaves is said with it.
    pub fn new(secrets: &BTreeMap<String, String>) -> Result<(Self, Left), TooLarge> {
        let mut left = Left::default();
        let mut patterns = BTreeSet::new();
        for (name, value) in secrets {
            let plain = forms::plain(value);
            if plain.is_empty() {
                left.short.push(name.clone());
            } else if forms::has_short_lines(value) {
                left.lines.push(name.clone());
            }
            patterns.extend(plain);
        }
        let mut size: usize = patterns.iter().map(Vec::len).sum();
        if size > MOST {
            return Err(TooLarge);
        }
        for (name, value) in secrets {
            // at most some forty forms: a large value is not even written in them
            let encoded = if value.len() > MOST / 16 {
                None
            } else {
                let encoded = forms::encoded(value);
                let more: usize = encoded.iter().map(Vec::len).sum();
                (size + more <= MOST).then_some((encoded, more))
            };
            match encoded {
                Some((encoded, more)) => {
                    size += more;
                    patterns.extend(encoded);
                }
                None => left.plain.push(name.clone()),
            }
        }
        let all: Vec<Vec<u8>> = patterns.into_iter().collect();
        let patterns = if all.is_empty() {
            None
        } else {
            Some(Arc::new(Patterns::new(&all).ok_or(TooLarge)?))
        };
        Ok((Self { patterns }, left))
    }

    /// One that finds nothing: there are no secrets.
    pub const fn none() -> Self {
        Self { patterns: None }
    }

    /// For the two outputs of a run.
    pub fn streams(&self) -> Streams {
        Streams {
            scan: self.patterns.clone().map(|patterns| {
                let scan = Scan::new(&patterns);
                (patterns, scan)
            }),
            oldest: None,
        }
    }

    /// A text for people.
    pub fn text(&self, text: &str) -> String {
        let Some(patterns) = &self.patterns else {
            return text.to_owned();
        };
        let mut scan = Scan::new(patterns);
        let mut pieces = scan.push(patterns, false, text.as_bytes());
        pieces.extend(scan.release(patterns));
        let bytes: Vec<u8> = pieces.into_iter().flat_map(|(_, bytes)| bytes).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// All texts of a value.
    pub fn json(&self, value: &mut serde_json::Value) {
        match value {
            serde_json::Value::String(text) => *text = self.text(text),
            serde_json::Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            serde_json::Value::Object(fields) => {
                fields.values_mut().for_each(|field| self.json(field));
            }
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {
            }
        }
    }
}

/// The two outputs of a run, on their way.
pub struct Streams {
    scan: Option<(Arc<Patterns>, Scan)>,
    /// The byte that waits longest, and since when.
    oldest: Option<(u64, Instant)>,
}

/// What may go on: whether it is of standard error, and the bytes.
pub type Passed = Vec<(bool, Bytes)>;

impl Streams {
    /// Takes what was printed and gives what may go on of it and of what waited.
    pub fn take(&mut self, error: bool, data: Bytes) -> Passed {
        match &mut self.scan {
            Some((patterns, scan)) => passed(scan.push(patterns, error, &data)),
            None => vec![(error, data)],
        }
    }

    /// When what waits has waited for [`PATIENCE`], whatever came meanwhile; `None`: nothing waits.
    pub fn patient_until(&mut self, now: Instant) -> Option<Instant> {
        let oldest = self.scan.as_ref().and_then(|(_, scan)| scan.oldest());
        self.oldest = oldest.map(|oldest| match self.oldest {
            Some((same, since)) if same == oldest => (same, since),
            _ => (oldest, now),
        });
        self.oldest.map(|(_, since)| since + PATIENCE)
    }

    /// It has waited for [`PATIENCE`], or nothing more comes: gives what waited, without what is hardly there by chance.
    pub fn release(&mut self) -> Passed {
        let scan = self.scan.as_mut();
        scan.map(|(patterns, scan)| passed(scan.release(patterns)))
            .unwrap_or_default()
    }

    /// What comes next is dropped: of what waited, the beginning of a value does not go on.
    pub fn cut(&mut self) -> Passed {
        let scan = self.scan.as_mut();
        scan.map(|(patterns, scan)| passed(scan.cut(patterns)))
            .unwrap_or_default()
    }
}

fn passed(pieces: Vec<Piece>) -> Passed {
    pieces
        .into_iter()
        .map(|(error, bytes)| (error, bytes.into()))
        .collect()
}
