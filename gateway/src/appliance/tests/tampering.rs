//! The machine changes under a gateway: rules, links, addresses, floors. It seals, or ends the one network concerned.

use std::io::ErrorKind;
use std::time::Duration;

use super::lab::*;
use crate::config::GatewayConfig;
use crate::record::Entry;

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
