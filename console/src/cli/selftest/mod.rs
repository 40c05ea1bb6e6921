//! `sallyport selftest`: the gateway's own proof from probe sandboxes on this machine.

use gateway::control::api::{Check, Family, Outcome as Came, PostureView, SelftestReport, Variant};
use runner::selftest::SelftestRequest;

use super::run::services::Services;
use super::{Shared, wait};
use crate::config::Config;
use crate::exit::{Outcome, Verdict};
use crate::show::{self, Format};

const HELP: &str = "\
The gateway attaches two probe sandboxes, sends every kind of packet and frame that no policy lets through from one of \
them, in both families, and watches the uplink, the other sandbox and the machine's own listeners: none may arrive. Then \
a policy permits one of these listeners, and it must be reached. Nothing is sent to other machines.

The gateway runs the same table before it enforces, after each repair of its kernel rules, and on a schedule \
(`gateway.selftest.every`); the outcome is in the record (`sallyport record export`), the newest one in `sallyport doctor`. \
A check that fails seals the gateway until one passes.

Where a runner answers, a sandbox in a container of each isolation class of its engine is a probe too (`variant` \
hardened or gvisor): no link but the gateway's, no capabilities, no engine's socket, what is denied is refused and does not \
leave, and a permitted listener of this machine answers. The runner reports these rows, the gateway records them, and one \
that failed (twice) seals the gateway until the engine is mended and `--container` tries it again. A runner does the same by \
itself when its engine was restarted, or engine or kernel are not what they were.

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
    /// Start a runner for the probes in containers if none answers
    #[arg(long)]
    container: bool,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    let config = shared.load()?;
    let client = shared.gateway()?;
    let (report, posture) = wait(async {
        if arguments.container {
            client.try_containers_again().await?;
        }
        let mut report = client.selftest().await?;
        let began = std::time::Instant::now();
        // where nothing is enforced a container would show the same as the socket's rows
        let contained = match client.posture().await? {
            posture if posture.state == "enforcing" => {
                contained(&config, arguments, shared).await?
            }
            posture => untried(&format!("the gateway does not enforce: {}", posture.label)),
        };
        report.checks.extend(contained);
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        report.took_ms = report.took_ms.saturating_add(took);
        Ok((report, client.posture().await?))
    })?;
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

/// Rows of the probes in containers, by the runner that answers or one that is started for them.
async fn contained(
    config: &Config,
    arguments: &Arguments,
    shared: &Shared,
) -> Result<Vec<Check>, crate::exit::Failure> {
    if !arguments.container {
        return tried(config).await;
    }
    let services = Services::ready(config, shared.config.as_deref(), true).await?;
    let rows = tried(config).await;
    services.release().await;
    rows
}

/// Rows of the runner that answers; without one, rows that say so.
async fn tried(config: &Config) -> Result<Vec<Check>, crate::exit::Failure> {
    let client = runner::Client::new(&config.runner.socket);
    if let Err(error) = client.health().await {
        let why = crate::exit::Failure::from_error(&error).message;
        return Ok(untried(&format!(
            "no runner answers, `--container` starts one: {why}"
        )));
    }
    let console = config.console.ports();
    Ok(client.selftest(&SelftestRequest { console }).await?)
}

/// Rows that say why no container was tried.
fn untried(why: &str) -> Vec<Check> {
    let row = |variant| Check {
        check: "container".to_owned(),
        family: Family::Both,
        variant,
        outcome: Came::Skipped,
        promise: "a sandbox in a container is held back".to_owned(),
        detail: why.to_owned(),
    };
    [Variant::Hardened, Variant::Gvisor].map(row).into()
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
