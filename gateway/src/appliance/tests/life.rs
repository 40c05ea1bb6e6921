//! What networks and flows live through: policies replaced, networks ended, gateways killed, rules flushed.

use std::io::{ErrorKind, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::lab::*;
use crate::config::GatewayConfig;
use crate::record::{Entry, Line};

fn records(lab: &Lab) -> Vec<Line> {
    lab.block(async |c| {
        let mut lines = c.records(0).await.unwrap();
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        all
    })
}

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
    let began = Instant::now();
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
        began.elapsed() < Duration::from_secs(2),
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
fn an_upload_ends_with_its_network() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let mut stream = sandbox.echoes(FAR).unwrap();
    stream
        .set_write_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let began = Instant::now();
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
    assert!(began.elapsed() < Duration::from_secs(2));
    assert!(lab.block(async |c| c.networks().await.unwrap()).is_empty());
    let after = lab.arrived.load(Ordering::Relaxed);
    assert!(sandbox.connects(FAR, Duration::from_millis(300)).is_err());
    assert_eq!(lab.arrived.load(Ordering::Relaxed), after);
}

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
fn flushed_rules_seal_are_repaired_and_let_nothing_out_meanwhile() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let before = lab.block(async |c| c.posture().await.unwrap());
    assert_eq!(
        (before.state.as_str(), before.label.as_str()),
        ("enforcing", "Private networks blocked")
    );
    lab.in_gateway("nft flush ruleset");
    let after = eventually("the next generation", || {
        assert!(
            sandbox
                .connects(ELSEWHERE, Duration::from_millis(100))
                .is_err()
        );
        lab.block(async |c| c.posture().await.ok())
            .filter(|p| p.state == "enforcing" && p.generation > before.generation)
    });
    assert!(after.cause.is_none());
    sandbox.echoes(FAR).unwrap();
    let sealed = records(&lab).iter().filter(|l| matches!(&l.entry, Entry::Posture { state, cause, .. } if state == "Not enforced" && !cause.is_empty())).count();
    assert!(sealed >= 1);
}

#[test]
fn a_network_whose_link_is_deleted_is_gone_and_the_others_live_on() {
    let lab = Lab::started();
    let (lost, kept) = (lab.attach(&far_only()), lab.attach(&far_only()));
    lab.in_gateway(&format!(
        "ip link del {}",
        crate::network::allot::link_name(&lost.view.id)
    ));
    eventually("the loss to be noticed", || {
        lab.block(async |c| c.network(&lost.view.id).await).err()
    });
    eventually("an enforcing gateway", || {
        lab.block(async |c| c.health().await)
            .ok()
            .filter(|h| h.open)
    });
    kept.echoes(FAR).unwrap();
}

#[test]
fn a_broken_floor_seals_and_a_repaired_one_opens() {
    let lab = Lab::new();
    let floor = lab.dir.path().join("floor.yaml");
    write(&floor, "policy: floor\nnetwork: nonsense\n");
    let mut config: GatewayConfig = lab.config();
    config.floors.instance = Some(floor.clone());
    lab.try_start(config).unwrap();
    let posture = lab.block(async |c| c.posture().await.unwrap());
    assert_eq!(
        (posture.state.as_str(), posture.label.as_str()),
        ("sealed", "Not enforced")
    );
    let refused = lab.try_attach(&request(&far_only())).err().unwrap();
    assert_eq!(refused.problem().unwrap().code, "sealed");
    assert!(
        refused.problem().unwrap().message.contains("floor.yaml"),
        "{refused}"
    );
    write(&floor, "policy: floor\nnetwork: internet\n");
    eventually("an enforcing gateway", || {
        lab.block(async |c| c.health().await)
            .ok()
            .filter(|h| h.open)
    });
    let sandbox = lab.attach(&far_only());
    sandbox.echoes(FAR).unwrap();
    // A floor that is tightened under a running network narrows it.
    write(&floor, "policy: floor\nnetwork: none\n");
    eventually("the narrower floor", || {
        sandbox.connects(FAR, Duration::from_secs(1)).err()
    });
    write(&floor, "not a policy");
    eventually("the seal", || {
        lab.block(async |c| c.posture().await.ok())
            .filter(|p| p.state == "sealed")
    });
}

