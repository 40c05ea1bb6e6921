//! A policy replaced under live traffic: what it forbids ends, what it permits goes on, a broken one changes nothing.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netpolicy::decide::Evidence;

use super::lab::*;
use crate::kernel::pace::Pace;
use crate::network::flows::{Door, FlowFacts};
use crate::record::Entry;

#[test]
fn a_tightened_policy_cuts_what_it_forbids_within_two_seconds_and_keeps_what_it_permits() {
    let lab = Lab::started();
    let both = format!(
        "policy: both\nnetwork: domains\nallow:\n  - cidr: {FAR}/32\n    ports: [7]\n  - cidr: {ELSEWHERE}/32\n    ports: [7]\n"
    );
    let sandbox = lab.attach(&both);
    let (kept, cut) = (
        sandbox.echoes(FAR).unwrap(),
        sandbox.echoes(ELSEWHERE).unwrap(),
    );
    let (pace, began) = (Pace::watch(), Instant::now());
    let replaced = lab.block(async |c| {
        c.replace_policy(&sandbox.view.id, &document(&far_only()))
            .await
            .unwrap()
    });
    assert_eq!((replaced.generation.0, replaced.cut), (2, 1));
    assert_ne!(replaced.policy, sandbox.view.policy);
    assert_eq!(
        sandbox.echoes(ELSEWHERE).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    eventually("the cut", || is_over(&cut).then_some(()));
    assert!(
        began.elapsed() < pace.stretches(Duration::from_secs(2)),
        "{:?}",
        began.elapsed()
    );
    assert!(!is_over(&kept));
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
    assert_eq!(ends, ["policy_superseded"]);
}

#[test]
fn a_broken_replacement_changes_nothing() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let stream = sandbox.echoes(FAR).unwrap();
    for text in [
        "policy: x\nnetwork: all\n",
        "",
        "policy: x\nnetwork: domains\nunknown: ask\n",
    ] {
        let error = lab.block(async |c| {
            c.replace_policy(&sandbox.view.id, &document(text))
                .await
                .unwrap_err()
        });
        assert_eq!(error.problem().unwrap().status, 422, "{error}");
    }
    let view = lab.block(async |c| c.network(&sandbox.view.id).await.unwrap());
    assert_eq!(
        (view.policy, view.generation),
        (sandbox.view.policy, sandbox.view.generation)
    );
    assert!(!is_over(&stream));
    sandbox.echoes(FAR).unwrap();
}

#[test]
fn a_hundred_replacements_never_let_a_denied_flow_through() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let policies = [
        document(&far_only()),
        document(&far_only().replace("policy: far", "policy: again")),
    ];
    lab.block(async |c| {
        for round in 0..100 {
            c.replace_policy(&sandbox.view.id, &policies[round % 2])
                .await
                .unwrap();
            if round % 10 == 0 {
                assert!(sandbox.connects(ELSEWHERE, Duration::from_secs(5)).is_err());
            }
        }
    });
    assert_eq!(lab.connections.load(Ordering::Relaxed), 0);
    sandbox.echoes(FAR).unwrap();
    let view = lab.block(async |c| c.network(&sandbox.view.id).await.unwrap());
    assert_eq!(view.generation.0, 101);
}

#[test]
fn a_server_is_known_as_cut_when_the_connection_with_it_is() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let _stream = sandbox.echoes(FAR).unwrap();
    let network = lab.within().ctx.networks.by_id(&sandbox.view.id).unwrap();
    let like = network.flows.all().remove(0);
    // a session of QUIC whose task is late: nobody but the cut says that it ended
    let guard = network.flows.open(FlowFacts {
        door: Door::Udp,
        source: like.source,
        destination: like.destination,
        upstream: like.upstream,
        intent: like.intent.clone(),
        ground: like.ground.clone(),
        opened_ms: like.opened_ms,
    });
    let hello = Evidence::Tls { name: None };
    guard.flow.evidence.lock().unwrap().push(hello);
    let is_known = || {
        let server = guard.flow.server();
        network
            .connections
            .known(server, &mut None, Instant::now())
            .cut
    };
    assert!(!is_known());
    let none = document("policy: nothing\nnetwork: none\n");
    let replaced = lab.block(async |c| c.replace_policy(&sandbox.view.id, &none).await.unwrap());
    assert_eq!(replaced.cut, 2);
    assert!(guard.flow.cut.is_cancelled() && is_known());
}
