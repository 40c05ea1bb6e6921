//! A host that cannot hold the kernel part: sandboxes have no network at all, only a socket to the explicit proxy.
//!
//! Every destination is decided, limited and recorded as anywhere, internet policies wait for the firewall unless the
//! operator says otherwise, and it is said wherever one looks.

use lab::topology::{LAN4, OTHER4, PUBLIC4, ip};
use lab::wait::{eventually, within};
use lab::{Lab, policies};
use std::process::Stdio;
use std::time::Duration;

use crate::place::{self, Place, at};
use crate::world::{Here, run};

/// What operators look for.
const WORDS: &str = "the egress firewall is required but not installed";

fn here(config: &str) -> Here {
    let builder = Lab::builder()
        .gateway_only()
        .without_firewall()
        .config(config);
    let place = place::docker().expect("always there");
    Here::on(builder, place, "  pool: 0\n")
}

/// An ordinary user whose gateway finds no user namespace, on that user's own Podman.
fn without_user_namespaces(place: Place) -> Here {
    let builder = Lab::builder().gateway_only().without_user_namespaces();
    Here::on(builder, place, "  pool: 0\n")
}

#[test]
fn internet_runs_wait_for_the_firewall_and_other_runs_go_on() {
    let lab = here("");
    let mark = lab.capture.mark();
    let refused = run(&lab, "internet", &[], "echo started").expect(125);
    assert!(refused.err.contains(WORDS), "{refused:?}");
    assert!(!refused.out.contains("started"));
    permits_and_denies(&lab);
    lab.capture.none_to(mark, ip(OTHER4));
}

at!(an_ordinary_user_without_user_namespaces_has_the_same_promises: rootless);
fn an_ordinary_user_without_user_namespaces_has_the_same_promises(place: Place) {
    let lab = without_user_namespaces(place);
    let refused = run(&lab, "internet", &[], "echo started").expect(125);
    assert!(refused.err.contains(WORDS), "{refused:?}");
    permits_and_denies(&lab);
}

/// A domain policy through the proxy: plain requests, tunnels, and the word of the broker.
fn permits_and_denies(lab: &Here) {
    let script = "\
        curl -sSf -m 10 http://ok.sallylab.net/ || exit 7
        curl -sSf -m 10 -p http://ok.sallylab.net/ || exit 8
        curl -sSf -m 10 http://evil.sallylab.net/ && exit 9
        curl -sSf -m 10 -p http://evil.sallylab.net/ && exit 10
        sally net explain evil.sallylab.net:443; exit 0";
    let said = run(lab, policies::DOMAINS, &[], script).expect(0);
    assert!(
        said.out.contains("lab connection") && said.out.contains("name_not_allowed"),
        "{said:?}"
    );
    for words in [
        "Not enforced",
        "a socket to the proxy",
        "permitted  ok.sallylab.net:80",
        "denied     evil.sallylab.net",
    ] {
        assert!(
            said.err.contains(words),
            "{words} is missing in {}",
            said.err
        );
    }
}

#[test]
fn a_sandbox_has_no_way_but_the_socket() {
    let lab = here("egress_filter: auto");
    let mark = lab.capture.mark();
    let script = format!(
        "[ \"$(ip -o link | wc -l)\" = 1 ] || exit 7
         for n in 1 2 3; do
           curl -s -m 2 --noproxy '*' http://{PUBLIC4}/ && exit 8
           (echo x > /dev/udp/8.8.8.8/53) 2> /dev/null
           (echo x > /dev/tcp/{PUBLIC4}/443) 2> /dev/null
         done
         getent hosts ok.sallylab.net && exit 9
         exit 0"
    );
    let policy = lab
        .file("job.yml", policies::INTERNET)
        .display()
        .to_string();
    lab.sallyport(&[
        "run",
        "--root",
        "--policy",
        &policy,
        "--",
        "/bin/bash",
        "-c",
        &script,
    ])
    .expect(0);
    let seen = lab.capture.since(mark);
    assert!(seen.is_empty(), "{seen:?}");
}

#[test]
fn auto_lets_internet_runs_go_on_and_keeps_private_networks_closed() {
    let lab = here("egress_filter: auto");
    let mark = lab.capture.mark();
    let script = format!(
        "curl -sSf -m 10 http://{PUBLIC4}/ || exit 7
         curl -sSf -m 10 http://{LAN4}/ && exit 8
         curl -sSf -m 10 -p http://{LAN4}/ && exit 9
         curl -sSf -m 10 http://169.254.169.254/ && exit 10
         curl -sSf -m 10 http://127.0.0.1:1/ && exit 11
         exit 0"
    );
    let said = run(&lab, policies::INTERNET, &[], &script).expect(0);
    for words in ["address_private", "address_metadata"] {
        assert!(
            said.err.contains(words),
            "{words} is missing in {}",
            said.err
        );
    }
    lab.capture.none_to(mark, ip(LAN4));
    lab.capture.none_to(mark, ip("169.254.169.254"));
}

#[test]
fn each_socket_is_one_runs_and_decided_by_its_policy() {
    let lab = here("");
    let other = policies::DOMAINS.replace("ok.sallylab.net", "other.sallylab.net");
    let ok = run(
        &lab,
        policies::DOMAINS,
        &[],
        "curl -sf -m 10 http://ok.sallylab.net/",
    );
    assert_eq!(ok.code, Some(0), "{ok:?}");
    let script = "curl -sf -m 10 http://ok.sallylab.net/ && exit 9; curl -sf -m 10 http://other.sallylab.net/";
    assert_eq!(run(&lab, &other, &[], script).code, Some(0));
    let networks = lab.sallyport(&["net", "ls", "--json"]).expect(0).json();
    assert_eq!(networks, serde_json::json!([]), "nothing outlives its run");
}