#[test]
fn a_repaired_floor_does_not_open_what_something_else_seals() {
    let lab = Lab::new();
    let floor = lab.dir.path().join("floor.yaml");
    write(&floor, "policy: floor\nnetwork: nonsense\n");
    let mut config: GatewayConfig = lab.config();
    config.floors.instance = Some(floor.clone());
    // the lab's uplink is not the machine's own namespace
    config.uplink = crate::config::Uplink::Host;
    lab.try_start(config).unwrap();
    let cause = || {
        lab.block(async |c| c.posture().await.ok())
            .and_then(|p| p.cause)
    };
    eventually("the floor's cause", || {
        cause().filter(|c| c.contains("floor.yaml"))
    });
    write(&floor, "policy: floor\nnetwork: internet\n");
    eventually("the other cause alone", || {
        cause().filter(|c| c.contains("network namespace"))
    });
    assert!(!lab.block(async |c| c.health().await.unwrap()).open);
}

#[test]
fn an_address_that_the_machine_gets_becomes_the_host_for_live_networks_too() {
    let lab = Lab::started();
    let sandbox = lab.attach("policy: open\nnetwork: internet\n");
    let stream = sandbox.echoes(FAR).unwrap();
    ip(&format!("-n {}u addr add {FAR}/32 dev lo", lab.name));
    eventually("the cut", || is_over(&stream).then_some(()));
    let denied = eventually("the denial", || {
        sandbox.connects(FAR, Duration::from_secs(1)).err()
    });
    assert_eq!(denied.kind(), ErrorKind::ConnectionRefused);
    ip(&format!("-n {}u addr del {FAR}/32 dev lo", lab.name));
    eventually("the way back", || sandbox.echoes(FAR).ok());
}

#[test]
fn the_selftest_passes_on_a_sound_gateway() {
    let lab = Lab::started();
    let report = lab.block(async |c| c.selftest().await.unwrap());
    let failed: Vec<_> = report.probes.iter().filter(|p| !p.passed).collect();
    assert!(report.passed(), "{failed:#?}");
    assert!(report.probes.len() >= 13, "{}", report.probes.len());
    assert!(lab.block(async |c| c.networks().await.unwrap()).is_empty());
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
fn a_sandbox_that_got_a_second_interface_loses_its_network_and_the_others_keep_theirs() {
    for adopted in [false, true] {
        let lab = Lab::started();
        let (second, kept) = (lab.attach(&far_only()), lab.attach(&far_only()));
        if adopted {
            lab.kill();
            lab.start(lab.config());
        }
        kept.echoes(FAR).unwrap();
        second.run(|| {
            ip("link add other0 type veth peer name other1");
            ip("addr add 10.9.9.9/24 dev other0");
            ip("link set other0 up");
        });
        let gone = eventually_within("the eviction", Duration::from_secs(20), || {
            lab.block(async |c| c.network(&second.view.id).await).err()
        });
        assert_eq!(gone.problem().unwrap().code, "not_found");
        assert!(second.connects(FAR, Duration::from_millis(300)).is_err());
        kept.echoes(FAR).unwrap();
    }
}

#[test]
fn a_link_set_down_ends_its_network_and_no_other() {
    let lab = Lab::started();
    let (down, kept) = (lab.attach(&far_only()), lab.attach(&far_only()));
    let link = crate::network::allot::link_name(&down.view.id);
    lab.in_gateway(&format!("ip link set {link} down"));
    // Its routes went with it: there is nothing to bring back that would be the same network.
    eventually("the loss", || {
        lab.block(async |c| c.network(&down.view.id).await).err()
    });
    kept.echoes(FAR).unwrap();
    assert!(down.connects(FAR, Duration::from_millis(300)).is_err());
    assert!(lab.block(async |c| c.health().await.unwrap()).open);
}

#[test]
fn many_short_networks_some_of_whose_sandboxes_just_vanish_leave_nothing() {
    let lab = Lab::started();
    for round in 0..40 {
        let sandbox = lab.attach(&far_only());
        let id = sandbox.view.id.clone();
        if round % 4 == 0 {
            drop(sandbox);
        }
        lab.block(async |c| c.detach(&id).await.unwrap());
    }
    let namespace = lab.config().namespace;
    let links = || {
        let out = std::process::Command::new("ip")
            .args(["-n", &namespace, "-o", "link"])
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).lines().count()
    };
    eventually("the last link to go", || (links() == 1).then_some(()));
    let rules = lab.block(async |c| c.rules().await.unwrap());
    assert!(!rules.contains("198.18.0.2"), "{rules}");
    let left = std::fs::read_dir(lab.config().run_dir.join("networks"))
        .unwrap()
        .count();
    assert_eq!(left, 0);
    assert!(lab.block(async |c| c.health().await.unwrap()).open);
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
    let began = Instant::now();
    lab.block(async |c| c.detach(&crowd[0].view.id).await.unwrap());
    assert!(
        began.elapsed() < Duration::from_millis(500),
        "{:?}",
        began.elapsed()
    );
}
