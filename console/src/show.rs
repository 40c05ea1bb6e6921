//! Output: data to standard output (tables or JSON), words to standard error, control characters never.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;

use comfy_table::{ContentArrangement, Table, presets};
use owo_colors::OwoColorize;
use serde::Serialize;

use crate::exit::Failure;

/// Whether a verb prints for people or for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Tables and sentences.
    Text,
    /// JSON; one document, or one a line where the verb streams.
    Json,
}

impl Format {
    /// From `--json`.
    pub fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Writes to standard output; a reader that went away (`| head`) is no failure.
pub fn out(text: impl Display) -> Result<(), Failure> {
    match writeln!(anstream::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Bytes as they are, to standard output.
pub fn raw(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// One JSON document, indented for people who look.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    out(serde_json::to_string_pretty(value).map_err(|e| Failure::from_error(&e))?)
}

/// One JSON document on one line.
pub fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    out(serde_json::to_string(value).map_err(|e| Failure::from_error(&e))?)
}

/// A remark on standard error. Nobody to read it is no failure.
pub fn note(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// What must not be overlooked, in red on standard error.
pub fn alert(text: &str) {
    note(clean(text).red().bold());
}

/// A failure on standard error, with what to do about it.
pub fn failure(failure: &Failure) {
    note(format_args!(
        "{} {}",
        "error:".red().bold(),
        clean(&failure.message)
    ));
    for detail in &failure.details {
        note(format_args!("  {}", clean(detail)));
    }
    if let Some(hint) = &failure.hint {
        note(format_args!("{} {}", "hint:".cyan().bold(), clean(hint)));
    }
}

/// A table without frames, which `cut` and eyes both read.
pub fn table<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.map(str::to_uppercase));
    for row in rows {
        table.add_row(row.map(|cell| clean(&cell).into_owned()));
    }
    let flush = |line: String| {
        // cells have a space on either side; an empty first cell keeps its room, or its heading stands beside its column
        let line = line.strip_prefix(' ').unwrap_or(&line);
        line.trim_end().to_owned()
    };
    let lines: Vec<String> = table.lines().map(flush).collect();
    lines.join("\n")
}

/// Whether a terminal would do something else with it than show it: control characters, and those that turn the
/// direction of a line or take no room, which make one name look like another.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Text that others may have chosen, with such characters escaped: it must not write to a terminal.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// A number with its noun, in the plural where it is not one.
pub fn count(number: impl Into<Count>, noun: &str) -> String {
    let Count(number) = number.into();
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// A number of things.
#[derive(Clone, Copy, Debug)]
pub struct Count(u64);

impl From<u64> for Count {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<usize> for Count {
    fn from(number: usize) -> Self {
        Self(u64::try_from(number).unwrap_or(u64::MAX))
    }
}

/// Bytes in units that people read.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count, 0);
    let mut rest = 0;
    while value >= 1024 && unit + 1 < UNITS.len() {
        rest = value % 1024 * 10 / 1024;
        value /= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or("B");
    if unit == 0 {
        format!("{value} {name}")
    } else {
        format!("{value}.{rest} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_never_reach_a_terminal() {
        assert_eq!(
            clean("a\u{1b}]52;c;\u{7}\u{9b}b\nc"),
            "a\\u{1b}]52;c;\\u{7}\\u{9b}b\\nc"
        );
        assert_eq!(clean("plain ü text"), "plain ü text");
        assert_eq!(clean("a\u{202e}b\u{200b}"), "a\\u{202e}b\\u{200b}");
        assert!(!table(["x"], [["a\u{1b}[31m".to_owned()]]).contains('\u{1b}'));
    }

    #[test]
    fn a_heading_stands_above_its_column_also_beside_empty_cells() {
        let shown = table(
            ["", "b", "c"],
            [["one", "", "x"], ["", "two", "y"]].map(|row| row.map(str::to_owned)),
        );
        let lines: Vec<&str> = shown.lines().collect();
        let column = |line: &str, word: &str| line.find(word);
        assert_eq!(column(lines[0], "B"), column(lines[2], "two"), "{shown}");
        assert_eq!(column(lines[0], "C"), column(lines[1], "x"), "{shown}");
        assert!(lines[1].starts_with("one"), "{shown}");
    }

    #[test]
    fn byte_counts_read_well() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1536), bytes(1 << 30)],
            ["0 B", "1023 B", "1.5 KiB", "1.0 GiB"]
        );
    }
}
