//! `sallyport policy learn`: the narrowest policy that recorded flows need, on standard output.

use clap::Args;
use netpolicy::learn::{Evidence, Learner, Options};
use serde_json::json;

use super::records::{self, Source};
use crate::cli::Shared;
use crate::exit::{Outcome, Verdict};
use crate::show::{self, Format, clean};

#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Propose private networks and the machine itself too
    #[arg(long)]
    private: bool,
    /// Propose also what `policy check` warns about
    #[arg(long)]
    flagged: bool,
    /// Propose also what was permitted and never answered
    #[arg(long)]
    failed: bool,
    /// Propose a wildcard where so many names lie right below one; never over a public suffix
    #[arg(long, value_name = "N")]
    wildcards: Option<usize>,
    /// A file that adds hosts to the list that `policy check` warns about; repeat for several
    #[arg(long, value_name = "FILE")]
    lints: Vec<std::path::PathBuf>,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    let catalogue = super::lints::catalogue(&arguments.lints)?;
    let options = Options {
        private: arguments.private,
        flagged: arguments.flagged,
        failed: arguments.failed,
        wildcards: arguments.wildcards,
    };
    let mut learner = Learner::default();
    records::read(&arguments.source, shared, &mut |contact, count, example| {
        let evidence = Evidence {
            count,
            first: example.t,
            last: example.t,
        };
        learner.add(contact, evidence, options);
    })?;
    let learnt = learner.finish(options, &catalogue, gateway::context::now());
    match shared.format() {
        Format::Json => {
            let left_out: Vec<_> = learnt
                .left_out
                .iter()
                .map(|one| json!({ "what": one.what, "why": one.why, "count": one.evidence.count }))
                .collect();
            show::json(
                &json!({ "policy": learnt.text, "entries": learnt.entries, "left_out": left_out }),
            )?;
        }
        Format::Text => {
            show::raw(&learnt.text)?;
            show::note(clean(&format!(
                "{} {}, {} left out",
                learnt.entries,
                if learnt.entries == 1 {
                    "entry"
                } else {
                    "entries"
                },
                learnt.left_out.len()
            )));
        }
    }
    Ok(Outcome::Good)
}
