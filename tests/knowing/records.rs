//! The record for collectors, and its head outside of the machine's disk.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixDatagram;

use lab::client::{at, connect, http_get};
use lab::topology::{HOST_LAN4, PUBLIC4, ip};
use lab::wait::{LIMIT, eventually};
use lab::{Lab, policies};
use serde_json::Value;

#[test]
fn everything_that_happened_is_exported_as_events_of_the_schema() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    sandbox.run(|| {
        http_get(
            &mut connect(at("ok.sallylab.net", 80)).expect_open(),
            "ok.sallylab.net",
            "/",
        );
        lab::client::ask("evil.sallylab.net", 1);
    });
    eventually("the close record", || {
        lab.records().into_iter().find(|r| r["kind"] == "close")
    });
    // what is written between the two is in one of them only
    let events = eventually("one event for each record", || {
        let said = lab.sallyport(&["record", "export", "--format", "ocsf"]);
        let read = |l: &str| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"));
        let events: Vec<Value> = said.expect(0).out.lines().map(read).collect();
        (events.len() == lab.records().len()).then_some(events)
    });
    for (class, name) in [
        (4001, "Open"),
        (4002, "Get"),
        (4003, "Query"),
        (0, "attached"),
    ] {
        assert!(
            events
                .iter()
                .any(|e| e["class_uid"] == class && e["activity_name"] == name),
            "{class} {name}: {events:#?}"
        );
    }
    assert!(events.iter().all(|e| e["metadata"]["version"] == "1.8.0"));
    let only = lab
        .sallyport(&[
            "record",
            "export",
            "--format",
            "ocsf",
            "--network",
            "nobody",
        ])
        .expect(3);
    assert_eq!(only.out, "");
    assert!(
        only.err.contains("nothing of a network \"nobody\"") && only.err.contains(sandbox.name()),
        "{only:?}"
    );
}

#[test]
fn a_permitted_destination_that_fails_is_recorded_with_whose_address_it_is() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET_PRIVATE);
    let (machine, far) = (ip(HOST_LAN4), ip(PUBLIC4));
    sandbox.run(|| {
        for to in [machine, far] {
            assert!(connect(SocketAddr::new(to, 9)).is_refused(), "{to}");
        }
    });
    let failure = |address: IpAddr| {
        eventually("the failure", || {
            let of = address.to_string();
            let is = |r: &Value| r["kind"] == "failure" && r["subject"]["address"] == of.as_str();
            lab.records().into_iter().find(is)
        })
    };
    for (address, class) in [(machine, "host"), (far, "public")] {
        let found = failure(address);
        assert_eq!(found["class"], class, "{found}");
        assert_eq!(found["upstream"], format!("{address}:9"), "{found}");
    }
    let ocsf = lab.sallyport(&["record", "export", "--format", "ocsf"]);
    let told = ocsf.expect(0).out;
    let fail = told
        .lines()
        .find(|l| l.contains("\"activity_name\":\"Fail\""));
    assert!(
        fail.is_some_and(|l| l.contains(&machine.to_string())),
        "{told}"
    );
    // neither was ever open, and the machine's own is not proposed as if it were anybody's
    let learn = |more: &[&str]| {
        let all = [&["policy", "learn", "--network", sandbox.name()], more].concat();
        lab.sallyport(&all).expect(0).out
    };
    assert!(!learn(&[]).contains("- {"), "{}", learn(&[]));
    let asked = learn(&["--failed"]);
    assert!(
        asked.contains(&format!("{far}")) && asked.contains("it is private; --private proposes it"),
        "{asked}"
    );
}

#[test]
fn what_the_gateway_tries_on_itself_is_nobodys_traffic() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    lab.sallyport(&["selftest"]).expect(0);
    let probed = |r: &Value| {
        let network = r["network"].as_str().unwrap_or_default();
        network.starts_with("selftest-")
    };
    let records = lab.records();
    assert!(records.iter().any(probed), "{records:#?}");
    sandbox.run(|| drop(connect(at("ok.sallylab.net", 80)).expect_open()));
    let learnt = lab.sallyport(&["policy", "learn"]).expect(0).out;
    assert!(
        learnt.contains("ok.sallylab.net") && !learnt.contains("Left out"),
        "{learnt}"
    );
    let learned = lab.file("learned.yml", &learnt).display().to_string();
    lab.sallyport(&["policy", "replay", "--policy", &learned])
        .expect(0);
    // nobody can hide behind such a name
    let namespace = lab::namespace::Namespace::new("hidden");
    let said = lab.attach(&namespace, "selftest-0123456789abcdef", policies::DOMAINS);
    assert!(
        said.code == Some(3) && said.err.contains("drawn by the gateway"),
        "{said:?}"
    );
    lab.attach(&namespace, "selftest-mine", policies::DOMAINS)
        .expect(0);
}

