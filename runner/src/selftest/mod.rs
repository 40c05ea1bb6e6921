//! The selftest's probes in containers: one for each isolation class that the engine has, reported to the gateway.
//!
//! The gateway touches no engine, so the runner makes these probes, like any other run, and says what they saw: the
//! gateway records it and seals when a row failed. Owns the order and the report; refuses to own the posture. Failure
//! stance: what could not be tried is a skipped row that says why; a class in which something failed is tried once
//! more, because a machine may be too busy to answer in time, and a failed row stands until somebody mends it.

mod attempts;
mod probe;

use std::sync::Arc;
use std::time::Instant;

use gateway::control::api::{Check, ContainerReport, Family, Outcome, Variant, Why};
use serde::{Deserialize, Serialize};

use crate::Runner;
use crate::job::IsolationChoice;
use crate::sandbox::Isolation;

const CLASSES: [(Isolation, IsolationChoice, Variant); 2] = [
    (
        Isolation::Hardened,
        IsolationChoice::Hardened,
        Variant::Hardened,
    ),
    (Isolation::Gvisor, IsolationChoice::Gvisor, Variant::Gvisor),
];

/// What a selftest is asked for with.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SelftestRequest {
    /// Ports of a console, which no sandbox may reach.
    pub console: Vec<u16>,
}

/// Tries every class and has the gateway record it; the rows, with one more where they could not be recorded.
pub async fn perform(runner: &Arc<Runner>, why: Why, console: &[u16]) -> Vec<Check> {
    // two at a time would only slow each other down
    let _one = runner.probing.lock().await;
    // without a kernel part sandboxes have no link: there the gateway's own suite tries all that there is
    match runner.pods.gateway.posture().await {
        Ok(posture) if posture.state == "enforcing" => {}
        Ok(posture) => return untried(&format!("the gateway does not enforce: {}", posture.label)),
        Err(error) => return untried(&gateway::control::problems::chain(&error)),
    }
    let began = Instant::now();
    let mut checks = Vec::new();
    for class in CLASSES {
        checks.extend(rows(runner, class, console).await);
    }
    let report = ContainerReport {
        why,
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        checks,
    };
    let told = runner.pods.gateway.report_containers(&report).await;
    let mut checks = report.checks;
    if let Err(error) = told {
        let error = gateway::control::problems::chain(&error);
        tracing::warn!(error, "what containers showed was not recorded");
        checks.push(Check {
            check: "container_record".to_owned(),
            family: Family::Both,
            variant: Variant::Hardened,
            outcome: Outcome::Skipped,
            promise: "the gateway records rows of containers, and seals for them".to_owned(),
            detail: error,
        });
    }
    checks
}

/// Rows of no class at all.
fn untried(why: &str) -> Vec<Check> {
    let classes = CLASSES.iter();
    classes
        .map(|(_, _, variant)| skipped(*variant, why))
        .collect()
}

/// Rows of one class.
async fn rows(
    runner: &Arc<Runner>,
    (class, choice, variant): (Isolation, IsolationChoice, Variant),
    console: &[u16],
) -> Vec<Check> {
    let facts = runner.pods.backend.facts();
    if !facts.isolation.contains(&class) {
        let why = format!("{} has no such isolation", facts.name);
        return vec![skipped(variant, &why)];
    }
    let mut tried = probe::one(runner, (choice, variant), console).await;
    let failed = |rows: &Vec<Check>| rows.iter().any(|row| row.outcome == Outcome::Failed);
    if tried.as_ref().is_ok_and(failed) {
        tried = probe::one(runner, (choice, variant), console).await;
    }
    tried.unwrap_or_else(|why| {
        vec![skipped(
            variant,
            &format!("the probe could not be run: {why}"),
        )]
    })
}

/// A row that says why there is no probe of a class.
fn skipped(variant: Variant, why: &str) -> Check {
    Check {
        check: "container".to_owned(),
        family: Family::Both,
        variant,
        outcome: Outcome::Skipped,
        promise: "a sandbox in a container is held back".to_owned(),
        detail: why.chars().take(attempts::LONGEST).collect(),
    }
}