#[test]
fn budgets_and_policy_changes_hold_over_a_socket() {
    let lab = here("");
    let policy = format!("{}limits: {{ upload: 64KiB }}\n", policies::DOMAINS);
    let script = "head -c 1000000 /dev/zero > /tmp/z; \
                  curl -s -m 10 -o /dev/null -T /tmp/z http://ok.sallylab.net/ && exit 9; \
                  curl -sf -m 5 http://ok.sallylab.net/ && exit 8; exit 0";
    let said = run(&lab, &policy, &[], script).expect(0);
    assert!(said.err.contains("limit_upload"), "{said:?}");

    let mut child = start(
        &lab,
        "until curl -sf -m 2 http://ok.sallylab.net/ > /dev/null; do :; done; echo up; \
         while curl -sf -m 2 http://ok.sallylab.net/ > /dev/null; do :; done",
    );
    let network = eventually("the run's network", || {
        let all = lab.sallyport(&["net", "ls", "--json"]).json();
        Some(all[0]["id"].as_str()?.to_owned())
    });
    let networks = lab.sallyport(&["net", "ls", "--json"]).expect(0).json();
    assert_eq!(networks[0]["via"], "socket", "{networks}");
    let mark = lab.capture.mark();
    eventually("the run to be under way", || {
        (!lab.capture.touching(mark, ip(PUBLIC4)).is_empty()).then_some(())
    });
    let tighter = lab.file("tight.yml", policies::NONE).display().to_string();
    lab.sallyport(&["net", "policy", &network, &tighter])
        .expect(0);
    let ended = within(Duration::from_secs(20), || child.try_wait().expect("wait"));
    assert!(
        ended.is_some(),
        "the run still reaches what its policy denies"
    );
    // and nothing widens it past what this host can hold
    let wide = lab
        .file("wide.yml", policies::INTERNET)
        .display()
        .to_string();
    let mut child = start(&lab, "sleep 30");
    let network = eventually("the next run's network", || {
        let all = lab.sallyport(&["net", "ls", "--json"]).json();
        Some(all[0]["id"].as_str()?.to_owned())
    });
    let refused = lab.sallyport(&["net", "policy", &network, &wide]);
    assert!(refused.err.contains(WORDS), "{refused:?}");
    let _ = child.kill();
    let _ = child.wait();
}

fn start(lab: &Here, script: &str) -> std::process::Child {
    let policy = lab.file("job.yml", policies::DOMAINS).display().to_string();
    let config = lab.directory().join("config.yml").display().to_string();
    let arguments = [
        "run", "--quiet", "--config", &config, "--policy", &policy, "--", "/bin/sh", "-c", script,
    ];
    let mut command = lab.command(&arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    lab.topology.uplink.start(&mut command).expect("start")
}

#[test]
fn killing_the_gateway_closes_the_socket_and_opens_nothing() {
    let mut lab = here("");
    let mut child = start(
        &lab,
        "while true; do curl -s -m 2 http://ok.sallylab.net/ > /dev/null; \
         curl -s -m 2 --noproxy '*' http://93.184.216.34/; done",
    );
    let mark = lab.capture.mark();
    eventually("the run to be under way", || {
        (!lab.capture.touching(mark, ip(PUBLIC4)).is_empty()).then_some(())
    });
    lab.kill_gateway();
    let frames = lab.capture.mark();
    let ended = within(Duration::from_secs(3), || child.try_wait().expect("wait"));
    let begun = lab
        .capture
        .since(frames)
        .iter()
        .filter(|f| f.is_syn())
        .count();
    assert_eq!(
        begun, 0,
        "connections begun without a gateway; the run: {ended:?}"
    );
    let _ = child.kill();
    let _ = child.wait();
    // a gateway that is back does not take up a socket that ended; the next run has one of its own
    lab.start_gateway();
    let networks = lab.sallyport(&["net", "ls", "--json"]).expect(0).json();
    assert_eq!(networks, serde_json::json!([]));
}

#[test]
fn it_is_said_wherever_one_looks_and_only_what_is_there_is_offered() {
    let lab = here("");
    let report = lab.sallyport(&["doctor", "--json"]).expect(1).json();
    let checks = report["checks"].as_array().expect("checks");
    let posture = checks
        .iter()
        .find(|check| check["name"] == "posture")
        .expect("posture");
    let seen = posture["seen"].as_str().expect("text");
    assert!(
        seen.starts_with("Not enforced") && seen.contains(WORDS),
        "{report}"
    );
    assert_eq!(posture["state"], "wrong");
    let states: Vec<_> = lab.records().iter().map(ToString::to_string).collect();
    assert!(
        states.iter().any(|entry| entry.contains("Not enforced")),
        "{states:?}"
    );
    // a namespace cannot be owned here, and a kernel in user space has a loopback of its own
    let namespace = lab::namespace::Namespace::new("offered");
    let attached = lab.attach(&namespace, "offered", policies::DOMAINS);
    assert!(
        attached.code != Some(0) && attached.err.contains(WORDS),
        "{attached:?}"
    );
    let options = ["--isolation", "gvisor"];
    let refused = run(&lab, policies::DOMAINS, &options, "true").expect(125);
    assert!(
        refused.err.contains("isolation") || refused.err.contains("gvisor"),
        "{refused:?}"
    );
    let rules = lab.sallyport(&["gateway", "rules"]);
    assert!(
        rules.code != Some(0) && rules.err.contains(WORDS),
        "{rules:?}"
    );
    let proof = lab.sallyport(&["selftest"]);
    assert_ne!(proof.code, Some(0), "nothing is proved: {proof:?}");
}
