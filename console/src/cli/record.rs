//! `sallyport record`: verify the journal, export it. Works on the files, with or without a running gateway; who may not
//! open them is given the record by the gateway, and judges it all the same.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use gateway::control::Client;
use gateway::control::api::Signed;
use gateway::record::Report;
use gateway::record::verify::{Verifier, verify_against};

use super::Shared;
use super::journal::{self, Journal, Networks};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};

const VERIFY_HELP: &str = "\
Walks every line, compares the hash chain with each signed statement about it (head, checkpoint, anchors) and lists what \
was changed, cut, appended, removed or replaced. Keep anchors elsewhere too: who can write the journal and its key can \
write both, but not your copy. `gateway.journal.syslog` sends each to syslog; --anchors reads what syslog wrote:

  sallyport record verify --anchors /var/log/auth.log --key HEX

With --key, anchors of other gateways in the same file are passed over.

Exit code 0: nothing is wrong; 1: damage was found (each piece is listed), or another key signed; 2: the key is none; \
3: there is no journal, or it cannot be read.";

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
        #[arg(long, value_name = "HEX", value_parser = public_key)]
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
        } => verify(
            journal.as_deref(),
            anchors.as_deref(),
            key.as_deref(),
            shared,
        ),
        Verb::Export {
            journal,
            after,
            network,
            form,
        } => {
            let journal = Journal::find(journal.as_deref(), shared)?;
            export(&journal, after, network.as_deref(), form)
        }
    }
}

fn verify(
    named: Option<&Path>,
    anchors: Option<&Path>,
    key: Option<&str>,
    shared: &Shared,
) -> Verdict {
    if let Some(missing) = anchors.filter(|file| !file.exists()) {
        let message = format!("there are no anchors at {}", missing.display());
        return Err(Failure::new(message));
    }
    let config = named.is_none().then(|| shared.load_to_ask()).transpose()?;
    let config = config.map(|config| config.gateway);
    let folder = match (named, &config) {
        (Some(folder), _) => folder,
        (None, Some(config)) => &config.journal.dir,
        (None, None) => return Err(Failure::new("no journal is named")),
    };
    let beside = || match &config {
        Some(config) => config.journal.anchors.clone(),
        None => folder.with_file_name("anchors.jsonl"),
    };
    let kept = anchors.map_or_else(beside, Path::to_owned);
    let report = match verify_against(folder, &kept, key) {
        Ok(report) => report,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(journal::nothing(folder)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied && named.is_none() => {
            let theirs = Journal::find(None, shared)?;
            let Journal::Gateway(client) = &theirs else {
                return Err(journal::unread(folder, &error));
            };
            from_gateway(client, &theirs, anchors, key)?
        }
        Err(error) => return Err(journal::unread(folder, &error)),
    };
    verified(&report, shared.format())
}

/// Verifies what the gateway gives out: its statements first, then its lines.
fn from_gateway(
    client: &Client,
    journal: &Journal,
    anchors: Option<&Path>,
    key: Option<&str>,
) -> Result<Report, Failure> {
    let mut verifier = Verifier::new(key);
    super::wait(async {
        let mut statements = client.statements().await?;
        while let Some(signed) = statements.next().await? {
            match (signed.place == Signed::ANCHORS, anchors) {
                (true, None) => verifier.anchor(signed.number, &signed.text),
                (false, _) => verifier.statement(&signed.place, signed.text.as_bytes()),
                // others were named
                (true, Some(_)) => {}
            }
        }
        Ok(())
    })?;
    if let Some(path) = anchors {
        verifier
            .anchors(path)
            .map_err(|e| Failure::new(format!("reading the anchors {}: {e}", path.display())))?;
    }
    let mut number = 0_u64;
    journal.each(0, &mut |line| {
        number += 1;
        verifier.line(line, &|| format!("the gateway's record, line {number}"));
        Ok(())
    })?;
    Ok(verifier.finish())
}

/// A public key as hex.
fn public_key(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a key has 64 hex digits; `record verify --json` prints the one that signed".to_owned())
    }
}

fn verified(report: &Report, format: Format) -> Verdict {
    match format {
        Format::Json => show::json(&serde_json::json!({ "ok": report.ok(), "report": report }))?,
        Format::Text => {
            let range = match (report.first, report.last) {
                (Some(first), Some(last)) => format!("{first} to {last}"),
                _ => "none".to_owned(),
            };
            let anchors = match report.anchors {
                0 => "no anchor was compared".to_owned(),
                1 => "1 anchor agrees".to_owned(),
                many => format!("{many} anchors agree"),
            };
            show::out(format_args!(
                "{} ({range}) in {}, {anchors}",
                show::count(report.lines, "record"),
                show::count(report.segments, "segment"),
            ))?;
            for (seq, milliseconds) in &report.gaps {
                show::out(format_args!(
                    "gap: before record {seq} up to {milliseconds} ms may be missing after a crash"
                ))?;
            }
            if report.is_foreign() {
                report
                    .findings
                    .iter()
                    .try_for_each(|finding| show::out(show::clean(&finding.message)))?;
                return Ok(Outcome::Negative);
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

fn export(journal: &Journal, after: u64, network: Option<&str>, form: Form) -> Verdict {
    let mut networks = Networks::wanting(network);
    let (mut unread, mut lines) = (0_u64, 0_u64);
    journal.each(after, &mut |line| {
        lines += 1;
        if let Some(wanted) = network {
            let of = network_of(line);
            if let Some(of) = &of {
                networks.saw(of);
            }
            if of.as_deref() != Some(wanted) {
                return Ok(());
            }
        }
        match form {
            Form::Jsonl => show::raw(&format!("{}\n", line.trim_end())),
            Form::Ocsf => {
                let Ok(line) = serde_json::from_str::<gateway::record::Line>(line) else {
                    unread += 1;
                    return Ok(());
                };
                show::raw(&format!("{}\n", event(&line)?))
            }
        }
    })?;
    // who asks for what came after a record asks again and again
    if after == 0 {
        networks.known()?;
    }
    if lines == 0 && after == 0 {
        show::note("the record is empty");
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

fn network_of(line: &str) -> Option<String> {
    let parsed: serde_json::Value = serde_json::from_str(line).ok()?;
    let places = ["/subject/network", "/network", "/first/subject/network"];
    places.iter().find_map(|place| {
        let found = parsed.pointer(place)?.as_str()?;
        Some(found.to_owned())
    })
}
