//! `sallyport policy`: the pure half of Sallyport on the command line. Needs no gateway, no root, no network.

mod check;
mod diff;
pub mod explain;
mod guide;
mod learn;
mod lints;
mod propose;
mod records;
mod render;
mod replay;
mod sources;
mod test;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use gateway::config::GatewayConfig;
use gateway::control::api::PolicySource;
use netpolicy::document::mistake::nearest;
use netpolicy::document::{self, Mistake};
use netpolicy::policy::Policy;

use super::Shared;
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};

const EXPLAIN_HELP: &str = "\
Examples:
  sallyport policy explain research.yml api.github.com:443
  sallyport policy explain internet '[2001:db8::1]:22'
  sallyport policy explain p.yml https://api.github.com/repos/a/x --method POST
  sallyport policy explain p.yml db.example.com:5432 --resolves-to 10.0.0.5

Nothing is looked up: give the addresses of a name with --resolves-to to see what \
they change. `sallyport net explain` asks a live network instead.
Exit code 0: it passes; 1: it is denied, or a person is asked.";

const CHECK_HELP: &str = "\
Examples:
  sallyport policy check research.yml
  sallyport policy check --deny-warnings --lints lints.yml policies/*.yml
  sallyport policy check --floor /etc/sallyport/floor.yml research.yml

Warnings name entries that do nothing and entries that are wider than they look; `sallyport policy lints` lists them.
Exit code 0: good; 1: mistakes, or warnings under --deny-warnings.";

const TEST_HELP: &str = "\
A policy says what it shall decide, beside what it permits:
  tests:
    - { to: api.github.com:443, expect: permit }
    - { to: gist.github.com:443, expect: deny, reason: name_denied }
    - { to: db.example.com:5432, resolves_to: [10.0.0.5], expect: deny }

Nothing is looked up. Exit code 0: all passed; 1: one failed, or a file has mistakes.";

const REPLAY_HELP: &str = "\
Examples:
  sallyport policy replay --policy proposed.yml
  sallyport record export |
      sallyport policy replay --record - --policy new.yml --fail-on newly-denied

Nothing is looked up or sent. The record's chain is not verified here: `sallyport record verify` does that.
Exit code 0: everything is decided as it was; 1: something changes; 3: the records cannot be read.";

const LEARN_HELP: &str = "\
Examples:
  sallyport policy learn --network mine > mine.yml
  sallyport policy learn --record records.jsonl --wildcards 5

Only flows that were permitted are learnt from, so record under a wide policy first. Metadata is never proposed; private \
networks, what never answered and what `policy check` warns about only when asked for. What is left out stands in \
comments. --network names a network, as `net ls` and the summary of a run do.
Exit code 0: a policy was written, also one without entries; 3: there are no such records, or they cannot be read.";

const DIFF_HELP: &str = "\
Example:
  sallyport policy diff main.yml proposed.yml

Compares what the policies decide: order, spelling and comments never show. `+` lets more through, `-` less.
Exit code 0: both decide the same; 1: they differ.";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Check policy files; every mistake and every warning with its place and a hint
    #[command(after_help = CHECK_HELP)]
    Check(check::Arguments),
    /// List what `check` warns about, and the date of its list of hosts
    Lints {
        /// A file that adds to the shipped list; repeat for several
        #[arg(long, value_name = "FILE")]
        lints: Vec<PathBuf>,
    },
    /// Say what would become of a destination, which line decides, and what would change it
    #[command(after_help = EXPLAIN_HELP)]
    Explain(explain::Arguments),
    /// Run the `tests:` of policy files: each line passes or fails
    #[command(after_help = TEST_HELP)]
    Test(test::Arguments),
    /// Say what changes from one policy to another: what is newly permitted and denied, limits, secrets
    #[command(after_help = DIFF_HELP)]
    Diff(diff::Arguments),
    /// Decide recorded flows under a policy: what it would newly permit and newly deny
    #[command(after_help = REPLAY_HELP)]
    Replay(replay::Arguments),
    /// Write the narrowest policy that recorded flows need
    #[command(after_help = LEARN_HELP)]
    Learn(learn::Arguments),
    /// Print the JSON Schema of policy files
    Schema,
    /// Print the reference of policy files: every field with an example (Markdown)
    Reference,
    /// List the reason codes of denials, or print the page of one: what happened and what to do
    Reasons {
        /// Print this one's page (Markdown)
        code: Option<String>,
    },
    /// List the shipped sets, or print the entries of one, with the date of their data
    Sets {
        /// Print this one's entries
        name: Option<String>,
    },
    /// Show the policy sources in git: what is in force, since when, and what is wrong
    Source,
    /// Look at policy sources now
    #[command(after_help = sources::SYNC_HELP)]
    Sync(sources::SyncArguments),
    /// Propose changes of policies in git: a branch of their own, for people to merge
    #[command(after_help = propose::HELP)]
    Propose(propose::Arguments),
    /// Print the kernel rules that every sandbox is behind, as text
    Render(render::Arguments),
    /// List the presets, or print one
    Presets {
        /// Print this one's text
        name: Option<String>,
    },
}

pub fn perform(verb: Verb, shared: &Shared) -> Verdict {
    match verb {
        Verb::Check(arguments) => check::perform(&arguments, shared.format()),
        Verb::Lints { lints } => lints::perform(&lints, shared.format()),
        Verb::Explain(arguments) => explain::perform(&arguments, shared.format()),
        Verb::Test(arguments) => test::perform(&arguments, shared.format()),
        Verb::Diff(arguments) => diff::perform(&arguments, shared.format()),
        Verb::Replay(arguments) => replay::perform(&arguments, shared),
        Verb::Learn(arguments) => learn::perform(&arguments, shared),
        Verb::Schema => show::json(&document::schema()).map(|()| Outcome::Good),
        Verb::Reference => show::raw(&netpolicy::guide::reference()).map(|()| Outcome::Good),
        Verb::Reasons { code } => guide::reasons(code.as_deref(), shared.format()),
        Verb::Sets { name } => guide::sets(name.as_deref(), shared.format()),
        Verb::Source => sources::list(shared),
        Verb::Propose(arguments) => propose::perform(arguments, shared),
        Verb::Sync(arguments) => sources::sync(arguments, shared),
        Verb::Render(arguments) => render::perform(&arguments, shared.format()),
        Verb::Presets { name: Some(name) } => {
            let text = document::preset_text(&name).ok_or_else(|| unknown(&name))?;
            show::raw(text).map(|()| Outcome::Good)
        }
        Verb::Presets { name: None } => presets(shared.format()),
    }
}

fn presets(format: Format) -> Verdict {
    match format {
        Format::Json => {
            let list: Vec<_> = document::PRESETS
                .iter()
                .map(|(name, meaning)| serde_json::json!({ "name": name, "meaning": meaning }))
                .collect();
            show::json(&list)?;
        }
        Format::Text => {
            let width = document::PRESETS
                .iter()
                .map(|(name, _)| name.len())
                .max()
                .unwrap_or_default();
            for (name, meaning) in document::PRESETS {
                show::out(format_args!("{name:<width$}  {meaning}"))?;
            }
        }
    }
    Ok(Outcome::Good)
}

fn unknown(name: &str) -> Failure {
    let presets: Vec<&str> = document::PRESETS.iter().map(|(name, _)| *name).collect();
    let is_path = name.contains('/') || has_policy_suffix(name);
    let failure = if is_path {
        Failure::new(format!("there is no file {name}"))
    } else {
        Failure::new(format!("{name} is neither a file nor a preset"))
    };
    let preset = nearest(name, presets.iter().copied()).filter(|_| !is_path);
    match (preset, near_file(name), is_path) {
        (Some(preset), _, _) => failure.hint(format!("did you mean `{preset}`?")),
        (None, Some(file), _) => failure.hint(format!("did you mean {file}?")),
        (None, None, true) => failure,
        (None, None, false) => failure.hint(format!(
            "presets are {}; a file is named by its path",
            presets.join(", ")
        )),
    }
}

fn has_policy_suffix(name: &str) -> bool {
    [".yml", ".yaml"]
        .iter()
        .any(|suffix| name.ends_with(suffix))
}

/// Files of a folder that are looked at for a misspelt name.
const MOST_FILES: usize = 1000;

/// A policy file beside which a misspelt name stands, with or without its suffix.
fn near_file(name: &str) -> Option<String> {
    let path = Path::new(name);
    let wanted = path.file_name()?.to_str()?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let listed = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
    let files: Vec<String> = listed
        .take(MOST_FILES)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|file| has_policy_suffix(file))
        .collect();
    let whole = nearest(wanted, files.iter().map(String::as_str));
    let stems = files.iter().filter_map(|file| file.rsplit_once('.'));
    let near = whole.map(str::to_owned).or_else(|| {
        let stem = nearest(wanted, stems.map(|(stem, _)| stem))?;
        files
            .iter()
            .find(|file| file.rsplit_once('.').is_some_and(|(own, _)| own == stem))
            .cloned()
    })?;
    Some(match folder {
        Some(folder) => folder.join(near).display().to_string(),
        None => near,
    })
}

/// Largest policy file that is read at all; the reader itself refuses far smaller ones with a better message.
const MOST_BYTES: u64 = 16 << 20;

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;

    use nix::fcntl::OFlag;

    let failed = |e: std::io::Error| Failure::new(format!("reading {}: {e}", path.display()));
    // a pipe that nobody writes to would be waited for
    let mut options = std::fs::File::options();
    let options = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let file = options.open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Failure::new(format!(
            "{} is no regular file",
            path.display()
        )));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

/// A policy argument as what attach sends: the text of a file, a preset's name, or a name in a source. A file beats a
/// preset, a preset beats a source; `git:NAME` and `git:SOURCE:NAME` are names in a source and nothing else.
pub fn source(argument: &str, config: &GatewayConfig) -> Result<PolicySource, Failure> {
    if let Some(name) = argument.strip_prefix("git:") {
        return Ok(in_git(name));
    }
    let path = Path::new(argument);
    if !path.exists() {
        return match document::preset_text(argument) {
            Some(_) => Ok(PolicySource::Preset(argument.to_owned())),
            None if !config.sources.is_empty() => Ok(in_git(argument)),
            None => Err(unknown(argument)),
        };
    }
    let bytes = read(path)?;
    // mistakes are told here, with the author's own path, before anything is started
    parsed(argument, &bytes)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::new(format!("{argument} is not UTF-8 text")))?;
    Ok(PolicySource::Document {
        file: argument.to_owned(),
        text,
        packages: None,
    })
}

fn in_git(name: &str) -> PolicySource {
    let (source, policy) = match name.split_once(':') {
        Some((source, policy)) => (Some(source.to_owned()), policy),
        None => (None, name),
    };
    PolicySource::Git {
        source,
        policy: policy.to_owned(),
        hash: None,
        packages: None,
    }
}

/// A policy argument as its meaning.
pub fn load(argument: &str) -> Result<Policy, Failure> {
    let path = Path::new(argument);
    if path.exists() {
        return parsed(argument, &read(path)?);
    }
    document::preset(argument).ok_or_else(|| unknown(argument))
}

fn parsed(name: &str, bytes: &[u8]) -> Result<Policy, Failure> {
    document::parse_bytes(name, bytes, None).map_err(|mistakes| {
        let mut failure = Failure::new(format!(
            "{name} is no policy: {}",
            show::count(mistakes.len(), "mistake")
        ))
        .code(1);
        failure.details = mistakes.iter().map(ToString::to_string).collect();
        failure
    })
}

/// A mistake for programs.
pub fn mistake_json(mistake: &Mistake) -> serde_json::Value {
    serde_json::json!({
        "file": &*mistake.at.file,
        "line": mistake.at.line,
        "column": mistake.at.column,
        "commit": mistake.at.commit.as_deref(),
        "message": mistake.message,
        "hint": mistake.hint,
    })
}
