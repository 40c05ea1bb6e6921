//! `sallyport net explain`: what a live network does with a destination now. The same answer as inside the sandbox, with
//! all that an operator may know.

use std::net::IpAddr;

use clap::Args;
use gateway::control::Client;
use netpolicy::explain::Explanation;

use crate::cli::policy::explain as policy;
use crate::exit::{Failure, Verdict};
use crate::show::{self, Format};

pub const HELP: &str = "\
Examples:
  sallyport net explain web api.github.com
  sallyport net explain web 198.19.7.1:443
  sallyport net explain web time.example.com:123 --udp

Nothing is looked up or sent. Beside the policy the gateway tells a budget that is \
used up, addresses that it knows for a name, and the last denial of the same \
destination.
Exit code 0: it passes; 1: it is denied, or a person is asked.";

#[derive(Debug, Args)]
pub struct Arguments {
    /// The network's name
    name: String,
    #[command(flatten)]
    to: policy::Destination,
}

/// Asks and prints.
pub async fn explain(client: &Client, arguments: &Arguments, format: Format) -> Verdict {
    let request = arguments.to.request()?;
    let answer = client
        .explain(&super::id(&arguments.name)?, &request)
        .await?;
    let explanation: Explanation = serde_json::from_value(answer.clone())
        .map_err(|e| Failure::new(format!("reading the gateway's answer: {e}")))?;
    match format {
        Format::Json => show::json(&answer)?,
        Format::Text => {
            policy::print(arguments.to.text(), &explanation)?;
            let known: Vec<IpAddr> = list(&answer, "known");
            if !known.is_empty() {
                let known: Vec<String> = known.iter().map(IpAddr::to_string).collect();
                show::out(format_args!("known addresses: {}", known.join(", ")))?;
            }
            let remarks: Vec<String> = list(&answer, "remarks");
            remarks
                .iter()
                .try_for_each(|remark| show::out(format_args!("note: {}", show::clean(remark))))?;
        }
    }
    Ok(policy::outcome(&explanation))
}

/// A list of the answer; a gateway of another version may lack it.
fn list<T: serde::de::DeserializeOwned>(answer: &serde_json::Value, key: &str) -> Vec<T> {
    let found = answer.get(key).cloned();
    found
        .and_then(|value| serde_json::from_value(value).ok())
        .unwrap_or_default()
}
