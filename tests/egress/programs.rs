//! Real programs over UDP: a time client, iperf3, dig asking whom it likes.

use std::process::Output;

use lab::topology::{PUBLIC4, PUBLIC6};
use lab::wait::eventually;
use lab::{Lab, policies};

/// A time server and a client (RFC 5905, client and server modes), as small as they get.
const TIME: &str = r#"
import socket, struct, sys, time
host, role = sys.argv[1], sys.argv[2]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
EPOCH = 2208988800
if role == "server":
    s.bind((host, 123))
    print("ready", flush=True)
    data, peer = s.recvfrom(64)
    now = int(time.time()) + EPOCH
    s.sendto(struct.pack("!BBbb11I", 0x24, 1, 6, -20, 0, 0, 0, now, 0, *struct.unpack("!2I", data[40:48]), now, 0, now, 0), peer)
else:
    s.settimeout(5)
    s.connect((host, 123))
    sent = int(time.time()) + EPOCH
    s.send(struct.pack("!BBbb11I", 0x23, 0, 6, -20, *[0] * 9, sent, 0))
    answer = struct.unpack("!BBbb11I", s.recv(64))
    assert answer[0] & 7 == 4 and answer[9] == sent, answer
    print("offset", answer[13] - sent)
"#;

fn said(output: &Output) -> String {
    let both = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn a_time_client_is_answered_in_both_families() {
    let lab = Lab::builder().start();
    let script = lab.file("time.py", TIME).display().to_string();
    let sandbox = lab.sandbox(policies::INTERNET);
    for host in [PUBLIC4, PUBLIC6] {
        let (internet, serving) = (lab.topology.internet.clone(), script.clone());
        let server = std::thread::spawn(move || {
            internet.exec(&["timeout", "20", "python3", &serving, host, "server"])
        });
        let client = ["python3", script.as_str(), host, "client"];
        let answer = eventually("an answer", || {
            let output = sandbox.exec(&client);
            output.status.success().then(|| said(&output))
        });
        assert!(
            answer.contains("offset 0") || answer.contains("offset 1"),
            "{answer}"
        );
        assert!(server.join().expect("server").status.success());
    }
}

#[test]
fn iperf3_measures_datagrams() {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let internet = lab.topology.internet.clone();
    let server = std::thread::spawn(move || {
        internet.exec(&["timeout", "20", "iperf3", "-s", "-1", "-B", PUBLIC4])
    });
    let report = eventually("a measurement", || {
        let client = ["iperf3", "-u", "-c", PUBLIC4, "-b", "20M", "-t", "1", "-J"];
        let output = sandbox.exec(&client);
        // before the server listens, it reports an error and calls that a success
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        report["end"]["sum"]["packets"].is_u64().then_some(report)
    });
    let sum = &report["end"]["sum"];
    assert!(sum["packets"].as_u64() > Some(1000), "{sum}");
    assert!(sum["lost_percent"].as_f64() < Some(20.0), "{sum}");
    server.join().expect("server");
}

#[test]
fn dig_is_answered_by_the_gateway_whomever_it_asks() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let mark = lab.capture.mark();
    for server in ["@8.8.8.8", "@2001:4860:4860::8888", "@198.18.0.1"] {
        let output = sandbox.exec(&["dig", "+short", "+tries=2", server, "ok.sallylab.net", "A"]);
        let text = said(&output);
        assert!(text.starts_with("198.19."), "{server}: {text}");
    }
    lab.capture.none_to(mark, lab::topology::ip("8.8.8.8"));
}
