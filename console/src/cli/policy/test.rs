//! `sallyport policy test`: runs the `tests:` of policy files and shows each line with what came of it.

use std::sync::Arc;

use ::console::jobs::expect::{destination, expected, found};
use clap::Args;
use netpolicy::addr::AddressBook;
use netpolicy::decide::{LayerKind, OwnListeners, Snapshot};
use netpolicy::explain::{Tested, run_tests};
use serde_json::{Value, json};

use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format, clean};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Policy files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// A floor above the policies (file or preset): the instance's first, then the workspace's; its tests run too
    #[arg(long, value_name = "FILE|PRESET")]
    floor: Vec<String>,
}

pub fn perform(arguments: &Arguments, format: Format) -> Verdict {
    let floors: Vec<_> = super::lints::floors(&arguments.floor)?
        .into_iter()
        .map(|(kind, policy)| (kind, Arc::new(policy)))
        .collect();
    let mut all = Vec::new();
    for file in &arguments.files {
        let mut layers = floors.clone();
        layers.push((LayerKind::Job, Arc::new(super::load(file)?)));
        let snapshot = Snapshot::new(
            layers,
            Arc::new(AddressBook::default()),
            Arc::new(OwnListeners::default()),
        );
        all.push((file, run_tests(&snapshot, gateway::context::now())));
    }
    let tests = all.iter().flat_map(|(_, tests)| tests);
    let failed = tests.clone().filter(|tested| !tested.passed).count();
    let total = tests.clone().count();
    match format {
        Format::Json => {
            let files: Vec<Value> = all
                .iter()
                .map(|(file, tests)| json!({ "file": file, "tests": tests.iter().map(tested_json).collect::<Vec<_>>() }))
                .collect();
            show::json(
                &json!({ "ok": failed == 0, "passed": total - failed, "failed": failed, "files": files }),
            )?;
        }
        Format::Text => {
            let rows: Vec<[String; 5]> = tests.map(row).collect();
            if !rows.is_empty() {
                show::out(show::table(
                    ["place", "to", "expected", "found", "result"],
                    rows,
                ))?;
            }
            all.iter()
                .filter(|(_, tests)| tests.is_empty())
                .try_for_each(|(file, _)| show::out(format_args!("{}: no tests", clean(file))))?;
            explain_failures(&all)?;
            show::out(format_args!("{} passed, {failed} failed", total - failed))?;
        }
    }
    Ok(if failed == 0 {
        Outcome::Good
    } else {
        Outcome::Negative
    })
}

/// What the policy says where it says something else than expected.
fn explain_failures(all: &[(&String, Vec<Tested>)]) -> Result<(), Failure> {
    let failed = all
        .iter()
        .flat_map(|(_, tests)| tests)
        .filter(|tested| !tested.passed);
    failed.into_iter().try_for_each(|tested| {
        show::out(format_args!(
            "{}: {}",
            clean(&tested.test.at.to_string()),
            clean(&tested.found.summary)
        ))
    })
}

fn row(tested: &Tested) -> [String; 5] {
    let result = if tested.passed { "pass" } else { "FAIL" };
    [
        tested.test.at.to_string(),
        destination(tested),
        expected(tested),
        found(tested),
        result.to_owned(),
    ]
}

fn tested_json(tested: &Tested) -> Value {
    let at = &tested.test.at;
    json!({
        "file": &*at.file,
        "line": at.line,
        "column": at.column,
        "layer": tested.layer.word(),
        "to": destination(tested),
        "expected": expected(tested),
        "found": tested.found,
        "passed": tested.passed,
    })
}
