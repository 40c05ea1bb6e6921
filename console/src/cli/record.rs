//! `sallyport record`: verify the journal, export it. Works on the files, with or without a running gateway.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::Shared;
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};

const VERIFY_HELP: &str = "\
Walks every line, compares the hash chain with each signed statement about it (head, checkpoint, anchors) and lists what
was changed, cut, appended, removed or replaced. Keep anchors elsewhere too: who can write the journal and its key can
write both, but not your copy. `gateway.journal.syslog` sends each to syslog; --anchors reads what syslog wrote:

  sallyport record verify --anchors /var/log/auth.log --key HEX

With --key, anchors of other gateways in the same file are passed over.

Exit code 0: nothing is wrong; 1: damage was found (each piece is listed).";

const EXPORT_HELP: &str = "\
Examples:
  sallyport record export > records.jsonl
  sallyport record export --after 1200 | jq 'select(.kind == \"denial\")'
  sallyport record export --format ocsf --network web > events.jsonl";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Look for tampering and gaps
    #[command(after_help = VERIFY_HELP)]
    Verify {
        /// Folder of the journal [default: the configured gateway's]
        #[arg(long, value_name = "DIR")]
        journal: Option<PathBuf>,
        /// Anchors kept elsewhere, also a syslog file [default: anchors.jsonl beside the journal]
        #[arg(long, value_name = "FILE")]
        anchors: Option<PathBuf>,
        /// Public key (hex) that must have signed
        #[arg(long, value_name = "HEX")]
        key: Option<String>,
    },
    /// Print records, one JSON object a line
    #[command(after_help = EXPORT_HELP)]
    Export {
        /// Folder of the journal [default: the configured gateway's]
        #[arg(long, value_name = "DIR")]
        journal: Option<PathBuf>,
        /// Only records after this sequence number
        #[arg(long, default_value_t = 0, value_name = "SEQ")]
        after: u64,
        /// Only records of this network
        #[arg(long, value_name = "NAME")]
        network: Option<String>,
        /// Form of the lines
        #[arg(long = "format", value_enum, default_value_t = Form::Jsonl)]
        form: Form,
    },
}

/// In which form records are exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Form {
    /// As they stand in the journal
    Jsonl,
    /// As events of the Open Cybersecurity Schema Framework 1.8.0
    Ocsf,
}

pub fn perform(verb: Verb, shared: &Shared) -> Verdict {
    match verb {
        Verb::Verify {
            journal,
            anchors,
            key,
        } => {
            let configured = journal
                .is_none()
                .then(|| shared.load())
                .transpose()?
                .map(|c| c.gateway.journal.anchors);
            let journal = folder(journal, shared)?;
            if let Some(missing) = anchors.as_ref().filter(|file| !file.exists()) {
                let message = format!("there are no anchors at {}", missing.display());
                return Err(Failure::new(message));
            }
            let anchors = anchors
                .or(configured)
                .unwrap_or_else(|| journal.with_file_name("anchors.jsonl"));
            let failed = |e: std::io::Error| {
                Failure::new(format!("reading the journal {}: {e}", journal.display()))
            };
            if !journal.is_dir() {
                return Err(Failure::new(format!("there is no journal at {}", journal.display()))
                    .hint("name its folder with --journal, or the gateway's configuration with --config"));
            }
            let report =
                gateway::record::verify::verify_against(&journal, &anchors, key.as_deref())
                    .map_err(failed)?;
            verified(&report, shared.format())
        }
        Verb::Export {
            journal,
            after,
            network,
            form,
        } => export(&folder(journal, shared)?, after, network.as_deref(), form),
    }
}

fn folder(named: Option<PathBuf>, shared: &Shared) -> Result<PathBuf, Failure> {
    match named {
        Some(folder) => Ok(folder),
        None => Ok(shared.load()?.gateway.journal.dir),
    }
}

fn verified(report: &gateway::record::Report, format: Format) -> Verdict {
    match format {
        Format::Json => show::json(&serde_json::json!({ "ok": report.ok(), "report": report }))?,
        Format::Text => {
            let range = match (report.first, report.last) {
                (Some(first), Some(last)) => format!("{first} to {last}"),
                _ => "none".to_owned(),
            };
            show::out(format_args!(
                "{} records ({range}) in {} segments, {} anchors agree",
                report.lines, report.segments, report.anchors
            ))?;
            for (seq, milliseconds) in &report.gaps {
                show::out(format_args!(
                    "gap: before record {seq} up to {milliseconds} ms may be missing after a crash"
                ))?;
            }
            if report.unsigned > 0 {
                show::out(format_args!(
                    "{} records at the end are not signed yet",
                    report.unsigned
                ))?;
            }
            for finding in &report.findings {
                show::out(format_args!(
                    "DAMAGE {}: {}",
                    show::clean(&finding.place),
                    show::clean(&finding.message)
                ))?;
            }
            show::out(if report.ok() {
                "nothing is wrong"
            } else {
                "the record was tampered with or damaged"
            })?;
        }
    }
    Ok(if report.ok() {
        Outcome::Good
    } else {
        Outcome::Negative
    })
}

fn export(journal: &std::path::Path, after: u64, network: Option<&str>, form: Form) -> Verdict {
    let failed =
        |e: std::io::Error| Failure::new(format!("reading the journal {}: {e}", journal.display()));
    let mut reader = gateway::record::Reader::open(journal, after).map_err(failed)?;
    let mut unread = 0_u64;
    while let Some(line) = reader.next_line().map_err(failed)? {
        if !network.is_none_or(|wanted| of_network(&line, wanted)) {
            continue;
        }
        match form {
            Form::Jsonl => show::raw(&format!("{}\n", line.trim_end()))?,
            Form::Ocsf => match serde_json::from_str::<gateway::record::Line>(&line) {
                Ok(line) => show::raw(&format!("{}\n", event(&line)?))?,
                Err(_) => unread += 1,
            },
        }
    }
    if unread > 0 {
        show::note(format_args!(
            "{unread} lines are no records and were left out; `sallyport record verify` says where"
        ));
        return Ok(Outcome::Negative);
    }
    Ok(Outcome::Good)
}

fn event(line: &gateway::record::Line) -> Result<String, Failure> {
    serde_json::to_string(&gateway::record::ocsf::event(line)).map_err(|e| Failure::from_error(&e))
}

fn of_network(line: &str, wanted: &str) -> bool {
    let parsed: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let places = ["/subject/network", "/network", "/first/subject/network"];
    parsed.is_some_and(|v| {
        places
            .iter()
            .any(|place| v.pointer(place).and_then(|n| n.as_str()) == Some(wanted))
    })
}
