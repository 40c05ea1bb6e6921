//! What an ordinary user has without root, beyond the promises that are tested at every place: proof on the machine, a
//! gateway that dies, budgets, and the truth about limits that a rootless engine cannot hold.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use lab::policies;
use lab::topology::{OTHER4, PUBLIC4, ip};
use lab::wait::{eventually, within};

use crate::place::{self, Place, at};
use crate::world::{lab_at, run};

at!(selftest_proves_the_packet_promises_without_root: rootless);
fn selftest_proves_the_packet_promises_without_root(place: Place) {
    let lab = lab_at(place);
    let frames = lab.capture.mark();
    let report = lab.sallyport(&["selftest", "--json"]).expect(0).json();
    let checks = report.get("checks").and_then(|checks| checks.as_array());
    let checks = checks.expect("checks");
    let outcome = |check: &serde_json::Value| check.get("outcome").cloned().expect("an outcome");
    let passed = checks.iter().filter(|check| outcome(check) == "passed");
    assert!(passed.count() > 200, "{report}");
    // what this user may not watch is said
    let rest: Vec<_> = checks.iter().filter(|c| outcome(c) != "passed").collect();
    let blind = rest
        .iter()
        .all(|check| outcome(check) == "skipped" && !check.to_string().contains("failed"));
    assert!(blind && rest.len() <= 6, "{rest:#?}");
    for address in [OTHER4, "8.8.8.8", "169.254.169.254"] {
        lab.capture.none_to(frames, ip(address));
    }
}

at!(the_gateway_of_an_ordinary_user_has_no_power_over_the_machine: rootless);
fn the_gateway_of_an_ordinary_user_has_no_power_over_the_machine(place: Place) {
    let lab = lab_at(place);
    let pid = lab.gateway().pid().expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let uid = uid.and_then(|uids| uids.split_ascii_whitespace().next());
    assert_ne!(uid, Some("0"), "{status}");
    let namespace = |of: &str, kind: &str| {
        std::fs::read_link(format!("/proc/{of}/ns/{kind}")).expect("a namespace")
    };
    let pid = pid.to_string();
    assert_ne!(namespace(&pid, "user"), namespace("self", "user"));
    // its upstream connections are made where it was started
    let here = lab.topology.uplink.run(|| namespace("thread-self", "net"));
    assert_eq!(namespace(&pid, "net"), here);
}

