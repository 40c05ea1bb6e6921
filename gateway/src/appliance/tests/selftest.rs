//! The escape suite over a whole gateway: it passes on a sound one, and each way to fail it seals until it is mended.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::lab::*;
use crate::control::PolicySource;
use crate::control::api::{Family, Outcome, SelftestReport};
use crate::kernel::witness::Wire;
use crate::kernel::{Ns, Tap};
use crate::record::Entry;
use crate::selftest::report::SelftestDone;
use crate::selftest::tests::Hole;

pub fn ask(lab: &Lab) -> SelftestReport {
    lab.block(async |c| c.selftest().await.unwrap())
}

pub fn recorded(lab: &Lab) -> Vec<SelftestDone> {
    let of = |line: crate::record::Line| match line.entry {
        Entry::Selftest(done) => Some(*done),
        _ => None,
    };
    records(lab).into_iter().filter_map(of).collect()
}

pub fn with_v6(lab: &Lab) {
    ip(&format!(
        "-n {}u addr add 2001:db8:77::1/64 dev up0 nodad",
        lab.name
    ));
}

#[test]
fn a_sound_gateway_passes_before_it_enforces_and_on_demand_in_both_families_and_keeps_what_came_out()
 {
    let lab = Lab::new();
    with_v6(&lab);
    lab.start(lab.config());
    let report = ask(&lab);
    let other: Vec<_> = report
        .checks
        .iter()
        .filter(|c| c.outcome != Outcome::Passed)
        .collect();
    assert!(report.passed() && other.is_empty(), "{other:#?}");
    for family in [Family::Ipv4, Family::Ipv6] {
        for check in [
            "gre",
            "sctp",
            "to_host",
            "name_silent",
            "permitted_tcp",
            "permitted_udp",
            "permitted_icmp",
            "permitted_proxy",
        ] {
            assert!(
                report
                    .checks
                    .iter()
                    .any(|c| c.check == check && c.family == family),
                "{check} {family}"
            );
        }
    }
    assert!(
        report.checks.len() > 200 && report.took_ms < 10_000,
        "{} in {} ms",
        report.checks.len(),
        report.took_ms
    );
    assert!(lab.block(async |c| c.networks().await.unwrap()).is_empty());
    let kept = recorded(&lab);
    let why: Vec<&str> = kept.iter().map(|done| done.why.as_str()).collect();
    assert_eq!(why, ["opening", "asked"]);
    assert_eq!((kept[1].passed, kept[1].failed), (report.checks.len(), 0));
    // it stands in the record before anybody's flow was decided
    let opened = records(&lab).iter().position(
        |l| matches!(&l.entry, Entry::Posture { state, .. } if state == crate::posture::BLOCKED),
    );
    let tested = records(&lab)
        .iter()
        .position(|l| matches!(&l.entry, Entry::Selftest(_)));
    assert!(tested.unwrap() < opened.unwrap());
    let shown = lab
        .block(async |c| c.posture().await.unwrap())
        .selftest
        .unwrap();
    assert_eq!(shown, kept[1]);
}

