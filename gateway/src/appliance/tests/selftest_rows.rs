//! Rows of the escape suite that only a hole beside the gateway fails, each shown to fail; and a host that is hostile.

use std::any::Any;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::lab::*;
use super::selftest::{ask, recorded, with_v6};
use crate::control::api::{Check, Family, Outcome, SelftestReport};
use crate::kernel::Ns;
use crate::selftest::frames::{NOBODY4, NOBODY6};
use crate::selftest::tests::Hole;

fn row<'a>(report: &'a SelftestReport, check: &str, family: Family) -> &'a Check {
    let mut rows = report.checks.iter();
    rows.find(|c| c.check == check && c.family == family)
        .unwrap_or_else(|| panic!("{check} {family}: {report:#?}"))
}

/// Makes addresses a namespace's own, and listens there on some ports.
fn answers_at(ns: &Ns, addresses: Vec<String>, ports: Vec<u16>) -> Vec<TcpListener> {
    let act = move || {
        // down in a namespace that was given no link: there an IPv6 address would be nobody's
        ip("link set lo up");
        for address in &addresses {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            ip(&format!("addr add {address} dev lo{nodad}"));
        }
        // of both families (ipv6(7), IPV6_V6ONLY)
        let listen = |port: &u16| TcpListener::bind(("::", *port)).unwrap();
        let listeners: Vec<TcpListener> = ports.iter().map(listen).collect();
        // the kernel adds the local route of an IPv6 address when it finds the time (`addrconf_dad_work`)
        for address in &addresses {
            let address: IpAddr = address.split('/').next().unwrap().parse().unwrap();
            eventually("an address that answers", || {
                TcpStream::connect((address, ports[0])).ok()
            });
        }
        Ok(listeners)
    };
    ns.run(act).unwrap()
}

