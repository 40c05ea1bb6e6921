//! Gateways that die, stop cleanly and come back: what is adopted, what is removed, what is written down.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::lab::*;
use crate::record::Entry;

#[test]
fn nothing_passes_while_the_gateway_is_dead_and_a_new_one_adopts_its_networks() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let old = sandbox.echoes(FAR).unwrap();
    eventually("the budget on disk", || {
        let state = std::fs::read_to_string(
            lab.config()
                .run_dir
                .join(format!("networks/{}/state.json", sandbox.view.id)),
        )
        .unwrap();
        state.contains("\"upload\":5").then_some(())
    });
    lab.kill();
    let connections = lab.connections.load(Ordering::Relaxed);
    assert!(sandbox.connects(FAR, Duration::from_millis(300)).is_err());
    assert!(
        sandbox
            .connects(ELSEWHERE, Duration::from_millis(300))
            .is_err()
    );
    assert_eq!(lab.connections.load(Ordering::Relaxed), connections);
    lab.start(lab.config());
    let view = lab.block(async |c| c.network(&sandbox.view.id).await.unwrap());
    assert_eq!(
        (view.v4, view.policy, view.used.upload),
        (sandbox.view.v4, sandbox.view.policy, 5)
    );
    eventually("the reset of the old flow", || is_over(&old).then_some(()));
    assert!(sandbox.echoes(ELSEWHERE).is_err());
    sandbox.echoes(FAR).unwrap();
    let changes: Vec<String> = records(&lab)
        .into_iter()
        .filter_map(|l| {
            if let Entry::Network(n) = l.entry {
                (n.network == sandbox.view.id).then_some(n.change)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(changes, ["attached", "adopted"]);
}

#[test]
fn a_clean_stop_records_the_end_of_every_flow_and_leaves_no_gap() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let _stream = sandbox.echoes(FAR).unwrap();
    lab.stop();
    let report = crate::record::verify(&lab.config().journal.dir).unwrap();
    assert!(report.ok() && report.gaps.is_empty(), "{report:?}");
    lab.start(lab.config());
    sandbox.echoes(FAR).unwrap();
    let ends: Vec<String> = records(&lab)
        .into_iter()
        .filter_map(|l| {
            if let Entry::Close(c) = l.entry {
                Some(c.end)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(ends[0], "gateway_sealed");
}

#[test]
fn state_without_a_link_and_a_link_without_state_are_both_removed() {
    let lab = Lab::started();
    let (lost, strange, whole) = (
        lab.attach(&far_only()),
        lab.attach(&far_only()),
        lab.attach(&far_only()),
    );
    lab.kill();
    let link = |id| crate::network::allot::link_name(id);
    lab.in_gateway(&format!("ip link del {}", link(&lost.view.id)));
    std::fs::remove_dir_all(
        lab.config()
            .run_dir
            .join(format!("networks/{}", strange.view.id)),
    )
    .unwrap();
    lab.start(lab.config());
    let left: Vec<_> = lab
        .block(async |c| c.networks().await.unwrap())
        .into_iter()
        .map(|n| n.id)
        .collect();
    assert_eq!(left, std::slice::from_ref(&whole.view.id));
    whole.echoes(FAR).unwrap();
    assert!(strange.connects(FAR, Duration::from_millis(300)).is_err());
}

#[test]
fn a_sandbox_that_vanishes_after_a_restart_seals_nobody() {
    let lab = Lab::started();
    let (gone, kept) = (lab.attach(&far_only()), lab.attach(&far_only()));
    lab.kill();
    lab.start(lab.config());
    let id = gone.view.id.clone();
    drop(gone);
    eventually("the loss", || {
        lab.block(async |c| c.network(&id).await).err()
    });
    kept.echoes(FAR).unwrap();
    let causes: Vec<String> = records(&lab)
        .into_iter()
        .filter_map(|l| match l.entry {
            Entry::Posture { cause, .. } if !cause.is_empty() => Some(cause),
            _ => None,
        })
        .collect();
    assert_eq!(causes, Vec::<String>::new());
}