#[test]
fn who_may_look_has_the_record_from_the_gateway_and_judges_it_and_others_have_nothing() {
    let lab = Lab::builder()
        .gateway_only()
        .config("control_users: { observe: [61811] }")
        .start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    sandbox.run(|| {
        http_get(
            &mut connect(at("ok.sallylab.net", 80)).expect_open(),
            "ok.sallylab.net",
            "/",
        );
        lab::client::ask("evil.sallylab.net", 1);
    });
    eventually("the close record", || {
        lab.records().into_iter().find(|r| r["kind"] == "close")
    });
    let journal = lab.gateway().state().join("journal");
    let named = journal.display().to_string();
    let shut = lab.sallyport_as(61811, &["record", "export", "--journal", &named]);
    assert_eq!(shut.code, Some(3), "the files are root's: {shut:?}");
    let own = lab.sallyport(&["record", "export"]).expect(0).out;
    let theirs = lab.sallyport_as(61811, &["record", "export"]).expect(0).out;
    assert!(
        own.starts_with(&theirs) || theirs.starts_with(&own),
        "byte for byte the same lines"
    );
    assert!(theirs.contains("evil.sallylab.net"), "{theirs}");
    let learnt = lab.sallyport_as(61811, &["policy", "learn", "--network", sandbox.name()]);
    let learnt = learnt.expect(0);
    assert!(learnt.out.contains("ok.sallylab.net"), "{learnt:?}");
    lab.sallyport_as(61811, &["policy", "replay", "--policy", "none"])
        .expect(1);
    let verified = lab.sallyport_as(61811, &["record", "verify", "--json"]);
    let verified = verified.expect(0).json();
    let key = verified["report"]["key"].as_str().expect("the key");
    lab.sallyport_as(61811, &["record", "verify", "--key", key])
        .expect(0);
    let foreign = lab.sallyport_as(61811, &["record", "verify", "--key", &"ab".repeat(32)]);
    assert!(foreign.expect(1).out.contains("not by the key given"));
    for verb in [
        &["record", "export"][..],
        &["record", "verify"],
        &["policy", "learn"],
    ] {
        let stranger = lab.sallyport_as(61812, verb).expect(3);
        assert!(
            stranger.out.is_empty() && stranger.err.contains("may not observe"),
            "{stranger:?}"
        );
    }
    // what somebody with the disk changed is found through the gateway as well
    let segment = std::fs::read_dir(&journal)
        .expect("journal")
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "jsonl"))
        .expect("a segment");
    let text = std::fs::read(&segment).expect("segment");
    let text = String::from_utf8(text).expect("text");
    let text = text.replace("evil.sallylab.net", "good.sallylab.net");
    std::fs::write(&segment, text).expect("tamper");
    let said = lab.sallyport_as(61811, &["record", "verify"]).expect(1);
    assert!(said.out.contains("DAMAGE"), "{said:?}");
}

#[test]
fn a_key_is_told_from_damage_and_a_folder_without_a_journal_from_both() {
    let mut lab = Lab::builder().gateway_only().start();
    drop(lab.sandbox(policies::DOMAINS));
    lab.gateway_mut().stop();
    let verify = |more: &[&str]| lab.sallyport(&[&["record", "verify"], more].concat());
    let key = verify(&["--json"]).expect(0).json();
    let key = key["report"]["key"].as_str().expect("a key").to_owned();
    verify(&["--key", &key]).expect(0);
    verify(&["--key", &key.to_uppercase()]).expect(0);
    for none in [
        "abc",
        "",
        &format!("{key}0"),
        &key.replace(['a', 'b', '0', '1'], "x"),
    ] {
        let said = verify(&["--key", none]).expect(2);
        assert!(said.err.contains("64 hex digits"), "{said:?}");
    }
    let other = verify(&["--key", &"0f".repeat(32)]).expect(1);
    let expected = format!("signed by {key}, not by the key given");
    assert!(
        other.out.contains(&expected) && !other.out.contains("DAMAGE"),
        "{other:?}"
    );
    assert_eq!(other.out.lines().count(), 2, "{other:?}");
    std::fs::create_dir(lab.directory().join("nothing")).expect("folder");
    for folder in ["nothing", "missing"] {
        let path = lab.directory().join(folder).display().to_string();
        for verb in ["verify", "export"] {
            let said = lab
                .sallyport(&["record", verb, "--journal", &path])
                .expect(3);
            assert!(said.err.contains("there is no journal at"), "{said:?}");
        }
        let said = lab
            .sallyport(&["policy", "learn", "--record", &path])
            .expect(3);
        assert!(said.out.is_empty(), "{said:?}");
    }
    // who took everything away but the anchors is found
    let state = lab.gateway().state();
    let anchors = state.join("anchors.jsonl").display().to_string();
    let nothing = lab.directory().join("nothing").display().to_string();
    let said = lab.sallyport(&[
        "record",
        "verify",
        "--journal",
        &nothing,
        "--anchors",
        &anchors,
    ]);
    assert!(said.expect(1).out.contains("DAMAGE"));
}

#[test]
fn a_record_written_anew_is_found_by_what_syslog_kept_and_the_true_one_verifies() {
    let directory = tempfile::tempdir().expect("a folder");
    let log = directory.path().join("log");
    let daemon = UnixDatagram::bind(&log).expect("a syslog socket");
    daemon.set_read_timeout(Some(LIMIT)).expect("a limit");
    let config = format!("journal: {{ syslog: \"{}\" }}", log.display());
    let mut lab = Lab::builder().gateway_only().config(&config).start();
    drop(lab.sandbox(policies::DOMAINS));
    lab.gateway_mut().stop();
    let mut buffer = [0; 2048];
    let length = daemon.recv(&mut buffer).expect("the last anchor");
    let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
    assert!(
        message.starts_with("<85>1 ") && message.contains(" sallyport "),
        "{message}"
    );
    let kept = lab.file(
        "messages",
        &format!("Nov 29 12:00:00 gw other: x\n{message}\n"),
    );
    let kept = kept.display().to_string();
    lab.sallyport(&["record", "verify", "--anchors", &kept])
        .expect(0);
    // root throws the record away and the gateway begins another one
    let state = lab.gateway().state();
    std::fs::remove_dir_all(state.join("journal")).expect("remove");
    std::fs::remove_file(state.join("anchors.jsonl")).expect("remove");
    lab.gateway_mut().launch();
    lab.gateway_mut().stop();
    let said = lab.sallyport(&["record", "verify", "--anchors", &kept]);
    assert_eq!(said.code, Some(1), "{said:?}");
    lab.sallyport(&["record", "verify", "--anchors", "/nonexistent"])
        .expect(3);
}
