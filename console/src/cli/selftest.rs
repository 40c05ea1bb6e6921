//! `sallyport selftest`: the gateway's own proof from a probe sandbox on this machine.

use super::{Shared, wait};
use crate::exit::{Outcome, Verdict};
use crate::show::{self, Format};

const HELP: &str = "\
The gateway attaches a probe sandbox, sends packets that no policy permits, and watches that none arrives.
Exit code 1 when one did, or when a probe could not be made.";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Arguments {}

pub fn perform(_arguments: &Arguments, shared: &Shared) -> Verdict {
    let client = shared.gateway()?;
    let report = wait(async { Ok(client.selftest().await?) })?;
    match shared.format() {
        Format::Json => show::json(&report)?,
        Format::Text => {
            let row = |p: &gateway::control::api::Probe| {
                let state = if p.passed { "ok" } else { "FAILED" };
                [
                    state.to_owned(),
                    p.name.clone(),
                    p.promise.clone(),
                    p.seen.clone(),
                ]
            };
            show::out(show::table(
                ["result", "probe", "promise", "seen"],
                report.probes.iter().map(row),
            ))?;
        }
    }
    Ok(if report.passed() {
        Outcome::Good
    } else {
        Outcome::Negative
    })
}
