//! What an operator can ask the machine itself: the proof, what is missing, and to take everything away.

use std::path::Path;

use lab::topology::{METADATA, OTHER4, ip};
use lab::{Lab, policies};

#[test]
fn selftest_proves_every_promise_and_puts_no_frame_of_it_on_the_uplink() {
    let lab = Lab::builder().gateway_only().start();
    let frames = lab.capture.mark();
    let report = lab.sallyport(&["selftest", "--json"]).expect(0).json();
    let checks = report["checks"].as_array().expect("checks");
    assert!(report["passed"] == true && checks.len() > 150, "{report}");
    for check in checks {
        assert_ne!(check["outcome"], "failed", "{check}");
        for key in ["check", "family", "variant", "promise", "detail"] {
            let told = check[key].as_str().is_some_and(|text| !text.is_empty());
            assert!(told, "{key}: {check}");
        }
    }
    let passed = |check: &str, family: &str| {
        let is = |c: &&serde_json::Value| c["check"] == check && c["family"] == family;
        checks
            .iter()
            .find(is)
            .is_some_and(|c| c["outcome"] == "passed")
    };
    for family in ["ipv4", "ipv6"] {
        for check in [
            "control_broker",
            "sctp",
            "metadata",
            "to_host",
            "permitted_tcp",
        ] {
            assert!(passed(check, family), "{check} {family}: {report}");
        }
    }
    for address in METADATA.iter().chain([&OTHER4, &"8.8.8.8", &"10.0.0.5"]) {
        lab.capture.none_to(frames, ip(address));
    }
    // its probe sandbox is gone with it, and people get a table
    let networks = lab.sallyport(&["net", "ls", "--json"]).expect(0).json();
    assert_eq!(networks, serde_json::json!([]));
    let table = lab.sallyport(&["selftest"]).expect(0).out;
    assert!(table.contains("ok") && table.contains("PROMISE"), "{table}");
    assert!(table.contains("0 failed"), "{table}");
    assert!(
        table.trim_end().ends_with("Private networks blocked"),
        "{table}"
    );
    // what came out stands in the record, also in its public form, and doctor shows the newest
    let kept = lab.sallyport(&["record", "export"]).expect(0).out;
    assert!(kept.contains(r#""kind":"selftest""#), "{kept}");
    let kept = lab.sallyport(&["record", "export", "--format", "ocsf"]);
    let kept = kept.expect(0).out;
    assert!(kept.contains(r#""event_code":"selftest""#), "{kept}");
    let report = lab.sallyport(&["doctor", "--json"]).json();
    let checks = report["checks"].as_array().expect("checks");
    let newest = checks.iter().find(|c| c["name"] == "selftest");
    assert_eq!(newest.expect("the check")["state"], "ok", "{report}");
}

#[test]
fn selftest_without_a_gateway_proves_nothing_and_says_so() {
    let mut lab = Lab::builder().gateway_only().start();
    lab.gateway_mut().stop();
    let said = lab.sallyport(&["selftest"]).expect(3);
    assert!(said.out.is_empty() && !said.err.is_empty(), "{said:?}");
}

#[test]
fn doctor_tries_the_kernel_and_leaves_no_namespace() {
    let lab = Lab::builder().gateway_only().start();
    let report = lab.sallyport(&["doctor", "--json"]).json();
    let checks = report["checks"].as_array().expect("checks");
    for name in ["kernel rules", "SYN queue"] {
        let check = checks.iter().find(|c| c["name"] == name);
        assert_eq!(check.expect("the check")["state"], "ok", "{report}");
    }
    let names = std::fs::read_dir("/run/netns").expect("names").flatten();
    // a doctor of another test may be at it
    let left = names.filter(|n| {
        let name = n.file_name().to_string_lossy().into_owned();
        let of = name.strip_prefix("sallyport-doctor-").map(str::to_owned);
        of.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    });
    assert_eq!(left.count(), 0);
}

#[test]
fn what_a_killed_doctor_and_a_killed_selftest_left_is_shown_and_uninstalled() {
    let mut lab = Lab::builder().gateway_only().start();
    let left = |lab: &Lab| {
        let report = lab.sallyport(&["doctor", "--json"]).json();
        let checks = report["checks"].as_array().expect("checks").clone();
        let seen = |c: &serde_json::Value| c["seen"].as_str().unwrap_or_default().to_owned();
        let checks = checks.iter().filter(|c| c["name"] == "leftovers");
        checks.map(seen).collect::<String>()
    };
    // above every number that a process can have (PID_MAX_LIMIT, proc(5)): nobody is this doctor
    let name = format!("sallyport-doctor-{}", (1 << 22) + std::process::id());
    // anew before each look: another test's `uninstall` on this machine removes it as well
    let make = || {
        let add = std::process::Command::new("ip")
            .args(["netns", "add", &name])
            .output();
        add.expect("ip");
    };
    make();
    let run = lab
        .gateway()
        .control()
        .parent()
        .expect("a folder")
        .to_owned();
    let socket = run.join("run/selftest-0123456789abcdef");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("a socket"));
    // a living gateway may be at its selftest: nothing of it is left over
    let shown = left(&lab);
    assert!(
        shown.contains(&name) && !shown.contains("selftest-"),
        "{shown}"
    );
    lab.gateway_mut().kill();
    make();
    let shown = left(&lab);
    assert!(
        shown.contains(&name) && shown.contains("selftest-0123456789abcdef"),
        "{shown}"
    );
    let done = lab.sallyport(&["uninstall"]).expect(0);
    assert!(done.out.contains(&name), "{done:?}");
    assert!(!socket.exists() && !Path::new("/run/netns").join(&name).exists());
    let shown = left(&lab);
    assert!(!shown.contains(&name), "{shown}");
}

#[test]
fn uninstall_waits_for_the_gateway_and_then_leaves_no_link_rule_or_socket() {
    let mut lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let name = Path::new("/run/netns").join(lab.gateway().name());
    let refused = lab.sallyport(&["uninstall"]).expect(3);
    assert!(refused.err.contains("is running"), "{refused:?}");
    let told = lab.sallyport(&["uninstall", "--dry-run"]).expect(0);
    assert!(told.err.contains("is running"), "{told:?}");
    assert!(told.out.contains("would remove namespace"), "{told:?}");
    assert!(name.exists());
    lab.gateway_mut().kill();
    let dry = lab.sallyport(&["uninstall", "--dry-run"]).expect(0);
    assert!(
        dry.out.contains("would remove namespace") && name.exists(),
        "{dry:?}"
    );
    let done = lab.sallyport(&["uninstall"]).expect(0);
    assert!(done.out.contains("removed namespace"), "{done:?}");
    assert!(!name.exists() && !lab.gateway().control().exists());
    let links = sandbox.exec(&["ip", "-o", "link"]);
    let links = String::from_utf8_lossy(&links.stdout).into_owned();
    assert!(!links.contains("eth0"), "{links}");
    let again = lab.sallyport(&["uninstall", "--dry-run"]).expect(0);
    let own = name.display().to_string();
    assert!(!again.out.contains(&own), "{again:?}");
}