/// Copies what a probe puts on its link to the uplink, as a bridge would.
struct Bridge {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bridge {
    fn between(gateway: &Ns, link: &str, uplink: &OwnedFd) -> Self {
        let tap = Tap::open(gateway, link).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = inside(uplink, move || {
            let wire = Wire::open("up0").unwrap();
            let mut frame = vec![0; 1 << 16];
            while !stopped.load(Ordering::Relaxed) {
                match tap.receive(&mut frame) {
                    Ok(seen) if !seen.to_sandbox => drop(wire.send(&frame[..seen.captured])),
                    Ok(_) => {}
                    Err(_) => std::thread::park_timeout(Duration::from_millis(1)),
                }
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn bridge(lab: &Lab) -> Hole {
    let path = format!("/run/netns/{}", lab.config().namespace);
    let uplink = lab.uplink.try_clone().unwrap();
    Hole(Box::new(move |probe, _| -> Box<dyn Any> {
        let gateway = Ns::from_fd(std::fs::File::open(&path).unwrap().into()).unwrap();
        Box::new(Bridge::between(&gateway, &probe.network.link, &uplink))
    }))
}

#[test]
fn a_leak_of_frames_fails_every_row_of_them_and_seals_until_it_is_mended() {
    let lab = Lab::new();
    with_v6(&lab);
    lab.start(lab.config());
    let selftest = lab.within().selftest;
    *selftest.hole.lock().unwrap() = Some(bridge(&lab));
    let sandbox = lab.attach(&far_only());
    sandbox.echoes(FAR).unwrap();
    let report = ask(&lab);
    let whole = |c: &&crate::control::api::Check| c.promise.ends_with("goes nowhere");
    for row in report.checks.iter().filter(whole) {
        assert_eq!(
            (row.outcome, row.detail.as_str()),
            (Outcome::Failed, "it was seen in the uplink"),
            "{row:?}"
        );
    }
    assert!(report.checks.iter().filter(whole).count() > 150);
    let sealed = eventually("a sealed gateway", || {
        let view = lab.block(async |c| c.posture().await.unwrap());
        (view.state == "sealed").then_some(view)
    });
    assert!(sealed.cause.unwrap().contains("the selftest failed"));
    assert!(sealed.hint.unwrap().contains("sallyport selftest"));
    assert!(sandbox.echoes(FAR).is_err());
    // the gate goes on failing, and says so once
    eventually("a gate that failed", || {
        let newest = selftest.newest()?;
        (newest.why == "opening" && newest.failed > 0).then_some(())
    });
    *selftest.hole.lock().unwrap() = None;
    eventually("an enforcing gateway", || sandbox.echoes(FAR).ok());
    assert!(selftest.newest().is_some_and(|done| done.failed == 0));
    let failed = recorded(&lab).iter().filter(|d| d.failed > 0).count();
    assert!(failed <= 2, "{failed}");
}

#[test]
fn a_policy_that_lets_more_through_than_it_says_is_noticed_at_the_machine_and_in_names() {
    let lab = Lab::new();
    with_v6(&lab);
    lab.start(lab.config());
    let (within, client) = (lab.within(), lab.socket());
    drop(client);
    let registry = within.selftest.registry().clone();
    *within.selftest.hole.lock().unwrap() =
        Some(Hole(Box::new(move |probe, other| -> Box<dyn Any> {
            let wide = PolicySource::Preset("internet-private".to_owned());
            registry.replace(&probe.network.id, &wide).unwrap();
            registry.replace(&other.network.id, &wide).unwrap();
            Box::new(())
        })));
    let report = ask(&lab);
    let failed = |check: &str, family: Family| {
        let row = report
            .checks
            .iter()
            .find(|c| c.check == check && c.family == family);
        row.unwrap().outcome == Outcome::Failed
    };
    for family in [Family::Ipv4, Family::Ipv6] {
        for check in [
            "host_tcp",
            "host_proxy",
            "host_silent",
            "name_denied",
            "name_denied_tcp",
            "name_silent",
        ] {
            assert!(failed(check, family), "{check} {family}");
        }
        // what no policy opens stays closed all the same
        for check in [
            "metadata",
            "sandbox",
            "gateway_ports",
            "gateway_door",
            "gre",
            "to_loopback",
        ] {
            assert!(!failed(check, family), "{check} {family}");
        }
    }
}

#[test]
fn a_dead_network_is_no_pass() {
    let lab = Lab::new();
    lab.start(lab.config());
    let within = lab.within();
    *within.selftest.hole.lock().unwrap() =
        Some(Hole(Box::new(move |probe, other| -> Box<dyn Any> {
            for sandbox in [probe, other] {
                let down = || {
                    ip("link set eth0 down");
                    Ok(())
                };
                sandbox.namespace.run(down).unwrap();
            }
            Box::new(())
        })));
    let report = ask(&lab);
    for check in [
        "control_broker",
        "control_wire",
        "permitted_tcp",
        "permitted_udp",
    ] {
        let row = report.checks.iter().find(|c| c.check == check).unwrap();
        assert_eq!(row.outcome, Outcome::Failed, "{row:?}");
    }
    assert!(!report.passed());
}

#[test]
fn a_gateway_with_a_hole_never_opens() {
    let lab = Lab::new();
    *lab.hole.lock().unwrap() = Some(bridge(&lab));
    lab.try_start(lab.config()).unwrap();
    eventually("a gate that failed", || {
        let view = lab.block(async |c| c.posture().await).ok()?;
        view.cause
            .is_some_and(|cause| cause.contains("the selftest failed"))
            .then_some(())
    });
    assert!(!lab.block(async |c| c.health().await.unwrap()).open);
    assert!(records(&lab).iter().all(
        |l| !matches!(&l.entry, Entry::Posture { state, .. } if state == crate::posture::BLOCKED)
    ));
    assert!(lab.try_attach(&request(&far_only())).is_err());
}

#[test]
fn a_repaired_kernel_is_tested_before_it_is_trusted_again() {
    let lab = Lab::started();
    let before = recorded(&lab).len();
    lab.in_gateway("nft flush ruleset");
    eventually("another selftest", || {
        (recorded(&lab).len() > before).then_some(())
    });
    eventually("an enforcing gateway", || {
        let view = lab.block(async |c| c.posture().await.unwrap());
        (view.state == "enforcing" && view.generation == 2).then_some(())
    });
    assert!(recorded(&lab).iter().all(|done| done.failed == 0));
}

#[test]
fn the_schedule_runs_it_and_a_failure_seals() {
    let lab = Lab::new();
    lab.start(crate::config::GatewayConfig {
        selftest: Duration::from_millis(200),
        ..lab.config()
    });
    eventually("a scheduled selftest", || {
        recorded(&lab)
            .iter()
            .any(|d| d.why == "schedule" && d.failed == 0)
            .then_some(())
    });
    *lab.within().selftest.hole.lock().unwrap() = Some(bridge(&lab));
    eventually("a sealed gateway", || {
        let view = lab.block(async |c| c.posture().await.unwrap());
        view.cause
            .is_some_and(|cause| cause.contains("the selftest failed"))
            .then_some(())
    });
}

#[test]
fn a_gateway_without_a_kernel_part_tries_the_socket_and_says_what_it_cannot_show() {
    let lab = Lab::new();
    with_v6(&lab);
    lab.start(crate::config::GatewayConfig {
        no_kernel_part: Some("this test says so".to_owned()),
        ..lab.config()
    });
    let report = ask(&lab);
    assert!(report.passed(), "{report:#?}");
    let of = |check: &str, family: Family| {
        let row = report.checks.iter();
        let mut row = row.filter(|c| c.check == check && c.family == family);
        row.next().unwrap_or_else(|| panic!("{check}: {report:#?}"))
    };
    let frames = of("frames", Family::Both);
    assert_eq!(frames.outcome, Outcome::Skipped);
    assert!(frames.detail.contains("not enforced, this test says so"));
    for family in [Family::Ipv4, Family::Ipv6] {
        for check in [
            "no_network",
            "proxy_denied",
            "metadata",
            "host_proxy",
            "permitted_proxy",
        ] {
            assert_eq!(of(check, family).outcome, Outcome::Passed, "{check}");
        }
    }
    let flows = records(&lab).into_iter();
    let mut flows =
        flows.filter(|l| matches!(l.entry, Entry::Open(_) | Entry::Close(_) | Entry::Denial(_)));
    assert!(flows.next().is_none(), "the suite is in the record once");
}

#[test]
fn a_filter_that_is_turned_off_leaves_nothing_else_open_and_says_what_it_opened() {
    let lab = Lab::new();
    with_v6(&lab);
    lab.start(crate::config::GatewayConfig {
        egress_filter: crate::config::EgressFilter::Off,
        open_networks_accepted: true,
        ..lab.config()
    });
    let report = ask(&lab);
    assert!(report.passed(), "{report:#?}");
    let rest = report.checks.iter();
    let rest = rest.filter(|c| c.outcome == Outcome::Skipped);
    let rest: Vec<_> = rest.map(|c| c.check.as_str()).collect();
    assert_eq!(
        rest,
        ["to_host", "to_private", "host_silent", "host_silent"],
        "{report:#?}"
    );
    for check in ["metadata", "sandbox", "gateway_door", "to_loopback", "gre"] {
        let row = report.checks.iter().find(|c| c.check == check).unwrap();
        assert_eq!(row.outcome, Outcome::Passed, "{row:?}");
    }
}

#[test]
fn a_gateway_whose_pool_is_full_tries_itself_all_the_same_and_opens_again() {
    let lab = Lab::new();
    let mut config = lab.config();
    config.pools.sandboxes = "198.18.0.0/28".parse().unwrap();
    lab.start(config);
    let mut held = Vec::new();
    let sandbox = lab.attach(&far_only());
    while let Ok(one) = lab.try_attach(&request(&far_only())) {
        held.push(one);
    }
    assert!(held.len() > 5, "{}", held.len());
    lab.in_gateway("nft flush ruleset");
    eventually("an enforcing gateway", || {
        let view = lab.block(async |c| c.posture().await.unwrap());
        (view.state == "enforcing" && view.generation == 2).then_some(())
    });
    sandbox.echoes(FAR).unwrap();
}

/// Connects to every listener of the machine as soon as it is there, from a process of its own, until dropped.
struct Nuisance(std::process::Child);

impl Nuisance {
    fn of(lab: &Lab) -> Self {
        // 192.168.77.1 as the kernel prints it
        let script = "declare -A seen; while :; do while read -r _ l _ s _; do \
            if [ \"$s\" = 0A ] && [[ $l = 014DA8C0:* ]] && [ -z \"${seen[$l]}\" ]; then \
            seen[$l]=1; exec {fd}<>/dev/tcp/192.168.77.1/$((16#${l#*:})) && echo >>$MET; fi; \
            done </proc/net/tcp; done 2>/dev/null";
        let child = std::process::Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}u", lab.name))
            .args(["bash", "-c", script])
            .env("MET", lab.dir.path().join("met"))
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Nuisance {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn who_connects_to_the_machine_while_it_is_tried_seals_nothing() {
    let lab = Lab::started();
    let _nuisance = Nuisance::of(&lab);
    for _ in 0..5 {
        let report = ask(&lab);
        assert!(report.passed(), "{:#?}", report.first_failed());
    }
    let met = std::fs::read(lab.dir.path().join("met")).unwrap();
    assert!(met.len() >= 5, "it met {} listeners", met.len());
    assert!(lab.block(async |c| c.health().await.unwrap()).open);
}
