//! Budgets on live flows.

use std::time::{Duration, Instant};

use gateway::limits::{Ceilings, Ledger, Used};
use netpolicy::policy::Limits;

use crate::lab::{OTHER, accept, eventually, is_reset, read, rest, run, write};

const UPLOAD: &str = "policy: p\nnetwork: domains\nallow:\n  - host: ok.net\n    ports: [22]\n    speaks: any\nlimits: { upload: 1MiB, download: 1MiB }\n";
const FLOWS: &str = "policy: p\nnetwork: domains\nallow:\n  - host: ok.net\n    ports: [22]\n    speaks: any\nlimits: { flows: 2 }\n";
const BANDWIDTH: &str = "policy: p\nnetwork: domains\nallow:\n  - host: ok.net\n    ports: [22]\n    speaks: any\nlimits: { bandwidth: 1MiB }\n";

#[test]
fn an_upload_budget_ends_the_flow_and_nothing_over_it_passes() {
    run(UPLOAD, |lab| async move {
        let origin = lab.origin(22).await;
        lab.door(22);
        let mut client = lab.connect(lab.lease("ok.net"), 22);
        let mut server = accept(&origin).await;
        let bytes = vec![0; 1 << 20];
        let ((), got) = tokio::join!(write(&mut client, &bytes), read(&mut server, bytes.len()));
        assert_eq!(got.len(), 1 << 20);
        write(&mut client, b"one more").await;
        assert!(is_reset(&rest(&mut server).await));
        assert!(is_reset(&rest(&mut client).await));
        let mut next = lab.connect(lab.lease("ok.net"), 22);
        assert!(is_reset(&rest(&mut next).await));
        assert_eq!(lab.ends(1).await, ["limit_upload"]);
        assert_eq!(lab.denials(), ["limit_upload"]);
    });
}

#[test]
fn a_download_budget_ends_the_flow() {
    run(UPLOAD, |lab| async move {
        let origin = lab.origin(22).await;
        lab.door(22);
        let mut client = lab.connect(lab.lease("ok.net"), 22);
        let server = accept(&origin).await;
        let flood = async {
            let bytes = vec![0; 1 << 16];
            loop {
                server.writable().await.unwrap();
                if matches!(server.try_write(&bytes), Err(error) if error.kind() != std::io::ErrorKind::WouldBlock)
                {
                    return;
                }
            }
        };
        let (got, ()) = tokio::join!(rest(&mut client), flood);
        assert!(is_reset(&got));
        assert_eq!(lab.ends(1).await, ["limit_download"]);
    });
}

#[test]
fn net_48_a_full_network_is_denied_and_its_neighbour_is_served() {
    run(FLOWS, |lab| async move {
        let origin = lab.origin(22).await;
        lab.door(22);
        let (first, _second) = (
            lab.connect(lab.lease("ok.net"), 22),
            lab.connect(lab.lease("ok.net"), 22),
        );
        let (server, _other) = (accept(&origin).await, accept(&origin).await);
        let mut third = lab.connect(lab.lease("ok.net"), 22);
        assert!(is_reset(&rest(&mut third).await));
        let name = netpolicy::name::Name::parse("ok.net").unwrap();
        let lease = lab.other.leases.lease(&name).unwrap().0;
        let _neighbour = lab.connect_as(OTHER, lease, 22);
        accept(&origin).await;
        drop((first, server));
        eventually(|| (lab.network.ledger.flows() < 2).then_some(())).await;
        let _fourth = lab.connect(lab.lease("ok.net"), 22);
        accept(&origin).await;
        assert_eq!(lab.denials(), ["limit_flows"]);
    });
}

#[test]
fn bandwidth_is_kept_in_both_directions() {
    run(BANDWIDTH, |lab| async move {
        let origin = lab.origin(22).await;
        lab.door(22);
        let mut client = lab.connect(lab.lease("ok.net"), 22);
        let mut server = accept(&origin).await;
        let bytes = vec![0; 5 << 19];
        let began = Instant::now();
        let ((), got) = tokio::join!(write(&mut client, &bytes), read(&mut server, bytes.len()));
        assert_eq!(got.len(), bytes.len());
        // 2.5 MiB at 1 MiB a second after a burst of 1 MiB, the last pause not counted
        assert!(
            began.elapsed() > Duration::from_millis(900),
            "{:?}",
            began.elapsed()
        );
    });
}

#[test]
fn net_27_few_descriptors_deny_flows_and_never_break_accept() {
    let ceilings = Ceilings::from_descriptors(256);
    let limits = Limits {
        flows: Some(100_000),
        rate: Some(100_000),
        ..Limits::default()
    };
    let (greedy, other) = (
        Ledger::new(&limits, Used::default()),
        Ledger::new(&limits, Used::default()),
    );
    let held: Vec<_> = std::iter::from_fn(|| greedy.admit(&ceilings).ok()).collect();
    assert!(!held.is_empty() && held.len() * 4 < 256);
    assert!(other.admit(&ceilings).is_ok());
}
