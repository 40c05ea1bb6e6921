//! The record for collectors, and its head outside of the machine's disk.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use lab::client::{at, connect, http_get};
use lab::wait::eventually;
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
    let said = lab
        .sallyport(&["record", "export", "--format", "ocsf"])
        .expect(0);
    let events: Vec<Value> = said
        .out
        .lines()
        .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}")))
        .collect();
    assert_eq!(
        events.len(),
        lab.records().len(),
        "one event for each record"
    );
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
        .expect(0);
    assert_eq!(only.out, "");
}

#[test]
fn a_record_written_anew_is_found_by_what_syslog_kept_and_the_true_one_verifies() {
    let directory = tempfile::tempdir().expect("a folder");
    let log = directory.path().join("log");
    let daemon = UnixDatagram::bind(&log).expect("a syslog socket");
    daemon
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a limit");
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