/// A proxy that permits whatever it is asked.
struct Lenient {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lenient {
    fn on(listener: TcpListener) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        listener.set_nonblocking(true).unwrap();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let Ok((mut stream, _)) = listener.accept() else {
                    std::thread::park_timeout(Duration::from_millis(1));
                    continue;
                };
                // whoever asked may have gone
                let _ = stream.read(&mut [0; 512]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Lenient {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn whatever_answers_where_nothing_may_answer_fails_its_row_in_both_families_and_seals() {
    let lab = Lab::new();
    with_v6(&lab);
    lab.start(lab.config());
    let sound = ask(&lab);
    let within = lab.within();
    let pools = within.selftest.registry().pools().clone();
    let service = (pools.service_v4(), pools.service_v6());
    *within.selftest.hole.lock().unwrap() = Some(Hole(Box::new(move |probe, other| {
        let addresses = vec![
            "169.254.169.254/32".to_owned(),
            "fd00:ec2::254/128".to_owned(),
            format!("{}/32", other.network.v4),
            format!("{}/128", other.network.v6),
            format!("{}/32", service.0),
            format!("{}/128", service.1),
        ];
        let ports = vec![80, 22, 9040, netpolicy::ruleset::SERVICE_PROXY];
        let mut listeners = answers_at(&probe.namespace, addresses, ports);
        let proxy = Lenient::on(listeners.pop().unwrap());
        Box::new((listeners, proxy)) as Box<dyn Any>
    })));
    let report = ask(&lab);
    for family in [Family::Ipv4, Family::Ipv6] {
        for check in [
            "metadata",
            "sandbox",
            "gateway_ports",
            "gateway_door",
            "proxy_denied",
        ] {
            let before = row(&sound, check, family);
            assert_eq!(before.outcome, Outcome::Passed, "{before:?}");
            let after = row(&report, check, family);
            assert_eq!(after.outcome, Outcome::Failed, "{after:?}");
        }
    }
    eventually("a sealed gateway", || {
        let view = lab.block(async |c| c.posture().await.unwrap());
        view.cause
            .is_some_and(|cause| cause.contains("the selftest failed"))
            .then_some(())
    });
}

#[test]
fn a_socket_with_a_network_beside_it_or_a_proxy_that_permits_too_much_fails_its_row() {
    let lab = Lab::new();
    with_v6(&lab);
    lab.start(crate::config::GatewayConfig {
        no_kernel_part: Some("this test says so".to_owned()),
        ..lab.config()
    });
    assert!(ask(&lab).passed());
    let within = lab.within();
    let registry = within.selftest.registry().clone();
    *within.selftest.hole.lock().unwrap() = Some(Hole(Box::new(move |probe, _| {
        // by addresses, which need no link
        let wide = document(&format!(
            "policy: wide\nnetwork: domains\nprivate: true\nallow:\n  - cidr: {HOST}/32\n    ports: any\n    speaks: any\n"
        ));
        registry.replace(&probe.network.id, &wide).unwrap();
        let addresses = vec![format!("{NOBODY4}/32"), format!("{NOBODY6}/128")];
        Box::new(answers_at(&probe.namespace, addresses, vec![443])) as Box<dyn Any>
    })));
    let report = ask(&lab);
    for (check, family) in [
        ("no_network", Family::Ipv4),
        ("no_network", Family::Ipv6),
        ("host_proxy", Family::Ipv4),
    ] {
        let row = row(&report, check, family);
        assert_eq!(row.outcome, Outcome::Failed, "{row:?}");
    }
    // what no policy opens stays closed all the same
    let metadata = row(&report, "metadata", Family::Ipv4);
    assert_eq!(metadata.outcome, Outcome::Passed, "{metadata:?}");
    assert!(!report.passed());
}

#[test]
fn what_a_hostile_host_opens_in_the_gateways_namespace_is_closed_and_tested_before_a_flow_passes() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    sandbox.echoes(FAR).unwrap();
    let found = |program: &str| {
        let out = Command::new("ip")
            .args(["netns", "exec", &lab.config().namespace])
            .args(program.split(' '))
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    for (change, look) in [
        (
            "sysctl -qw net.ipv4.ip_forward=1",
            "sysctl -n net.ipv4.ip_forward",
        ),
        (
            "sysctl -qw net.ipv6.conf.all.forwarding=1",
            "sysctl -n net.ipv6.conf.all.forwarding",
        ),
    ] {
        assert_eq!(found(look), "0", "before {change}");
        let before = recorded(&lab).len();
        lab.in_gateway(change);
        passes_again(&lab, before, change);
        assert_eq!(found(look), "0", "after {change}");
        sandbox.echoes(FAR).unwrap();
        let elsewhere = sandbox.connects(ELSEWHERE, Duration::from_secs(2));
        elsewhere.unwrap_err();
    }
}

/// Waits until a gateway enforces again, and has passed another selftest before.
fn passes_again(lab: &Lab, before: usize, change: &str) {
    eventually(&format!("another selftest after {change}"), || {
        let tests = recorded(lab);
        (tests.len() > before).then(|| assert!(tests.iter().all(|done| done.failed == 0)))
    });
    eventually("an enforcing gateway", || {
        let view = lab.block(async |c| c.posture().await.unwrap());
        (view.state == "enforcing").then_some(())
    });
}

#[test]
fn rules_that_somebody_else_puts_beside_the_gateways_seal_it_until_they_are_gone_and_it_was_tested()
{
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    sandbox.echoes(FAR).unwrap();
    let before = recorded(&lab).len();
    lab.in_gateway(
        "nft add table inet foreign ; add chain inet foreign opened { type filter hook forward priority -500 ; policy accept ; }",
    );
    eventually("a sealed gateway that names the table", || {
        let view = lab.block(async |c| c.posture().await.unwrap());
        view.cause
            .is_some_and(|cause| cause.contains("foreign"))
            .then_some(())
    });
    sandbox.connects(FAR, Duration::from_secs(2)).unwrap_err();
    lab.in_gateway("nft delete table inet foreign");
    passes_again(&lab, before, "the end of a foreign table");
    sandbox.echoes(FAR).unwrap();
}
