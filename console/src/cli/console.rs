//! `sallyport console`: the role that people and their programs speak to.

use clap::Args;

use super::{Shared, roles};
use crate::exit::{Failure, Verdict};

const HELP: &str = "\
Serves the API on `console.listen` (127.0.0.1:8420). Needs no root: it reaches gateway and runner through their sockets \
and keeps its store in `console.database`, a SQLite file unless that names PostgreSQL. Runs until it is told to stop \
(SIGTERM).

Examples:
  sallyport console --config /etc/sallyport/config.yml
  sallyport console --check --config new.yml";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// Only check the configuration
    #[arg(long)]
    check: bool,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    if arguments.check {
        return super::config::check(shared);
    }
    let config = shared.load()?.console;
    roles::until_told(|stop| async move {
        ::console::run(config, stop).await.map_err(|error| {
            let mut failure = Failure::from_error(&error);
            failure.hint = error.hint().map(str::to_owned);
            failure
        })
    })
}
