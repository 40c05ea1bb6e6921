//! `sallyport console`: the role that people and their programs speak to, and the link for its first owner.

use clap::{Args, Subcommand};

use super::{Shared, roles, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};

const HELP: &str = "\
Serves the browser app and the API on `console.listen` (127.0.0.1:8420). Needs no root: it reaches gateway and runner through their sockets \
and keeps its store in `console.database`, a SQLite file unless that names PostgreSQL. Its first start logs a link; who \
opens it becomes the owner. Runs until it is told to stop (SIGTERM).

Examples:
  sallyport console --config /etc/sallyport/config.yml
  sallyport console --check --config new.yml
  sallyport console owner-link";

#[derive(Debug, Args)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// Only check the configuration
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print a new link for the first owner, while there is none; earlier links end
    OwnerLink,
    /// Run a command as a job of this console, print what it prints and what its network saw
    Sample(super::sample::Arguments),
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    if arguments.check {
        return super::config::check(shared);
    }
    let config = shared.load()?.console;
    match &arguments.verb {
        Some(Verb::OwnerLink) => return owner_link(&config, shared),
        Some(Verb::Sample(sample)) => return super::sample::perform(sample, &config),
        None => {}
    }
    roles::until_told(|stop| async move {
        ::console::run(config, stop)
            .await
            .map_err(|error| failure(&error))
    })
}

fn owner_link(config: &::console::settings::ConsoleConfig, shared: &Shared) -> Verdict {
    let link = wait(async {
        ::console::fresh_link(config)
            .await
            .map_err(|error| failure(&error))
    })?;
    let Some(link) = link else {
        return Err(
            Failure::new("there is an owner already").hint("administrators make further users")
        );
    };
    match shared.format() {
        Format::Json => show::json(&serde_json::json!({ "link": link }))?,
        Format::Text => show::out(link)?,
    }
    Ok(Outcome::Good)
}

fn failure(error: &::console::ServeError) -> Failure {
    let mut failure = Failure::from_error(error);
    failure.hint = error.hint().map(str::to_owned);
    failure
}
