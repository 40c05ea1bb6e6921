//! The selftest's probes in containers: each isolation class of the engine, as rows of the one table.

use std::time::{Duration, Instant};

use lab::topology::{METADATA, ip};
use lab::wait::within;

use crate::attacks::world::World;
use crate::mute::Relay;
use crate::{place, world};

#[test]
fn a_probe_in_a_container_of_each_class_is_held_back_and_reaches_what_is_permitted() {
    let lab = world::lab();
    let frames = lab.capture.mark();
    let said = lab.sallyport(&["selftest", "--container", "--json"]);
    let report = said.expect(0).json();
    let checks = report["checks"].as_array().expect("checks");
    let gvisor = place::gvisor().map(|place| place.class);
    for class in [Some("hardened"), gvisor].into_iter().flatten() {
        let outcome = |check: &str, family: &str| {
            let is = |c: &&serde_json::Value| {
                c["check"] == check && c["family"] == family && c["variant"] == class
            };
            let found = checks.iter().find(is);
            found.unwrap_or_else(|| panic!("{class} {check} {family}: {report}"))["outcome"].clone()
        };
        for check in ["no_other_link", "no_capabilities", "no_engine_socket"] {
            assert_eq!(
                outcome(check, "both"),
                "passed",
                "{class} {check}: {report}"
            );
        }
        for family in ["ipv4", "ipv6"] {
            for check in [
                "metadata",
                "gateway_ports",
                "gateway_door",
                "connect_denied",
                "host_tcp",
                "console_ports",
                "udp_denied",
                "permitted_tcp",
            ] {
                assert_eq!(
                    outcome(check, family),
                    "passed",
                    "{class} {check}: {report}"
                );
            }
        }
    }
    assert!(report["took_ms"].as_u64().is_some_and(|ms| ms < 60_000));
    let kept = lab.sallyport(&["record", "export"]).expect(0).out;
    for class in ["hardened", "gvisor"] {
        assert!(kept.contains(&format!(r#""variant":"{class}""#)), "{kept}");
    }
    for address in METADATA.iter().chain([&"192.0.2.1"]) {
        lab.capture.none_to(frames, ip(address));
    }
    // its runs are over with it
    let networks = lab.sallyport(&["net", "ls", "--json"]).expect(0).json();
    assert_eq!(networks, serde_json::json!([]));
}

#[test]
fn without_a_runner_the_rows_of_containers_are_skipped_and_say_why() {
    let lab = world::lab();
    let report = lab.sallyport(&["selftest", "--json"]).expect(0).json();
    let checks = report["checks"].as_array().expect("checks");
    let rows: Vec<_> = checks
        .iter()
        .filter(|c| c["check"] == "container")
        .collect();
    assert_eq!(rows.len(), 2, "{report}");
    for row in rows {
        assert_eq!(row["outcome"], "skipped", "{row}");
        let why = row["detail"].as_str().unwrap_or_default();
        assert!(why.contains("--container"), "{row}");
    }
}

#[test]
fn an_engine_that_changed_has_the_gateway_prove_itself_before_the_next_run_and_one_that_did_not_has_not()
 {
    let lab = world::lab();
    let selftests = || {
        let kept = lab.sallyport(&["record", "export"]).expect(0).out;
        kept.matches(r#""kind":"selftest""#).count()
    };
    let run = || {
        world::run(&lab, "none", &[], "true").expect(0);
        selftests()
    };
    let first = run();
    assert_eq!(run(), first, "nothing changed");
    let path = lab.directory().join("runner-state/fingerprint.json");
    let text = std::fs::read_to_string(&path).expect("what was noted");
    let noted: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(
        noted["passed"].as_u64().is_some_and(|rows| rows > 150),
        "{noted}"
    );
    for key in ["kernel", "engine"] {
        let mut other = noted.clone();
        other[key] = "another".into();
        std::fs::write(&path, other.to_string()).expect("another one");
        let before = selftests();
        // the gateway itself, and each class of containers
        assert_eq!(run(), before + 3, "{key}");
        let again = std::fs::read_to_string(&path).expect("what was noted");
        let again: serde_json::Value = serde_json::from_str(&again).expect("JSON");
        assert_eq!(again[key], noted[key]);
    }
}

#[test]
fn an_engine_that_restarts_under_a_runner_has_gateway_and_containers_tried_again_while_runs_go_on()
{
    let relay = Relay::start();
    let socket = relay.socket();
    let world = World::with(&format!("  pool: 0\n  engine: {}\n", socket.display()));
    let kept = || {
        let kept = world.lab.sallyport(&["record", "export"]).expect(0).out;
        kept.lines()
            .filter(|line| line.contains(r#""kind":"selftest""#))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    world.run(&[], &["true"]).expect(0);
    let before = kept().len();
    let mut since = Instant::now();
    let tried = within(Duration::from_mins(1), || {
        let kept = kept();
        // only a conversation that has lasted can tell of a restart
        if kept.len() == before && since.elapsed() > Duration::from_secs(3) {
            relay.hang_up();
            since = Instant::now();
        }
        (kept.len() >= before + 3).then_some(kept)
    });
    let tried = tried.unwrap_or_else(|| panic!("{}", world.runner_log()));
    assert_eq!(tried.len(), before + 3);
    for (variant, why) in [
        ("namespace", "asked"),
        ("hardened", "engine"),
        ("gvisor", "engine"),
    ] {
        let is = |line: &&String| {
            line.contains(&format!(r#""variant":"{variant}""#))
                && line.contains(&format!(r#""why":"{why}""#))
                && line.contains(r#""failed":0"#)
        };
        assert!(
            tried[before..].iter().any(|line| is(&line)),
            "{variant}: {tried:?}"
        );
    }
    world.run(&[], &["true"]).expect(0);
}
