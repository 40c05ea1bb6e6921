//! YAML out of JSON, in the plain forms that `apply -f` reads again: no anchors, no tags, quotes wherever a reader could
//! take a text for something else.

use std::fmt::Write;

use serde_json::Value;

use super::print::safe;
use crate::show::is_unsafe;

/// Deeper values stand in one line, as JSON, which YAML is as well.
const DEEPEST: usize = 20;

/// A value as a document.
pub fn yaml(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => put(&mut text, value, 0),
        Value::Array(items) if !items.is_empty() => put(&mut text, value, 0),
        plain => {
            text.push_str(&scalar(plain));
            text.push('\n');
        }
    }
    text
}

fn put(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let _ = write!(text, "{indent}{}:", string(key));
                below(text, value, depth);
            }
        }
        Value::Array(items) => {
            for item in items {
                if item.as_object().is_some_and(|map| !map.is_empty()) && depth < DEEPEST {
                    let mut inner = String::new();
                    put(&mut inner, item, depth + 1);
                    let _ = write!(text, "{indent}- {}", inner.trim_start());
                } else {
                    let _ = write!(text, "{indent}-");
                    below(text, item, depth);
                }
            }
        }
        plain => {
            let _ = writeln!(text, "{indent}{}", scalar(plain));
        }
    }
}

/// What stands behind a key or a dash.
fn below(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if !map.is_empty() && depth < DEEPEST => {
            text.push('\n');
            put(text, value, depth + 1);
        }
        Value::Array(items) if !items.is_empty() && depth < DEEPEST => {
            text.push('\n');
            put(text, value, depth + 1);
        }
        Value::String(lines) if is_block(lines) => {
            let keep = if lines.ends_with('\n') { "|" } else { "|-" };
            let _ = writeln!(text, " {keep}");
            for line in lines.lines() {
                let indent = if line.is_empty() {
                    String::new()
                } else {
                    "  ".repeat(depth + 1)
                };
                let _ = writeln!(text, "{indent}{line}");
            }
        }
        plain => {
            let _ = writeln!(text, " {}", scalar(plain));
        }
    }
}

/// Whether lines can stand as they are.
fn is_block(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with([' ', '\n', '\t'])
        && !text.ends_with("\n\n")
        && !text
            .lines()
            .any(|line| line.ends_with([' ', '\r']) || line.starts_with('\t'))
        && !text.chars().any(|c| c != '\n' && is_unsafe(c))
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => string(text),
        other => safe(&other.to_string()),
    }
}

/// A text; without quotes where every reader takes it for a text.
fn string(text: &str) -> String {
    let plain = text.len() <= 100
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c))
        && ![
            "true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf",
        ]
        .contains(&text.to_ascii_lowercase().as_str());
    if plain {
        text.to_owned()
    } else {
        safe(&Value::from(text).to_string())
    }
}

#[cfg(test)]
mod tests {
    use netpolicy::document::Mistakes;
    use netpolicy::document::tree;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let value = json!({
            "name": "no", "plain": "a/b-c.d", "number": 7, "digits": "007", "none": [], "yes": true,
            "policy": "policy: p\nallow:\n  - host: a.example\n", "tail": "a\nb",
            "odd": "\u{1b}[2J\u{202e}\n: #", "list": [{ "a": 1, "b": ["x: y", "- z"] }, "s", { "c": {} }],
            "trail": "a \nb", "lead": "  a\nb", "a key: with": "x",
        });
        let text = yaml(&value);
        assert!(!text.chars().any(|c| c != '\n' && is_unsafe(c)), "{text}");
        let mut mistakes = Mistakes::new("x");
        let tree = tree::read(&text.replace("\"a key: with\"", "key"), &mut mistakes)
            .unwrap_or_else(|| panic!("{text}"));
        for key in ["name", "digits", "policy", "tail", "odd", "trail", "lead"] {
            assert_eq!(
                tree.field(key).and_then(|node| node.scalar()),
                value[key].as_str(),
                "{key}:\n{text}"
            );
        }
        assert_eq!(tree.field("list").unwrap().items().len(), 3, "{text}");
        assert_eq!(tree.field("name").unwrap().plain(), None);
    }
}
