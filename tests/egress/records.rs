//! The record: every decision can be found with the line that made it, and tampering shows. (Invariant 10.)

use std::net::SocketAddr;

use lab::client::{at, connect, exchange, http_get};
use lab::origin::port;
use lab::topology::{OTHER4, ip};
use lab::wait::eventually;
use lab::{Lab, policies};

#[test]
fn invariant_10_every_flow_and_denial_is_recorded_with_its_line() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    sandbox.run(|| {
        http_get(
            &mut connect(at("ok.sallylab.net", 80)).expect_open(),
            "ok.sallylab.net",
            "/",
        );
        drop(connect(SocketAddr::new(ip(OTHER4), port::ECHO)));
        lab::client::ask("evil.sallylab.net", 1);
    });
    let close = eventually("the close record", || {
        lab.records().into_iter().find(|r| r["kind"] == "close")
    });
    assert_eq!(close["subject"]["name"], "ok.sallylab.net", "{close}");
    let records = lab.records();
    let open = records.iter().find(|r| r["kind"] == "open").expect("open");
    assert!(
        open.to_string().contains("\"line\":4"),
        "the line of `ok.sallylab.net`: {open}"
    );
    for reason in ["address_not_allowed", "name_not_allowed"] {
        lab.recorded(reason, |r| r["kind"] == "denial" && r["reason"] == reason);
    }
    assert!(
        close["up"].as_u64() > Some(0) && close["down"].as_u64() > Some(0),
        "{close}"
    );
}

#[test]
fn invariant_10_tampering_is_found() {
    let mut lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    sandbox.run(|| {
        exchange(
            &mut connect(at("ok.sallylab.net", 80)).expect_open(),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        )
    });
    lab.gateway_mut().stop();
    lab.sallyport(&["record", "verify"]).expect(0);
    let journal = lab.gateway().state().join("journal");
    let segment = std::fs::read_dir(&journal)
        .expect("journal")
        .flatten()
        .map(|e| e.path())
        .find(|p| std::fs::read(p).is_ok_and(|b| b.windows(15).any(|w| w == b"ok.sallylab.net")))
        .expect("a segment with the name");
    let text = std::fs::read_to_string(&segment)
        .expect("segment")
        .replacen("ok.sallylab.net", "no.sallylab.net", 1);
    std::fs::write(&segment, text).expect("tamper");
    let said = lab.sallyport(&["record", "verify"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("DAMAGE"), "{said:?}");
}
