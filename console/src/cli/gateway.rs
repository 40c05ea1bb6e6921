//! `sallyport gateway`: the role itself, and what it has loaded into the kernel.

use clap::{Args, Subcommand};

use super::{Shared, roles, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};

const HELP: &str = "\
Needs root, or CAP_NET_ADMIN, SYS_ADMIN, NET_RAW and NET_BIND_SERVICE. Runs until it is told to stop (SIGTERM): live
sandboxes keep their links and lose their way out until it is back.

Examples:
  sallyport gateway --config /etc/sallyport/config.yml
  sallyport gateway --check --config new.yml
  sallyport gateway rules";

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
    /// Print the kernel rules of the running gateway as text
    Rules,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    match arguments.verb {
        Some(Verb::Rules) => rules(shared),
        None if arguments.check => super::config::check(shared),
        None => {
            let config = shared.load()?.gateway;
            roles::until_told(|stop| async move {
                let told = async move { stop.cancelled().await };
                gateway::appliance::run(config, told)
                    .await
                    .map_err(|error| Failure::from_error(&error))
            })
        }
    }
}

fn rules(shared: &Shared) -> Verdict {
    let client = shared.gateway()?;
    let rules = wait(async { Ok(client.rules().await?) })?;
    match shared.format() {
        Format::Json => show::json(&serde_json::json!({ "rules": rules }))?,
        Format::Text => show::raw(&rules)?,
    }
    Ok(Outcome::Good)
}
