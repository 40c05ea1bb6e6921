//! `net explain` on a live network: what the gateway would do now, and the same as what it does.

use std::net::{IpAddr, SocketAddr};

use lab::client::{ask, at, connect, exchange, http_get};
use lab::origin::port;
use lab::topology::{LAN4, PUBLIC4, ip};
use lab::wait::eventually;
use lab::{Lab, policies};
use serde_json::Value;

/// The answer; the exit code says the same.
fn explained(lab: &Lab, network: &str, to: &str) -> Value {
    let said = lab.sallyport(&["net", "explain", network, to, "--json"]);
    let found = said.json();
    let code = i32::from(found.get("decision").is_none_or(|d| d != "permit"));
    assert_eq!(said.code, Some(code), "{said:?}");
    found
}

/// What the record says about the last denial at an address.
fn recorded(lab: &Lab, address: IpAddr) -> Value {
    let of = address.to_string();
    eventually("the denial", || {
        let is = |r: &Value| {
            let at = |place: &str| r.pointer(place).and_then(Value::as_str);
            at("/kind") == Some("denial") && at("/subject/address") == Some(of.as_str())
        };
        lab.records().into_iter().rev().find(is)
    })
}

#[test]
fn a_budget_that_is_used_up_denies_what_the_policy_permits_and_says_so() {
    let lab = Lab::builder().gateway_only().start();
    let little = lab.sandbox("policy: little\nnetwork: internet\nlimits: { upload: 64KiB }\n");
    let free = lab.sandbox(policies::INTERNET);
    let to = format!("{PUBLIC4}:{}", port::MUTE);
    assert_eq!(explained(&lab, little.name(), &to)["decision"], "permit");
    little.run(|| {
        let mut stream = connect(to.parse().expect("an address")).expect_open();
        exchange(&mut stream, &vec![b'u'; 8 << 20])
    });
    assert!(
        little
            .run(|| connect(to.parse().expect("an address")))
            .is_refused()
    );
    let found = explained(&lab, little.name(), &to);
    assert_eq!(found["reason"], "limit_upload", "{found:#}");
    assert_eq!(recorded(&lab, ip(PUBLIC4))["reason"], "limit_upload");
    assert!(
        found["change"]
            .as_str()
            .is_some_and(|s| s.contains("limits.upload")),
        "{found:#}"
    );
    assert_eq!(explained(&lab, free.name(), &to)["decision"], "permit");
}

#[test]
fn an_address_of_the_pools_is_its_name_or_nothing_as_at_the_door() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let other = lab.sandbox(policies::DOMAINS);
    let lease = sandbox.run(|| {
        let to = at("ok.sallylab.net", 80);
        http_get(&mut connect(to).expect_open(), "ok.sallylab.net", "/");
        to.ip()
    });
    let found = explained(&lab, sandbox.name(), &format!("{lease}:80"));
    assert_eq!(found["decision"], "permit", "{found:#}");
    assert!(
        found["remarks"]
            .to_string()
            .contains("stands for ok.sallylab.net"),
        "{found:#}"
    );
    // the same address is nothing to a network that never looked the name up
    assert!(
        other
            .run(|| connect(SocketAddr::new(lease, 80)))
            .is_refused()
    );
    let found = explained(&lab, other.name(), &format!("{lease}:80"));
    assert_eq!(found["reason"], "lease_unknown", "{found:#}");
    assert_eq!(recorded(&lab, lease)["reason"], found["reason"]);
    // the gateway's own address is the gateway's
    let found = explained(&lab, other.name(), "198.18.0.1:22");
    assert_eq!(found["reason"], "address_gateway", "{found:#}");
}

