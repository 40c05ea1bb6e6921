//! `sallyport policy render`: the kernel rules as text. They are the same for every policy: what a policy permits is
//! decided in the gateway, the kernel only delivers acceptable packet shapes to it.

use clap::Args;
use netpolicy::ruleset::{Limits, Plan, Ports, Queue, Ruleset};

use crate::exit::{Outcome, Verdict};
use crate::show::{self, Format};

const HELP: &str = "\
The rules do not depend on a policy: no packet of a sandbox ever leaves, whatever a policy says. What a policy permits \
is decided in the gateway, flow by flow. `sallyport gateway rules` shows what is loaded in the kernel now.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// A policy to check first (the rules are the same for each)
    #[arg(value_name = "FILE|PRESET")]
    policy: Option<String>,
    /// The rules of a sealed gateway
    #[arg(long)]
    sealed: bool,
}

pub fn perform(arguments: &Arguments, format: Format) -> Verdict {
    if let Some(policy) = &arguments.policy {
        super::load(policy)?;
    }
    let plan = Plan {
        service4: std::net::Ipv4Addr::new(198, 18, 0, 1),
        service6: std::net::Ipv6Addr::new(0xfd5a, 0, 0, 0, 0, 0, 0, 1),
        ports: Ports::default(),
        queue: Queue::Native(0),
        limits: Limits::default(),
    };
    let rules = if arguments.sealed {
        Ruleset::sealed(&plan)
    } else {
        Ruleset::enforcing(&plan)
    };
    let text = rules.render();
    match format {
        Format::Json => {
            show::json(&serde_json::json!({ "sealed": arguments.sealed, "rules": text }))?;
        }
        Format::Text => show::raw(&text)?,
    }
    Ok(Outcome::Good)
}
