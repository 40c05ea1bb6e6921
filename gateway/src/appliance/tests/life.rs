//! The whole life of networks: used, ended by the hundred, uninstalled, on a full disk, at the cost that was promised.

use std::io::{ErrorKind, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::lab::*;
use crate::config::GatewayConfig;
use crate::kernel::pace::Pace;
use crate::record::Entry;

#[test]
fn what_no_rule_names_is_refused_and_what_one_names_is_reached_and_recorded() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let refused = sandbox.echoes(ELSEWHERE).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let stream = sandbox.echoes(FAR).unwrap();
    let flows = lab.block(async |c| c.flows(Some(&sandbox.view.id)).await.unwrap());
    assert_eq!(
        (flows.len(), flows[0].up, flows[0].upstream.to_string()),
        (1, 5, format!("{FAR}:7"))
    );
    assert!(
        flows[0]
            .rule
            .as_ref()
            .is_some_and(|at| &*at.file == "job.yaml" && at.line == 4)
    );
    drop(stream);
    eventually("the flow's end", || {
        lab.block(async |c| c.flows(None).await.unwrap())
            .is_empty()
            .then_some(())
    });
    let records = records(&lab);
    let denials = records.iter().filter(|l| matches!(&l.entry, Entry::Denial(d) if d.subject.address == Some(ELSEWHERE.parse().unwrap()))).count();
    let closes = records
        .iter()
        .filter(|l| matches!(&l.entry, Entry::Close(c) if c.up == 5 && c.down == 5))
        .count();
    assert_eq!((denials, closes), (1, 1));
}

#[test]
fn an_upload_ends_with_its_network() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let mut stream = sandbox.echoes(FAR).unwrap();
    stream
        .set_write_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let (pace, began) = (Pace::watch(), Instant::now());
    lab.block(async |c| c.detach(&sandbox.view.id).await.unwrap());
    let end = eventually("the end of the upload", || {
        stream.write_all(&[1; 1024]).err()
    });
    assert!(
        matches!(
            end.kind(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        ),
        "{end}"
    );
    assert!(began.elapsed() < pace.stretches(Duration::from_secs(2)));
    assert!(lab.block(async |c| c.networks().await.unwrap()).is_empty());
    let after = lab.arrived.load(Ordering::Relaxed);
    assert!(sandbox.connects(FAR, Duration::from_millis(300)).is_err());
    assert_eq!(lab.arrived.load(Ordering::Relaxed), after);
}

#[test]
fn uninstalling_leaves_nothing_behind() {
    let lab = Lab::started();
    let _sandbox = lab.attach(&far_only());
    lab.stop();
    let namespace = std::path::PathBuf::from("/run/netns").join(&lab.config().namespace);
    assert!(namespace.exists());
    crate::appliance::uninstall(&lab.config()).unwrap();
    assert!(
        !namespace.exists()
            && !lab.config().run_dir.join("networks").exists()
            && !lab.socket().exists()
    );
}

#[test]
fn a_second_gateway_that_shares_anything_is_refused_and_disturbs_nothing_and_one_that_shares_nothing_runs()
 {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let kept = sandbox.echoes(FAR).unwrap();
    let (own, dir) = (lab.config(), tempfile::tempdir().unwrap());
    let apart = || GatewayConfig {
        namespace: format!("{}b", lab.name),
        uplink: own.uplink,
        resolvers: own.resolvers.clone(),
        ..GatewayConfig::under(&dir.path().join("state"), &dir.path().join("run"))
    };
    let mut sharing = [apart(), apart(), apart(), apart()];
    let [state, run, journal, namespace] = &mut sharing;
    state.state_dir.clone_from(&own.state_dir);
    run.run_dir.clone_from(&own.run_dir);
    journal.journal.dir.clone_from(&own.journal.dir);
    namespace.namespace.clone_from(&own.namespace);
    let shared = [
        own.state_dir.clone(),
        own.run_dir.clone(),
        own.journal.dir.clone(),
        std::path::Path::new("/run/netns").join(&own.namespace),
    ];
    for (config, shared) in sharing.into_iter().zip(shared) {
        let error = lab.try_start(config).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("another gateway uses {}", shared.display())
        );
        assert!(error.hint().contains("gateway.namespace"));
    }
    assert!(!is_over(&kept));
    sandbox.echoes(FAR).unwrap();
    assert!(lab.block(async |c| c.health().await.unwrap()).open);
    lab.beside(apart());
}

#[test]
fn a_full_disk_refuses_new_flows_and_one_with_room_takes_them() {
    let lab = Lab::new();
    let disk = Disk::mount(&lab.dir.path().join("disk"));
    let mut config = lab.config();
    config.journal = crate::record::JournalConfig {
        ahead_bytes: 128 << 10,
        ..crate::record::JournalConfig::under(&disk.0)
    };
    lab.start(config);
    let sandbox = lab.attach(&far_only());
    sandbox.echoes(FAR).unwrap();
    let filler = disk.0.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let before = lab.connections.load(Ordering::Relaxed);
    eventually("a refusal", || sandbox.echoes(FAR).err());
    let during = lab.connections.load(Ordering::Relaxed);
    assert!(sandbox.echoes(FAR).is_err());
    assert!(!lab.block(async |c| c.health().await.unwrap()).journal);
    assert_eq!(lab.arrived.load(Ordering::Relaxed) % 5, 0);
    assert!(during >= before);
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    eventually("room", || sandbox.echoes(FAR).ok());
}

#[test]
fn attach_costs_no_more_with_many_networks_and_detach_is_quick() {
    let lab = Lab::started();
    let timed = || {
        let began = Instant::now();
        let sandbox = lab.attach(&far_only());
        (began.elapsed(), sandbox)
    };
    let first = (0..5).map(|_| timed().0).min().unwrap();
    let crowd: Vec<Sandbox> = (0..60).map(|_| timed().1).collect();
    let last = (0..5).map(|_| timed().0).min().unwrap();
    // Wide, for a busy machine: what must not happen is growth with the number of networks.
    assert!(
        last < first * 4 + Duration::from_millis(20),
        "{first:?} then {last:?}"
    );
    let (pace, began) = (Pace::watch(), Instant::now());
    lab.block(async |c| c.detach(&crowd[0].view.id).await.unwrap());
    assert!(
        began.elapsed() < pace.stretches(Duration::from_millis(500)),
        "{:?}",
        began.elapsed()
    );
}
