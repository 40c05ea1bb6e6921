//! Mistakes of an author: where, what, and what to write instead. All of them are collected; reading never stops at the
//! first.
//!
//! Text of the document appears in a message only escaped and cut: a policy file must not write to a terminal.

use std::sync::Arc;

use crate::policy::Place;

/// More than a person reads at once; a hostile document must not make a report of a gigabyte.
const MOST: usize = 100;

/// Longest piece of a document that a message repeats.
const QUOTE: usize = 60;

/// One mistake: place, what is wrong, and a hint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// Where.
    pub at: Place,
    /// What is wrong, lower case.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.at, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

/// The mistakes of one document so far.
#[derive(Debug)]
pub struct Mistakes {
    file: Arc<str>,
    found: Vec<Mistake>,
    more: usize,
}

impl Mistakes {
    /// No mistake yet in this file.
    pub fn new(file: &str) -> Self {
        Self {
            file: file.into(),
            found: Vec::new(),
            more: 0,
        }
    }

    /// The file that is being read.
    pub fn file(&self) -> &Arc<str> {
        &self.file
    }

    /// A place in the file.
    pub fn place(&self, line: usize, column: usize) -> Place {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).max(1);
        Place {
            file: Arc::clone(&self.file),
            line: number(line),
            column: number(column),
            commit: None,
        }
    }

    /// Notes a mistake that speaks for itself.
    pub fn add(&mut self, at: &Place, message: impl Into<String>) {
        self.push(Mistake {
            at: at.clone(),
            message: message.into(),
            hint: None,
        });
    }

    /// Notes a mistake with what to write instead.
    pub fn hint(&mut self, at: &Place, message: impl Into<String>, hint: impl Into<String>) {
        self.push(Mistake {
            at: at.clone(),
            message: message.into(),
            hint: Some(hint.into()),
        });
    }

    fn push(&mut self, mistake: Mistake) {
        if self.found.len() < MOST {
            self.found.push(mistake);
        } else {
            self.more += 1;
        }
    }

    /// How many were noted.
    pub fn count(&self) -> usize {
        self.found.len() + self.more
    }

    /// The value if there was no mistake, else all mistakes in the order of the document.
    pub fn finish<T>(mut self, value: Option<T>) -> Result<T, Vec<Mistake>> {
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => {
                self.found
                    .sort_by_key(|mistake| (mistake.at.line, mistake.at.column));
                if self.more > 0
                    && let Some(last) = self.found.last()
                {
                    let message = format!("{} more mistakes are not shown", self.more);
                    self.found.push(Mistake {
                        at: last.at.clone(),
                        message,
                        hint: None,
                    });
                }
                if self.found.is_empty() {
                    let at = self.place(1, 1);
                    self.found.push(Mistake {
                        at,
                        message: "the document cannot be read".into(),
                        hint: None,
                    });
                }
                Err(self.found)
            }
        }
    }
}

/// A piece of the document for a message: quoted, escaped, cut.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTE) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
    }
}

/// The candidate that was probably meant, if one is near enough.
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // longer texts are no misspelt words, and distance costs the product of the lengths
    if text.len() > 40 {
        return None;
    }
    let wanted = text.to_ascii_lowercase().replace('_', "-");
    let scored = candidates
        .into_iter()
        .map(|candidate| (distance(&wanted, &candidate.replace('_', "-")), candidate));
    let (distance, candidate) = scored.min_by_key(|(distance, _)| *distance)?;
    let near = distance <= 1 + candidate.len() / 5 && distance < candidate.len();
    near.then_some(candidate)
}

/// Edits (insert, delete, replace, swap neighbours) between two short texts.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, cb) in b.iter().enumerate() {
            let at = |row: &[usize], k: usize| row.get(k).copied().unwrap_or(usize::MAX / 2);
            let mut best = (at(&last, j) + usize::from(ca != cb))
                .min(at(&last, j + 1) + 1)
                .min(at(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(cb) && b.get(j - 1) == Some(ca);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_words_are_recognised_and_others_are_not() {
        let words = ["network", "names", "allow", "deny", "explain"];
        for (text, meant) in [
            ("netwrok", Some("network")),
            ("Network", Some("network")),
            ("alow", Some("allow")),
            ("alllow", Some("allow")),
            ("dney", Some("deny")),
            ("egress_filter", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, words), meant, "{text}");
        }
    }

    #[test]
    fn a_flood_of_mistakes_is_cut() {
        let mut mistakes = Mistakes::new("f");
        for line in 1..=1000 {
            let at = mistakes.place(line, 1);
            mistakes.add(&at, "wrong");
        }
        let shown = mistakes.finish(Some(())).unwrap_err();
        assert_eq!(shown.len(), MOST + 1);
        assert_eq!(
            shown.last().unwrap().message,
            "900 more mistakes are not shown"
        );
    }

    #[test]
    fn hostile_text_is_escaped_and_cut() {
        assert_eq!(quoted("a\u{1b}[31m"), r#""a\u{1b}[31m""#);
        assert!(quoted(&"x".repeat(1000)).chars().count() < 70);
    }
}
