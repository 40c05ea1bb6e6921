//! What a dial may lead to: a failure that is not a denial, the machine itself, an answer that came too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gateway::record::Entry;
use gateway::uplink::Dialer;
use gateway::uplink::here::leads_here;
use netpolicy::reason::Reason;

use crate::lab::{
    ORIGIN, accept, eventually, is_reset, nothing_reached, read, rest, run, soon, write,
};
use crate::stream::{DOMAINS, INTERNET};

#[test]
fn a_policy_that_was_tightened_while_dialling_opens_nothing() {
    run(DOMAINS, |lab| async move {
        let origin = lab.origin(443).await;
        lab.door(443);
        let mut client = lab.connect(lab.lease("ok.net"), 443);
        let mut server = accept(&origin).await;
        assert!(
            lab.network.flows.all().is_empty(),
            "dialled, not yet registered"
        );
        lab.replace("policy: p\nnetwork: domains\nallow:\n  - host: other.net\n");
        assert!(is_reset(&rest(&mut server).await));
        assert!(is_reset(&rest(&mut client).await));
        assert_eq!(lab.denials(), ["name_not_allowed"]);
    });
}

#[test]
fn upstream_failures_are_failures_and_not_denials() {
    let policy = "policy: p\nnetwork: domains\nallow:\n  - host: closed.net\n  - host: missing.net\n  - host: private.net\n";
    run(policy, |lab| async move {
        lab.door(443);
        for name in ["closed.net", "missing.net", "private.net"] {
            let mut client = lab.connect(lab.lease(name), 443);
            assert!(is_reset(&rest(&mut client).await), "{name}");
        }
        let failures = || {
            let entries = lab.entries().into_iter();
            entries
                .filter_map(|e| {
                    if let Entry::Failure(f) = e {
                        Some(f.reason.to_string())
                    } else {
                        None
                    }
                })
                .collect::<Vec<_>>()
        };
        let failures = eventually(|| (failures().len() == 2).then(failures)).await;
        assert_eq!(failures, ["upstream_refused", "name_unresolvable"]);
        assert_eq!(lab.denials(), ["name_resolves_to_forbidden"]);
    });
}

#[test]
fn net_08_the_machine_itself_is_refused_although_its_address_looks_public() {
    run(INTERNET, |lab| async move {
        // 192.0.2.1 is an address of this machine; a public one is put beside it
        std::process::Command::new("ip")
            .args(["addr", "add", "93.184.218.1/32", "dev", "lo"])
            .status()
            .unwrap();
        let own = tokio::net::TcpListener::bind("93.184.218.1:5000")
            .await
            .unwrap();
        lab.door(5000);
        let mut client = lab.connect([93, 184, 218, 1], 5000);
        write(&mut client, b"\0").await;
        assert!(is_reset(&rest(&mut client).await));
        nothing_reached(&own).await;
        assert_eq!(lab.denials(), ["address_host"]);
        soon(async {}).await;
    });
}

#[test]
fn an_address_that_cannot_be_looked_up_is_denied_as_a_shortage_and_gets_no_syn() {
    run(INTERNET, |mut lab| async move {
        let short = Arc::new(AtomicBool::new(true));
        let asked = short.clone();
        lab.ctx.dialer = Arc::new(Dialer::new(move |address| {
            if asked.load(Ordering::Relaxed) {
                return Err(std::io::Error::from_raw_os_error(libc::ENOBUFS));
            }
            leads_here(address)
        }));
        let origin = lab.origin(22).await;
        lab.door(22);
        let mut client = lab.connect(ORIGIN, 22);
        assert!(is_reset(&rest(&mut client).await));
        assert_eq!(lab.denials(), [Reason::LimitFlows.to_string()]);
        nothing_reached(&origin).await;
        short.store(false, Ordering::Relaxed);
        let mut client = lab.connect(ORIGIN, 22);
        let mut server = accept(&origin).await;
        write(&mut server, b"SSH-2.0-x\r\n").await;
        assert_eq!(read(&mut client, 11).await, b"SSH-2.0-x\r\n");
    });
}

#[test]
fn one_dead_address_of_several_delays_and_does_not_fail() {
    let policy = "policy: p\nnetwork: domains\nallow:\n  - { host: \"first-is-silent.net\", ports: [22], speaks: any }\n  - { host: \"first-is-closed.net\", ports: [22], speaks: any }\n  - { host: \"partly-private.net\", ports: [22], speaks: any }\n";
    run(policy, |lab| async move {
        let origin = lab.origin(22).await;
        lab.door(22);
        for (name, at_most) in [("first-is-silent.net", 900), ("first-is-closed.net", 200)] {
            // the best of a few: a busy machine may be slow by itself, the stagger is there every time
            let mut best = u128::MAX;
            for _ in 0..5 {
                let began = std::time::Instant::now();
                let _client = lab.connect(lab.lease(name), 22);
                let _server = accept(&origin).await;
                best = best.min(began.elapsed().as_millis());
                if best < at_most {
                    break;
                }
            }
            assert!(best < at_most, "{name}: {best} ms");
        }
        // one forbidden answer forbids all of them
        let mut client = lab.connect(lab.lease("partly-private.net"), 22);
        assert!(is_reset(&rest(&mut client).await));
        nothing_reached(&origin).await;
        assert_eq!(lab.denials(), ["name_resolves_to_forbidden"]);
    });
}
