//! `sallyport policy check`: every mistake of every file, then what is understood but not enforced.

use std::path::PathBuf;

use netpolicy::document::{self, Mistake};
use netpolicy::policy::Policy;
use serde_json::{Value, json};

use super::{mistake_json, read};
use crate::exit::{Outcome, Verdict};
use crate::show::{self, Format, clean};

pub fn perform(files: &[PathBuf], format: Format) -> Verdict {
    let mut reports = Vec::new();
    let mut wrong = false;
    for path in files {
        let name = path.display().to_string();
        let parsed = match read(path) {
            Ok(bytes) => document::parse_bytes(&name, &bytes, None),
            // a file that cannot be read is one bad file among several, not the end of the check
            Err(failure) if files.len() > 1 => Err(vec![unreadable(&name, failure.message)]),
            Err(failure) => return Err(failure),
        };
        wrong |= parsed.is_err();
        match format {
            Format::Json => reports.push(report(&name, &parsed)),
            Format::Text => print(&name, &parsed)?,
        }
    }
    if format == Format::Json {
        show::json(&json!({ "ok": !wrong, "files": reports }))?;
    }
    Ok(if wrong {
        Outcome::Negative
    } else {
        Outcome::Good
    })
}

fn unreadable(name: &str, message: String) -> Mistake {
    let at = netpolicy::policy::Place {
        file: name.into(),
        line: 1,
        column: 1,
    };
    Mistake {
        at,
        message,
        hint: None,
    }
}

fn print(name: &str, parsed: &Result<Policy, Vec<Mistake>>) -> Result<(), crate::exit::Failure> {
    match parsed {
        Err(mistakes) => mistakes
            .iter()
            .try_for_each(|m| show::out(clean(&m.to_string()))),
        Ok(policy) => {
            show::out(format_args!(
                "{}: ok, policy `{}`",
                clean(name),
                clean(&policy.name)
            ))?;
            policy.unenforced.iter().try_for_each(|(feature, at)| {
                show::out(format_args!(
                    "{}: note: {} is not enforced yet, a run under this policy is refused",
                    at,
                    clean(feature)
                ))
            })
        }
    }
}

fn report(name: &str, parsed: &Result<Policy, Vec<Mistake>>) -> Value {
    match parsed {
        Err(mistakes) => {
            json!({ "file": name, "ok": false, "mistakes": mistakes.iter().map(mistake_json).collect::<Vec<_>>() })
        }
        Ok(policy) => {
            let notes: Vec<Value> = policy
                .unenforced
                .iter()
                .map(|(feature, at)| json!({ "feature": feature, "line": at.line, "column": at.column }))
                .collect();
            json!({
                "file": name,
                "ok": true,
                "mistakes": [],
                "policy": policy.name,
                "hash": policy.hash,
                "not_enforced_yet": notes,
            })
        }
    }
}
