//! How answers are printed: a table for people, JSON or YAML for programs.
//!
//! In all three nothing that a console says reaches a terminal unescaped; in JSON and YAML the escapes are those of the
//! format, so that programs read what was meant.

use std::fmt::Write;

use ::console::clock::Millis;
use clap::ValueEnum;
use serde_json::Value;

use super::yaml::yaml;
use crate::exit::Failure;
use crate::show;

/// A cell is no longer: what others name should not push everything else off the line.
const CELL: usize = 120;

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Form {
    /// For people
    Table,
    /// For programs
    Json,
    /// For both
    Yaml,
}

impl Form {
    /// Prints a value; `table` is what people see.
    pub fn print(self, value: &Value, table: impl FnOnce() -> String) -> Result<(), Failure> {
        match self {
            Self::Table => show::out(table()),
            Self::Json => show::out(safe(
                &serde_json::to_string_pretty(value)
                    .map_err(|error| Failure::from_error(&error))?,
            )),
            Self::Yaml => show::raw(&yaml(value)),
        }
    }

    /// Prints one of several values as they come.
    pub fn line(self, value: &Value, text: impl FnOnce() -> String) -> Result<(), Failure> {
        match self {
            Self::Table => show::out(text()),
            Self::Json => show::out(safe(&value.to_string())),
            Self::Yaml => show::raw(&format!("---\n{}", yaml(value))),
        }
    }
}

/// JSON text without characters that a terminal does something with: they are escaped as JSON has it.
pub fn safe(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && show::is_unsafe(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// A field as text; empty if it is not there.
pub fn text(value: &Value, key: &str) -> String {
    match value.get(key) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// A text of somebody else in a table, or in a message.
pub fn cell(text: &str) -> String {
    if text.chars().count() <= CELL {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(CELL).collect();
    short.push('…');
    short
}

/// A field with milliseconds since 1970 as a time of day, in UTC.
pub fn time(value: &Value, key: &str) -> String {
    let millis = value.get(key).and_then(Value::as_i64);
    let at = millis.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    at.map_or_else(
        || "-".to_owned(),
        |at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
    )
}

/// How long ago, in words.
pub fn ago(now: Millis, at: Option<Millis>) -> String {
    at.map_or_else(
        || "-".to_owned(),
        |at| format!("{} ago", span(now.saturating_sub(at))),
    )
}

/// A stretch of time in its largest unit.
pub fn span(millis: Millis) -> String {
    let seconds = millis.max(0) / 1000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_means_what_it_meant() {
        let value = serde_json::json!({ "name": "a\u{1b}]52;c;\u{7}\u{202e}\u{9b}b\u{7f}" });
        let shown = safe(&value.to_string());
        assert!(!shown.chars().any(show::is_unsafe), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }
}
