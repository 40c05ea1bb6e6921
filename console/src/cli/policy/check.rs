//! `sallyport policy check`: every mistake of every file; of files without one, what does nothing or more than it looks,
//! and what is understood but not enforced.

use std::path::PathBuf;

use clap::Args;
use netpolicy::document::{self, Mistake};
use netpolicy::lint::{self, Lint, Reading, Setting};
use netpolicy::policy::Policy;
use serde_json::{Value, json};

use super::{mistake_json, read};
use crate::exit::{Outcome, Verdict};
use crate::show::{self, Format, clean};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Policy files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Warnings make the answer no (exit code 1)
    #[arg(long)]
    deny_warnings: bool,
    /// A floor above the policies (file or preset): the instance's first, then the workspace's
    #[arg(long, value_name = "FILE|PRESET")]
    floor: Vec<String>,
    /// A file that adds hosts to the shipped list, or accepts warnings; repeat for several
    #[arg(long, value_name = "FILE")]
    lints: Vec<PathBuf>,
}

/// A policy without mistakes, and the warnings about it.
struct Checked {
    policy: Policy,
    lints: Vec<Lint>,
}

pub fn perform(arguments: &Arguments, format: Format) -> Verdict {
    let files = &arguments.files;
    let catalogue = super::lints::catalogue(&arguments.lints)?;
    let floors = super::lints::floors(&arguments.floor)?;
    let setting = Setting {
        now: gateway::context::now(),
        catalogue: &catalogue,
        floors: &floors,
    };
    let mut reports = Vec::new();
    let (mut wrong, mut warned) = (false, false);
    for path in files {
        let name = path.display().to_string();
        let parsed = match read(path) {
            Ok(bytes) => document::parse_bytes(&name, &bytes, None),
            // a file that cannot be read is one bad file among several, not the end of the check
            Err(failure) if files.len() > 1 => Err(vec![unreadable(&name, failure.message)]),
            Err(failure) => return Err(failure),
        };
        let parsed = parsed.map(|policy| {
            let lints = lint::check(&policy, &setting);
            Checked { policy, lints }
        });
        wrong |= parsed.is_err();
        warned |= parsed
            .as_ref()
            .is_ok_and(|checked| !checked.lints.is_empty());
        match format {
            Format::Json => reports.push(report(&name, &parsed)),
            Format::Text => print(&name, &parsed)?,
        }
    }
    wrong |= warned && arguments.deny_warnings;
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
        commit: None,
    };
    Mistake {
        at,
        message,
        hint: None,
    }
}

fn print(name: &str, parsed: &Result<Checked, Vec<Mistake>>) -> Result<(), crate::exit::Failure> {
    match parsed {
        Err(mistakes) => mistakes
            .iter()
            .try_for_each(|m| show::out(clean(&m.to_string()))),
        Ok(Checked { policy, lints }) => {
            lints
                .iter()
                .try_for_each(|lint| show::out(clean(&lint.to_string())))?;
            show::out(format_args!(
                "{}: ok, policy `{}`",
                clean(name),
                clean(&policy.name)
            ))?;
            lint::readings(policy).iter().try_for_each(|reading| {
                let Reading { at, host, shown } = reading;
                let note = format!("{at}: note: `{shown}` is enforced as `{host}`");
                show::out(clean(&note))
            })?;
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

fn report(name: &str, parsed: &Result<Checked, Vec<Mistake>>) -> Value {
    match parsed {
        Err(mistakes) => {
            json!({ "file": name, "ok": false, "mistakes": mistakes.iter().map(mistake_json).collect::<Vec<_>>() })
        }
        Ok(Checked { policy, lints }) => {
            let notes: Vec<Value> = policy
                .unenforced
                .iter()
                .map(|(feature, at)| json!({ "feature": feature, "line": at.line, "column": at.column }))
                .collect();
            let enforced: Vec<Value> = lint::readings(policy)
                .iter()
                .map(|Reading { at, host, shown }| {
                    json!({ "line": at.line, "column": at.column, "shown": shown, "host": host.to_string() })
                })
                .collect();
            json!({
                "file": name,
                "ok": true,
                "mistakes": [],
                "policy": policy.name,
                "hash": policy.hash,
                "warnings": lints.iter().map(lint_json).collect::<Vec<_>>(),
                "not_enforced_yet": notes,
                "enforced_as": enforced,
            })
        }
    }
}

fn lint_json(lint: &Lint) -> Value {
    json!({
        "code": lint.code.word(),
        "file": &*lint.at.file,
        "line": lint.at.line,
        "column": lint.at.column,
        "message": lint.message,
        "hint": lint.hint,
    })
}