#[test]
fn a_permitted_name_that_leads_to_a_forbidden_address_is_denied_as_dns_denies_it() {
    let lab = Lab::builder().gateway_only().start();
    lab.origins.zone.addresses("int.sallylab.net", &[LAN4]);
    let sandbox = lab.sandbox("policy: p\nnetwork: domains\nallow: [{ host: int.sallylab.net }, { host: ok.sallylab.net }]\n");
    let to = "int.sallylab.net:443";
    let before = explained(&lab, sandbox.name(), to);
    assert_eq!(
        before["decision"], "permit",
        "nobody looked yet: {before:#}"
    );
    assert!(
        before["remarks"]
            .to_string()
            .contains("no address of it is known"),
        "{before:#}"
    );
    sandbox.run(|| {
        ask("int.sallylab.net", 1);
        http_get(
            &mut connect(at("ok.sallylab.net", 80)).expect_open(),
            "ok.sallylab.net",
            "/",
        );
    });
    let now = explained(&lab, sandbox.name(), to);
    assert_eq!(now["reason"], "name_resolves_to_forbidden", "{now:#}");
    assert_eq!(now["known"][0], LAN4, "{now:#}");
    assert!(
        now["remarks"]
            .to_string()
            .contains("its last look-up was denied"),
        "{now:#}"
    );
    let twin = explained(&lab, sandbox.name(), "ok.sallylab.net");
    assert_eq!(twin["decision"], "permit", "{twin:#}");
    let text = lab
        .sallyport(&["net", "explain", sandbox.name(), to])
        .expect(1);
    assert!(
        text.out
            .starts_with("deny (name_resolves_to_forbidden): int.sallylab.net:443")
            && text.out.contains(&format!("known addresses: {LAN4}")),
        "{text:?}"
    );
    // under another policy the old denial says nothing
    let wider = "policy: p\nnetwork: domains\nprivate: true\nallow: [{ host: int.sallylab.net }]\n";
    lab.replace_policy(&sandbox, wider).expect(0);
    let found = explained(&lab, sandbox.name(), to);
    assert_eq!(found["decision"], "permit", "{found:#}");
    assert!(
        found["remarks"]
            .to_string()
            .contains("under an earlier policy"),
        "{found:#}"
    );
}

#[test]
fn names_beyond_the_budget_are_denied_and_others_are_not() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(
        "policy: p\nnetwork: domains\nlimits: { names: 1 }\nallow: [{ host: '*.sallylab.net' }]\n",
    );
    sandbox.run(|| drop(connect(at("ok.sallylab.net", 80)).expect_open()));
    let known = explained(&lab, sandbox.name(), "ok.sallylab.net:80");
    assert_eq!(known["decision"], "permit", "{known:#}");
    let fresh = explained(&lab, sandbox.name(), "four.sallylab.net:80");
    assert_eq!(fresh["reason"], "limit_names", "{fresh:#}");
    sandbox.run(|| ask("four.sallylab.net", 1));
    lab.recorded("the denial", |r| r["reason"] == "limit_names");
}

#[test]
fn the_last_denial_of_a_destination_is_told_until_it_passes() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let get = |host: &str| {
        sandbox.run(|| {
            http_get(
                &mut connect(at("ok.sallylab.net", 80)).expect_open(),
                host,
                "/",
            )
        })
    };
    get("evil.sallylab.net");
    let remarks = || explained(&lab, sandbox.name(), "ok.sallylab.net:80")["remarks"].to_string();
    eventually("the denial", || {
        remarks().contains("http_host_mismatch").then_some(())
    });
    get("ok.sallylab.net");
    eventually("that it passed", || {
        (!remarks().contains("denied")).then_some(())
    });
    // what is no question is refused, and what nobody has is unknown
    let wrong = lab.sallyport(&["net", "explain", sandbox.name(), "udp://x.example:1"]);
    assert!(wrong.expect(2).err.contains("--udp"));
    lab.sallyport(&["net", "explain", "nobody", "ok.sallylab.net"])
        .expect(3);
}

#[test]
fn a_network_that_is_not_there_is_told_so_by_every_verb() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    for verb in [
        &["net", "show", "nobody"][..],
        &["net", "flows", "nobody"],
        &["net", "top", "nobody", "-n", "1"],
        &["net", "top", sandbox.name(), "nobody", "-n", "1"],
        &["net", "detach", "nobody"],
        &["policy", "learn", "--network", "nobody"],
        &[
            "policy",
            "replay",
            "--network",
            "nobody",
            "--policy",
            "none",
        ],
        &["record", "export", "--network", "nobody"],
    ] {
        let said = lab.sallyport(verb).expect(3);
        assert!(
            said.err.contains("nobody") && said.out.is_empty(),
            "{verb:?}: {said:?}"
        );
    }
    lab.sallyport(&["net", "top", sandbox.name(), "-n", "1", "-i", "0.1"])
        .expect(0);
    lab.sallyport(&["policy", "learn", "--network", sandbox.name()])
        .expect(0);
}
