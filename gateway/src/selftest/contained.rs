//! Rows of probes in containers, as a runner reports them: recorded like the gateway's own, and sealed for when one failed.
//!
//! The gateway touches no engine, so it cannot try these itself and believes whom it lets attach any namespace: such a
//! user could do worse than to seal. Invariant: after a failed row of a class the gateway does not enforce until a later
//! report of that class passed, or an operator has it tried again; a gateway that starts anew knows of it ([`super::kept`]).
//! What was only skipped changes nothing.

use std::sync::Arc;

use super::kept::Failed;
use super::report::{Check, ContainerReport, SelftestDone, SelftestReport, Variant};
use super::{Selftest, cause};
use crate::context::now_ms;
use crate::control::api::Via;
use crate::posture::{Cause, Posture};
use crate::record::Unwritable;

/// A probe has some thirty rows of two classes.
const MOST_ROWS: usize = 256;
/// Octets of any text of a row.
const LONGEST: usize = 1024;

/// Classes that are probes in containers, and who holds the posture for each.
const CLASSES: [(Variant, &str); 2] = [
    (Variant::Hardened, "container hardened"),
    (Variant::Gvisor, "container gvisor"),
];

/// What is wrong with a report, if anything: it is written down as it is.
pub fn mistake(report: &ContainerReport) -> Option<String> {
    if report.checks.is_empty() || report.checks.len() > MOST_ROWS {
        return Some(format!("a report has 1 to {MOST_ROWS} rows"));
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let wrong = |row: &&Check| {
        let texts = [&row.check, &row.promise, &row.detail];
        row.variant == Variant::Namespace
            || row.check.is_empty()
            || !row.check.chars().all(plain)
            || texts.iter().any(|text| text.len() > LONGEST)
    };
    report.checks.iter().find(wrong).map(|row| {
        format!(
            "a row is of a container, has a name of letters, and texts of {LONGEST} octets at most: {:?}",
            row.check.chars().take(40).collect::<String>()
        )
    })
}

/// Writes each class down, then seals or lets go. Blocks while the kernel's rules change.
pub fn take(
    selftest: &Selftest,
    posture: &Arc<Posture>,
    report: &ContainerReport,
) -> Result<(), Unwritable> {
    let _alone = selftest.reports_alone();
    let mut written = Ok(());
    for (variant, holder) in CLASSES {
        let rows = report.checks.iter().filter(|row| row.variant == variant);
        let of_class = SelftestReport {
            checks: rows.cloned().collect(),
            took_ms: report.took_ms,
        };
        if of_class.checks.is_empty() {
            continue;
        }
        let done = SelftestDone::of(&of_class, report.why.word(), now_ms());
        // sealed first: a record that cannot be written keeps nothing open
        let failed = done.failed > 0 && posture.via() == Via::Link;
        if let (Some(cause), true) = (cause(&of_class), failed) {
            seal(posture, holder, &cause.text);
            let failed = Failed {
                class: variant,
                text: cause.text,
            };
            // whoever told it tells it again; sealed it is already
            let kept = selftest.kept.put(failed).map_err(Unwritable);
            written = written.and(kept);
        }
        let passed = of_class.passed();
        let kept = selftest.keep_contained(done);
        if passed && kept.is_ok() {
            remembered(selftest.kept.passed(variant));
            posture.release(holder);
        }
        written = written.and(kept);
    }
    written
}

/// Seals for what rows of containers failed for before this gateway began. Blocks while the kernel's rules change.
pub fn restore(selftest: &Selftest, posture: &Posture) {
    if posture.via() != Via::Link {
        return;
    }
    let failed = selftest.kept.all();
    for (variant, holder) in CLASSES {
        match &failed {
            Ok(all) => {
                if let Some(failed) = all.iter().find(|failed| failed.class == variant) {
                    seal(posture, holder, &failed.text);
                }
            }
            Err(error) => {
                let text = format!(
                    "what selftests in containers failed for before the gateway began cannot be read: {error}"
                );
                seal(posture, holder, &text);
                // a file that says so class by class can be mended class by class
                let class = variant;
                remembered(selftest.kept.put(Failed { class, text }));
            }
        }
    }
}

fn seal(posture: &Posture, holder: &'static str, text: &str) {
    let mended = "mend the engine, then `sallyport selftest --container` tries it again";
    posture.hold(holder, &Cause::new(text, mended));
}

/// What could not be written down holds for this gateway's life.
fn remembered(written: std::io::Result<()>) {
    if let Err(error) = written {
        tracing::error!(%error, "what a selftest in a container sealed for was not kept for the next start");
    }
}

/// Lets go of what rows of containers sealed for, so that a runner can try again.
pub fn try_again(selftest: &Selftest, posture: &Posture) {
    let _alone = selftest.reports_alone();
    remembered(selftest.kept.forget());
    for (_, holder) in CLASSES {
        posture.release(holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selftest::report::{Family, Outcome, Why};

    fn report(change: impl FnOnce(&mut Check)) -> ContainerReport {
        let mut row = Check {
            check: "host_tcp".to_owned(),
            family: Family::Ipv4,
            variant: Variant::Hardened,
            outcome: Outcome::Passed,
            promise: "it is closed".to_owned(),
            detail: "refused".to_owned(),
        };
        change(&mut row);
        ContainerReport {
            why: Why::Asked,
            took_ms: 1,
            checks: vec![row],
        }
    }

    #[test]
    fn a_report_is_of_containers_and_of_bounded_texts() {
        assert_eq!(mistake(&report(|_| {})), None);
        let wrong: [fn(&mut Check); 4] = [
            |row| row.variant = Variant::Namespace,
            |row| row.check = "host tcp\n".to_owned(),
            |row| row.check = String::new(),
            |row| row.detail = "x".repeat(LONGEST + 1),
        ];
        for change in wrong {
            assert!(mistake(&report(change)).is_some());
        }
        let mut none = report(|_| {});
        none.checks.clear();
        assert!(mistake(&none).is_some());
        let mut many = report(|_| {});
        many.checks = vec![many.checks[0].clone(); MOST_ROWS + 1];
        assert!(mistake(&many).is_some());
    }
}
