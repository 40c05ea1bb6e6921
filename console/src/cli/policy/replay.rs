//! `sallyport policy replay`: recorded flows under another policy, for people and for CI.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use netpolicy::addr::AddressBook;
use netpolicy::decide::{LayerKind, OwnListeners, Snapshot};
use netpolicy::replay::{Group, Replay, Report};
use serde_json::json;

use super::records::{self, Source, Summary};
use crate::cli::Shared;
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format, clean};

#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    source: Source,
    /// The policy: a file or a preset
    #[arg(long, value_name = "FILE|PRESET")]
    policy: String,
    /// A floor above it (file or preset): the instance's first, then the workspace's
    #[arg(long, value_name = "FILE|PRESET")]
    floor: Vec<String>,
    /// Which changes make the answer no (exit code 1)
    #[arg(long, value_enum, default_value_t = Fail::Any)]
    fail_on: Fail,
}

/// Which changes fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Fail {
    /// Whatever changes
    Any,
    /// Something is newly permitted
    NewlyPermitted,
    /// Something is newly denied, or asked about
    NewlyDenied,
    /// Nothing: changes are only shown
    Never,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    let floors = super::lints::floors(&arguments.floor)?.into_iter();
    let mut layers: Vec<_> = floors
        .map(|(kind, policy)| (kind, Arc::new(policy)))
        .collect();
    layers.push((LayerKind::Job, Arc::new(super::load(&arguments.policy)?)));
    let snapshot = Snapshot::new(
        layers,
        Arc::new(AddressBook::default()),
        Arc::new(OwnListeners::default()),
    );
    let mut replay = Replay::new(snapshot, gateway::context::now());
    let summary = records::read(&arguments.source, shared, &mut |contact, count, example| {
        replay.add(contact, count, example);
    })?;
    let report = replay.finish();
    let fails = fails(&report, arguments.fail_on);
    match shared.format() {
        Format::Json => show::json(&json!({
            "ok": !fails,
            "contacts": summary.contacts,
            "not_by_policy": summary.other,
            "report": report,
        }))?,
        Format::Text => print(&report, &summary)?,
    }
    Ok(if fails {
        Outcome::Negative
    } else {
        Outcome::Good
    })
}

fn fails(report: &Report, fail_on: Fail) -> bool {
    let denied = !report.newly_denied.is_empty() || !report.newly_asked.is_empty();
    match fail_on {
        Fail::Any => !report.is_same(),
        Fail::NewlyPermitted => !report.newly_permitted.is_empty() || report.unlisted > 0,
        Fail::NewlyDenied => denied || report.unlisted > 0,
        Fail::Never => false,
    }
}

fn print(report: &Report, summary: &Summary) -> Result<(), Failure> {
    for (title, groups) in [
        ("newly permitted", &report.newly_permitted),
        ("newly denied", &report.newly_denied),
        ("newly asked about", &report.newly_asked),
        (
            "undecided: the record does not hold what decides",
            &report.undecided,
        ),
    ] {
        if groups.is_empty() {
            continue;
        }
        let total: u64 = groups.iter().map(|group| group.count).sum();
        show::out(format_args!(
            "{title}: {}, {}",
            show::count(groups.len(), "destination"),
            show::count(total, "contact")
        ))?;
        groups
            .iter()
            .try_for_each(|group| show::out(clean(&line(group))))?;
    }
    if report.unlisted > 0 {
        show::out(format_args!(
            "{} more contacts change and are not listed",
            report.unlisted
        ))?;
    }
    let other: u64 = summary.other.values().sum();
    show::out(format_args!(
        "{}, {} decided as before; {other} denials and failures were not a policy's",
        show::count(summary.contacts, "contact"),
        report.same
    ))
}

fn line(group: &Group) -> String {
    let port = group
        .port
        .map_or_else(|| " (look-up)".to_owned(), |port| format!(":{port}"));
    let first = group.examples.first();
    let example = first.map_or_else(String::new, |e| format!("; {} of {}", e.place, e.network));
    format!(
        "  {}{port} {}: {} instead of {}, {}{example}",
        group.to,
        group.protocol.word(),
        group.is,
        group.was,
        show::count(group.count, "time")
    )
}
