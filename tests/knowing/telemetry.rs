//! OpenTelemetry end to end: a collector on the host gets what happened, no sandbox gets near it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::channel;

use lab::client::{at, connect, http_get};
use lab::wait::LIMIT;
use lab::{Lab, policies};
use serde_json::Value;

#[test]
fn a_collector_gets_flows_as_logs_and_spans_and_denials_as_logs() {
    let lab = Lab::builder()
        .gateway_only()
        .config("telemetry: { otlp: \"http://127.0.0.1:4318\" }")
        .start();
    let uplink = &lab.topology.uplink;
    let listener =
        uplink.run(|| TcpListener::bind("127.0.0.1:4318").expect("the collector's port"));
    let (sender, got) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut bytes = Vec::new();
            let mut piece = [0; 4096];
            // the gateway's request is whole when its JSON is
            let body = loop {
                match stream.read(&mut piece) {
                    Ok(0) | Err(_) => break None,
                    Ok(count) => bytes.extend_from_slice(&piece[..count]),
                }
                let body = bytes
                    .windows(4)
                    .position(|w| w == b"\r\n\r\n")
                    .and_then(|at| serde_json::from_slice::<Value>(&bytes[at + 4..]).ok());
                if body.is_some() {
                    break body;
                }
            };
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
            if body.is_some_and(|body| sender.send(body.to_string()).is_err()) {
                return;
            }
        }
    });
    let sandbox = lab.sandbox(policies::DOMAINS);
    sandbox.run(|| {
        let mut stream = connect(at("ok.sallylab.net", 80)).expect_open();
        http_get(&mut stream, "ok.sallylab.net", "/");
        lab::client::ask("evil.sallylab.net", 1);
    });
    let mut wanted = vec![
        "flow opened",
        "flow closed",
        "name_not_allowed",
        "resourceSpans",
    ];
    while !wanted.is_empty() {
        let body = got
            .recv_timeout(LIMIT)
            .unwrap_or_else(|e| panic!("{e}: {wanted:?}"));
        wanted.retain(|text| !body.contains(text));
    }
}