at!(invariant_2_killing_an_ordinary_users_gateway_opens_nothing: rootless);
fn invariant_2_killing_an_ordinary_users_gateway_opens_nothing(place: Place) {
    let mut lab = lab_at(place);
    let policy = lab.file("job.yml", policies::DOMAINS).display().to_string();
    let config = lab.directory().join("config.yml").display().to_string();
    let script = format!(
        "ok() {{ curl -sf -m 1 -o /dev/null http://ok.sallylab.net/; }}
         forbidden() {{ (echo x > /dev/udp/8.8.8.8/53) 2> /dev/null; curl -sf -m 1 http://{OTHER4}/ && exit 9; }}
         ok || exit 8
         while ok && [ $SECONDS -lt 30 ]; do forbidden; done
         until ok || [ $SECONDS -gt 60 ]; do forbidden; done
         ok"
    );
    let arguments = [
        "run",
        "--quiet",
        "--config",
        &config,
        "--policy",
        &policy,
        "--",
        "/bin/bash",
        "-c",
        &script,
    ];
    let mark = lab.capture.mark();
    let mut command = lab.command(&arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = lab.topology.uplink.start(&mut command).expect("start");
    // the second connection begins when the first try, which has to succeed, is over
    eventually("the run to be under way", || {
        let frames = lab.capture.touching(mark, ip(PUBLIC4));
        (frames.iter().filter(|f| f.is_syn()).count() > 1).then_some(())
    });
    lab.kill_gateway();
    let frames = lab.capture.mark();
    // long enough for several tries of every kind
    let _ = within(Duration::from_secs(4), || None::<()>);
    let begun = lab
        .capture
        .since(frames)
        .iter()
        .filter(|f| f.is_syn())
        .count();
    assert_eq!(begun, 0, "connections begun without a gateway");
    lab.start_gateway();
    let status = within(Duration::from_mins(1), || child.try_wait().expect("wait"));
    let said = child.wait_with_output().expect("output");
    assert_eq!(status.and_then(|s| s.code()), Some(0), "{said:?}");
    lab.capture.none_to(frames, ip(OTHER4));
    lab.capture.none_to(frames, ip("8.8.8.8"));
}

at!(an_upload_budget_holds_without_root: rootless);
fn an_upload_budget_holds_without_root(place: Place) {
    let lab = lab_at(place);
    let policy = format!("{}limits: {{ upload: 64KiB }}\n", policies::DOMAINS);
    let script = "head -c 1000000 /dev/zero > /tmp/z; \
                  curl -s -m 10 -o /dev/null -T /tmp/z http://ok.sallylab.net/ && exit 9; \
                  curl -sf -m 5 http://ok.sallylab.net/ && exit 8; exit 0";
    let said = run(&lab, &policy, &[], script).expect(0);
    assert!(said.err.contains("limit_upload"), "{said:?}");
}

at!(limits_hold_without_root_or_the_run_says_that_they_do_not: rootless);
fn limits_hold_without_root_or_the_run_says_that_they_do_not(place: Place) {
    let lab = lab_at(place);
    let script = "cat /sys/fs/cgroup/memory.max 2> /dev/null; true";
    let said = run(&lab, "none", &["--memory", "96"], script).expect(0);
    let holds = said.out.trim() == (96_u64 << 20).to_string();
    let told = said.err.contains("this engine does not limit memory");
    assert_ne!(holds, told, "{said:?}");
    // the twin, where the engine has the power
    let docker = lab_at(place::docker().expect("always there"));
    let said = run(&docker, "none", &["--memory", "96"], "true").expect(0);
    assert!(!said.err.contains("does not limit"), "{said:?}");
}

at!(uninstall_leaves_nothing_of_an_ordinary_user: rootless);
fn uninstall_leaves_nothing_of_an_ordinary_user(place: Place) {
    let mut lab = lab_at(place);
    run(&lab, policies::DOMAINS, &[], "true").expect(0);
    lab.stop_gateway();
    let kept = lab.directory().join("run/netns").join(lab.gateway().name());
    assert!(kept.exists(), "the namespace outlives its gateway");
    lab.sallyport(&["uninstall", "--purge"]).expect(0);
    for path in [
        kept,
        lab.directory().join("run"),
        lab.directory().join("state"),
    ] {
        assert!(!path.exists(), "{}", path.display());
    }
}

at!(who_may_not_open_the_runners_socket_is_told_whose_it_is: rootless);
fn who_may_not_open_the_runners_socket_is_told_whose_it_is(_place: Place) {
    let user = lab::User::prepared();
    // a folder of root's, closed to others, and a configuration that everybody reads
    let (closed, open) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let at = closed.path().display();
    let text = format!("gateway: {{ state_dir: {at}/state, run_dir: {at}/run }}\n");
    let config = open.path().join("config.yml");
    std::fs::write(&config, text).expect("a configuration");
    for (folder, mode) in [(&closed, 0o700), (&open, 0o755)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.path(), mode).expect("a mode");
    }
    let config = config.display().to_string();
    let arguments = ["run", "--config", &config, "--", "true"];
    let output = lab::cli::command_of(&user, &arguments).output();
    let said: lab::cli::Said = output.expect("start").into();
    assert_eq!(said.code, Some(125), "{said:?}");
    assert!(said.err.contains("is not this user's"), "{said:?}");
    assert!(!said.err.contains("locking"), "{said:?}");
}
