//! `sallyport selftest`: the gateway's own proof from probe sandboxes on this machine.

use gateway::control::api::{Check, Outcome as Came, PostureView, SelftestReport};

use super::{Shared, wait};
use crate::exit::{Outcome, Verdict};
use crate::show::{self, Format};

const HELP: &str = "\
The gateway attaches two probe sandboxes, sends every kind of packet and frame that no policy lets through from one of \
them, in both families, and watches the uplink, the other sandbox and the machine's own listeners: none may arrive. Then \
a policy permits one of these listeners, and it must be reached. Nothing is sent to other machines.

The gateway runs the same table before it enforces, after each repair of its kernel rules, and on a schedule \
(`gateway.selftest.every`); the outcome is in the record (`sallyport record export`), the newest one in `sallyport doctor`. \
A check that fails seals the gateway until one passes.

Where the kernel can hold no rules, sandboxes have a socket to the proxy and no link: then the proxy is tried, and the last \
line says that networks are not enforced. What `gateway.egress_filter: off` opens is `skipped`. The uplink of a gateway of \
an ordinary user cannot be watched: there a packet counts as held back when no sandbox and no listener saw it.

Exit code 1 when a check failed, or while the gateway does not enforce. A check that this machine offers nothing to try on is `skipped`.";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// Only rows that did not pass
    #[arg(long)]
    failed: bool,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    let client = shared.gateway()?;
    let (report, posture) =
        wait(async { Ok((client.selftest().await?, client.posture().await?)) })?;
    match shared.format() {
        Format::Json => show::json(&serde_json::json!({
            "passed": report.passed(),
            "posture": posture.label,
            "took_ms": report.took_ms,
            "checks": report.checks,
        }))?,
        Format::Text => {
            print(&report, arguments.failed)?;
            show::out(show::clean(&verdict(&posture)))?;
        }
    }
    // a proxy that decides well is no proof of what nothing enforces
    Ok(if report.passed() && posture.state == "enforcing" {
        Outcome::Good
    } else {
        Outcome::Negative
    })
}

/// What all that means here: the rows alone do not say what is open by the operator's choice, or not enforced at all.
fn verdict(posture: &PostureView) -> String {
    match &posture.cause {
        None => posture.label.clone(),
        Some(cause) => format!("{}: {cause}", posture.label),
    }
}

fn print(report: &SelftestReport, failed: bool) -> Result<(), crate::exit::Failure> {
    let wanted = |c: &&Check| !failed || c.outcome != Came::Passed;
    let row = |c: &Check| {
        let state = match c.outcome {
            Came::Passed => "ok".to_owned(),
            Came::Failed => "FAILED".to_owned(),
            Came::Skipped => "skipped".to_owned(),
        };
        [
            state,
            c.check.clone(),
            c.family.to_string(),
            c.variant.to_string(),
            c.promise.clone(),
            c.detail.clone(),
        ]
    };
    let head = ["result", "check", "family", "variant", "promise", "seen"];
    show::out(show::table(
        head,
        report.checks.iter().filter(wanted).map(row),
    ))?;
    let count = |came| report.count(came);
    show::out(format_args!(
        "{} passed, {} failed, {} skipped in {} ms",
        count(Came::Passed),
        count(Came::Failed),
        count(Came::Skipped),
        report.took_ms
    ))
}
