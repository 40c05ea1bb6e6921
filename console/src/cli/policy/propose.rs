//! `sallyport policy propose`: changes written to a branch `sallyport/proposals/NAME` of a source, never to the
//! followed one.

use clap::Args;
use gateway::source::names::is_short_name;
use gateway::source::view::{ProposalRequest, ProposedFile};

use super::read;
use crate::cli::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format, clean};

pub const HELP: &str = "\
The gateway checks what would be in force with the changes, and pushes a commit on top of the one in force to the branch \
sallyport/proposals/NAME, which must not exist yet. The followed branch changes only when somebody merges it there. The \
source's configuration must say `proposals: allowed`.

Examples:
  sallyport policy propose --source main --name open-pypi \\
      --title 'Let builds reach PyPI' policies/build.yml=build.yml";

/// Wrapped by hand: a usage line is never wrapped otherwise.
const USAGE: &str = "\
sallyport policy propose [OPTIONS] --source <SOURCE> --name <NAME>
                                 --title <TITLE> <PATH=FILE>...";

#[derive(Debug, Args)]
#[command(override_usage = USAGE)]
pub struct Arguments {
    /// The source
    #[arg(long)]
    source: String,
    /// Name of the proposal: a-z, 0-9 and '-'
    #[arg(long)]
    name: String,
    /// What it is for; the first line of the commit
    #[arg(long)]
    title: String,
    /// Path in the repository, and the file that has its new text
    #[arg(required = true, value_name = "PATH=FILE", value_parser = pair)]
    files: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((path, file)) if !path.is_empty() && !file.is_empty() => {
            Ok((path.to_owned(), file.to_owned()))
        }
        _ => Err("write PATH-IN-THE-REPOSITORY=FILE".to_owned()),
    }
}

pub fn perform(arguments: Arguments, shared: &Shared) -> Verdict {
    if !is_short_name(&arguments.source) {
        return Err(Failure::new(format!(
            "{:?} is no name of a source",
            arguments.source
        )));
    }
    let text = |(path, file): (String, String)| {
        let bytes = read(std::path::Path::new(&file))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Failure::new(format!("{file} is not UTF-8 text")))?;
        Ok(ProposedFile { file: path, text })
    };
    let files = arguments
        .files
        .into_iter()
        .map(text)
        .collect::<Result<_, Failure>>()?;
    let request = ProposalRequest {
        name: arguments.name,
        title: arguments.title,
        files,
    };
    let client = shared.gateway()?;
    let proposed = wait(async { Ok(client.propose(&arguments.source, &request).await?) })?;
    match shared.format() {
        Format::Json => show::json(&proposed)?,
        Format::Text => show::out(format_args!(
            "branch {} has commit {} on top of {}; somebody who may push must merge it",
            clean(&proposed.branch),
            proposed.commit,
            proposed.base
        ))?,
    }
    Ok(Outcome::Good)
}
