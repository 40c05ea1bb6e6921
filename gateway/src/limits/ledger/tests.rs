//! Budgets are spent, denied with their own reasons, kept over a restart and shared under the ceilings.

use super::*;

fn ceilings() -> Ceilings {
    Ceilings::from_descriptors(100_000)
}

#[test]
fn one_flow_more_than_the_limit_is_denied_until_one_ends() {
    let ledger = Ledger::new(
        &Limits {
            flows: Some(2),
            ..Limits::default()
        },
        Used::default(),
    );
    let ceilings = ceilings();
    let first = ledger.admit(&ceilings).unwrap();
    let _second = ledger.admit(&ceilings).unwrap();
    assert_eq!(ledger.admit(&ceilings).unwrap_err(), Reason::LimitFlows);
    drop(first);
    assert!(ledger.admit(&ceilings).is_ok());
    assert_eq!(ledger.flows(), 1);
}

#[test]
fn new_flows_beyond_the_rate_are_denied() {
    let ledger = Ledger::new(
        &Limits {
            rate: Some(5),
            ..Limits::default()
        },
        Used::default(),
    );
    let (ceilings, now) = (ceilings(), Instant::now());
    let admitted = (0..50)
        .filter(|_| ledger.admit_at(&ceilings, now).is_ok())
        .count();
    assert_eq!(admitted, 10);
    assert_eq!(
        ledger.admit_at(&ceilings, now).unwrap_err(),
        Reason::LimitRate
    );
    assert!(
        ledger
            .admit_at(&ceilings, now + Duration::from_secs(1))
            .is_ok()
    );
}

#[test]
fn a_used_up_budget_ends_flows_and_admits_none_also_after_a_restart() {
    let limits = Limits {
        upload: Some(100),
        download: Some(50),
        ..Limits::default()
    };
    let ledger = Ledger::new(&limits, Used::default());
    assert_eq!(ledger.upload(100), Ok(()));
    assert_eq!(ledger.upload(1), Err(Reason::LimitUpload));
    assert_eq!(ledger.download(50), Ok(()));
    assert_eq!(ledger.download_left(), 0);
    let restored = Ledger::new(&limits, ledger.used());
    assert_eq!(
        restored.admit(&ceilings()).unwrap_err(),
        Reason::LimitUpload
    );
    restored.set_limits(&Limits {
        upload: Some(1000),
        download: Some(1000),
        ..Limits::default()
    });
    assert!(restored.admit(&ceilings()).is_ok());
}

#[test]
fn names_and_records_have_their_own_reasons() {
    let limits = Limits {
        names: Some(1),
        records: Some(1),
        ..Limits::default()
    };
    let ledger = Ledger::new(&limits, Used::default());
    assert_eq!(ledger.name(), Ok(()));
    assert_eq!(ledger.name(), Err(Reason::LimitNames));
    assert_eq!(ledger.record(), Ok(()));
    assert_eq!(ledger.record(), Err(Reason::LimitRecords));
    assert_eq!(ledger.used().names, 1);
    assert_eq!(ledger.admit(&ceilings()).unwrap_err(), Reason::LimitRecords);
}

#[test]
fn at_the_global_ceiling_a_flow_is_denied_and_another_network_is_served() {
    let ceilings = Ceilings::from_descriptors(512);
    let limits = Limits {
        flows: Some(10_000),
        rate: Some(10_000),
        ..Limits::default()
    };
    let (greedy, modest) = (
        Ledger::new(&limits, Used::default()),
        Ledger::new(&limits, Used::default()),
    );
    let held: Vec<_> = std::iter::from_fn(|| greedy.admit(&ceilings).ok()).collect();
    assert_eq!(held.len(), ceilings.flows().1.div_ceil(2));
    assert!(held.len() > 16);
    assert_eq!(greedy.admit(&ceilings).unwrap_err(), Reason::LimitFlows);
    assert!(modest.admit(&ceilings).is_ok());
}

#[test]
fn bandwidth_paces_and_no_bandwidth_does_not() {
    let free = Ledger::new(&Limits::default(), Used::default());
    assert_eq!(free.pace_up(u64::from(u32::MAX)), Duration::ZERO);
    let paced = Ledger::new(
        &Limits {
            bandwidth: Some(100_000),
            ..Limits::default()
        },
        Used::default(),
    );
    assert_eq!(paced.pace_down(100_000), Duration::ZERO);
    assert!(paced.pace_down(50_000) > Duration::from_millis(400));
    assert_eq!(paced.pace_up(1), Duration::ZERO);
}
