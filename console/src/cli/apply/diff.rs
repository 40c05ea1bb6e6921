//! What is different between a job of the console and its file, a line for each setting; texts of several lines by the
//! lines that differ.

use ::console::jobs::spec::JobSpec;
use serde_json::{Value, json};

use crate::cli::job::file::Job;
use crate::exit::Failure;

/// Lines of one text that are shown.
const SHOWN: usize = 40;

/// The settings that differ.
pub fn differences(was: &Value, job: &Job) -> Result<Vec<String>, Failure> {
    let spec = was
        .get("spec")
        .and_then(|spec| serde_json::from_value::<JobSpec>(spec.clone()).ok());
    let spec =
        spec.ok_or_else(|| Failure::new("the console answered with a job that cannot be read"))?;
    let enabled = was.get("enabled").and_then(Value::as_bool).unwrap_or(true);
    let mut lines = Vec::new();
    compare("enabled", &json!(enabled), &json!(job.enabled), &mut lines);
    compare("", &json!(spec), &json!(job.spec), &mut lines);
    Ok(lines)
}

fn compare(path: &str, was: &Value, is: &Value, lines: &mut Vec<String>) {
    if was == is {
        return;
    }
    match (was, is) {
        (Value::Object(before), Value::Object(after)) => {
            let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let below = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                let value = |map: &serde_json::Map<String, Value>| {
                    map.get(key).cloned().unwrap_or_default()
                };
                compare(&below, &value(before), &value(after), lines);
            }
        }
        (Value::String(before), Value::String(after))
            if before.contains('\n') || after.contains('\n') =>
        {
            lines.push(format!("{path}:"));
            texts(before, after, lines);
        }
        _ => lines.push(format!("{path}: {} -> {}", shown(was), shown(is))),
    }
}

/// The lines between what both begin with and what both end with.
fn texts(before: &str, after: &str, lines: &mut Vec<String>) {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = |one: &(&&str, &&str)| one.0 == one.1;
    let front = old.iter().zip(&new).take_while(same).count();
    let back = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(same)
        .count();
    let back = back.min(old.len().min(new.len()) - front);
    let middle = |all: &[&str], sign: char| -> Vec<String> {
        let inner = all.get(front..all.len() - back).unwrap_or_default();
        let mut told: Vec<String> = inner
            .iter()
            .take(SHOWN)
            .map(|line| format!("  {sign} {line}"))
            .collect();
        if inner.len() > SHOWN {
            told.push(format!("  {sign} … {} more lines", inner.len() - SHOWN));
        }
        told
    };
    lines.extend(middle(&old, '-'));
    lines.extend(middle(&new, '+'));
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_that_differs_is_a_line() {
        let mut lines = Vec::new();
        let was = json!({ "a": 1, "n": { "x": [1], "same": 2, "gone": true }, "t": "one\ntwo\nthree\nfour" });
        let is =
            json!({ "a": 1, "n": { "x": [1, 2], "same": 2, "new": "v" }, "t": "one\n2\nfour" });
        compare("", &was, &is, &mut lines);
        assert_eq!(
            lines,
            [
                "n.gone: true -> nothing",
                "n.new: nothing -> \"v\"",
                "n.x: [1] -> [1,2]",
                "t:",
                "  - two",
                "  - three",
                "  + 2"
            ]
        );
        let mut lines = Vec::new();
        texts("a\na\n", "a\na\na\n", &mut lines);
        assert_eq!(lines, ["  + a"]);
    }
}
