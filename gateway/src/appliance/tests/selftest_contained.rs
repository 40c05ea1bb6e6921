//! Rows of probes in containers: recorded, sealed for, and known to the gateway that comes after.

use std::time::Duration;

use super::lab::*;
use super::selftest::{ask, recorded};
use crate::control::api::{Check, ContainerReport, Family, Outcome, Variant, Why};

fn of_container(outcome: Outcome) -> ContainerReport {
    ContainerReport {
        why: Why::Engine,
        took_ms: 7,
        checks: vec![Check {
            check: "host_tcp".to_owned(),
            family: Family::Ipv4,
            variant: Variant::Hardened,
            outcome,
            promise: "the machine's own services are out of reach".to_owned(),
            detail: "a connection arrived".to_owned(),
        }],
    }
}

#[test]
fn a_failed_row_of_a_container_is_recorded_and_seals_until_its_class_passes_or_somebody_tries_again()
 {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let report =
        |outcome| lab.block(async |c| c.report_containers(&of_container(outcome)).await.unwrap());
    let enforces = || {
        eventually("an enforcing gateway", || {
            let view = lab.block(async |c| c.posture().await.unwrap());
            (view.state == "enforcing").then_some(())
        });
        sandbox.echoes(FAR).unwrap();
    };
    assert_eq!(report(Outcome::Skipped).state, "enforcing");
    assert_eq!(report(Outcome::Passed).state, "enforcing");
    sandbox.echoes(FAR).unwrap();
    for again in [false, true] {
        let sealed = report(Outcome::Failed);
        assert_eq!(sealed.state, "sealed");
        let cause = sealed.cause.unwrap();
        assert!(
            cause.contains("hardened") && cause.contains("a connection arrived"),
            "{cause}"
        );
        sandbox.connects(FAR, Duration::from_secs(2)).unwrap_err();
        // neither the schedule's suite, nor a look, nor another class, nor nothing tried opens it
        ask(&lab);
        let mut other = of_container(Outcome::Passed);
        other.checks[0].variant = Variant::Gvisor;
        lab.block(async |c| c.report_containers(&other).await.unwrap());
        assert_eq!(report(Outcome::Skipped).state, "sealed");
        sandbox.connects(FAR, Duration::from_secs(2)).unwrap_err();
        if again {
            lab.block(async |c| c.try_containers_again().await.unwrap());
        } else {
            report(Outcome::Passed);
        }
        enforces();
    }
    let kept = recorded(&lab);
    let of = |variant| kept.iter().filter(|done| done.variant == variant).count();
    assert_eq!((of(Variant::Hardened), of(Variant::Gvisor)), (7, 2));
    let failed = kept.iter().find(|done| done.failed > 0).unwrap();
    assert_eq!((failed.why.as_str(), failed.rest.len()), ("engine", 1));
}

#[test]
fn a_gateway_that_starts_anew_is_still_sealed_for_a_failed_row_of_a_container() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let report =
        |outcome| lab.block(async |c| c.report_containers(&of_container(outcome)).await.unwrap());
    let anew = || {
        lab.stop();
        lab.try_start(lab.config()).unwrap();
    };
    for again in [false, true] {
        assert_eq!(report(Outcome::Failed).state, "sealed");
        anew();
        eventually("a sealed gateway that says why", || {
            let view = lab.block(async |c| c.posture().await.unwrap());
            let says = |cause: &String| cause.contains("a connection arrived");
            (view.state == "sealed" && view.cause.as_ref().is_some_and(says)).then_some(())
        });
        sandbox.connects(FAR, Duration::from_secs(2)).unwrap_err();
        if again {
            lab.block(async |c| c.try_containers_again().await.unwrap());
        } else {
            report(Outcome::Passed);
        }
        // what passed meanwhile is not held against the next one
        anew();
        eventually("an enforcing gateway", || {
            let view = lab.block(async |c| c.posture().await.unwrap());
            (view.state == "enforcing").then_some(())
        });
        sandbox.echoes(FAR).unwrap();
    }
}
