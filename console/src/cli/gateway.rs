//! `sallyport gateway`: the role itself, and what it has loaded into the kernel.

use ::gateway::ordinary;
use clap::{Args, Subcommand};

use super::{Shared, roles, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};

const HELP: &str = "\
Needs root, or CAP_NET_ADMIN, SYS_ADMIN, NET_RAW and NET_BIND_SERVICE; started by an ordinary user it goes on in the \
user namespace of that user's rootless Podman. Runs until it is told to stop (SIGTERM): live \
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
    #[command(flatten)]
    open: OpenNetworks,
    #[command(subcommand)]
    verb: Option<Verb>,
}

/// The second switch of `egress_filter: off`: a file alone opens nothing.
#[derive(Clone, Copy, Debug, Args)]
pub struct OpenNetworks {
    /// With `gateway.egress_filter: off`: yes, private networks and this machine are to be open to internet sandboxes
    #[arg(long)]
    pub i_accept_open_networks: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print the kernel rules of the running gateway as text
    Rules,
    /// Take away what a stopped gateway left, except its record
    #[command(hide = true)]
    Clear,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    match arguments.verb {
        Some(Verb::Rules) => rules(shared),
        Some(Verb::Clear) => {
            enter();
            ::gateway::appliance::uninstall(&shared.load()?.gateway)
                .map_err(|error| Failure::from_error(&error))?;
            Ok(Outcome::Good)
        }
        None if arguments.check => super::config::check(shared),
        None => {
            let entered = ordinary::enter();
            let mut config = shared.load()?.gateway;
            // without it nothing has a network of its own; what may run then, `egress_filter` says
            config.no_kernel_part = entered
                .err()
                .map(|error| Failure::from_error(&error).message);
            config.open_networks_accepted = arguments.open.i_accept_open_networks;
            roles::until_told(|stop| async move {
                let told = async move { stop.cancelled().await };
                ::gateway::appliance::run(config, told)
                    .await
                    .map_err(|error| Failure::from_error(&error).hint(error.hint()))
            })
        }
    }
}

/// Goes on in the user namespace where an ordinary user's gateway leaves its namespace, if there is one.
pub fn enter() {
    if let Err(error) = ordinary::enter() {
        show::note(format_args!(
            "sallyport: {error}; its gateway can have left no namespace"
        ));
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
