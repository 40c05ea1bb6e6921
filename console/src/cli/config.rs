//! `sallyport config`: check the configuration file, print its JSON Schema.

use std::path::PathBuf;

use clap::Subcommand;
use gateway::config::EgressFilter;

use super::Shared;
use crate::config::schema;
use crate::exit::{Outcome, Verdict};
use crate::show::{self, Format};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Read the configuration and list every mistake
    Check {
        /// The file, instead of the one that `--config` names
        file: Option<PathBuf>,
    },
    /// Print the JSON Schema of the file
    Schema,
}

pub fn perform(verb: &Verb, shared: &Shared) -> Verdict {
    match verb {
        Verb::Check { file } => check(&Shared {
            config: file.clone().or_else(|| shared.config.clone()),
            ..shared.clone()
        }),
        Verb::Schema => show::json(&schema::document()).map(|()| Outcome::Good),
    }
}

/// Also what `--check` of the roles does.
pub fn check(shared: &Shared) -> Verdict {
    let file = shared.file();
    let checked = file.check()?;
    let open = checked
        .as_ref()
        .is_ok_and(|config| config.gateway.egress_filter == EgressFilter::Off);
    let mistakes = checked.err().unwrap_or_default();
    let name = file.path().map_or_else(
        || "the built-in configuration".to_owned(),
        |p| p.display().to_string(),
    );
    match shared.format() {
        Format::Json => {
            let list: Vec<_> = mistakes.iter().map(super::policy::mistake_json).collect();
            show::json(
                &serde_json::json!({ "file": name, "ok": list.is_empty(), "mistakes": list }),
            )?;
        }
        Format::Text if mistakes.is_empty() => show::out(format_args!("{name}: ok"))?,
        Format::Text => mistakes
            .iter()
            .try_for_each(|m| show::out(show::clean(&m.to_string())))?,
    }
    if open {
        show::note(
            "`egress_filter: off` alone opens nothing: the gateway starts with --i-accept-open-networks only",
        );
    }
    Ok(if mistakes.is_empty() {
        Outcome::Good
    } else {
        Outcome::Negative
    })
}
