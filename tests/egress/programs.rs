//! Real programs over UDP: time clients, mosh, iperf3, dig and delv asking whom they like.

use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};

use lab::client::at;
use lab::topology::{OTHER4, PUBLIC4, PUBLIC6, ip};
use lab::wait::eventually;
use lab::{Lab, Sandbox, policies};

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
    s.settimeout(10)
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
            internet.exec(&["timeout", "90", "python3", &serving, host, "server"])
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
fn ntpdig_takes_the_time_of_a_permitted_server_and_of_no_other() {
    const POLICY: &str = "policy: time\nnetwork: domains\nallow:\n  - { host: ok.sallylab.net, ports: [123], protocol: udp }\n";
    let lab = Lab::builder().gateway_only().start();
    let script = lab.file("time.py", TIME).display().to_string();
    let sandbox = lab.sandbox(POLICY);
    let internet = lab.topology.internet.clone();
    let server = std::thread::spawn(move || {
        internet.exec(&["timeout", "90", "python3", &script, PUBLIC4, "server"])
    });
    let lease = sandbox.run(|| at("ok.sallylab.net", 123)).ip().to_string();
    eventually("the time", || {
        let text = said(&sandbox.exec(&["ntpdig", "-4", "-j", "-t", "2", &lease]));
        text.contains("\"stratum\":1").then_some(())
    });
    assert!(server.join().expect("server").status.success());
    let mark = lab.capture.mark();
    let denied = said(&sandbox.exec(&["ntpdig", "-4", "-j", "-t", "2", OTHER4]));
    assert!(!denied.contains("stratum"), "{denied}");
    lab.capture.none_to(mark, ip(OTHER4));
}

/// A program that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts mosh-client on a terminal of its own.
fn mosh(sandbox: &Sandbox, key: &str, to: &str) -> Child {
    let line = format!("stty rows 24 cols 80; exec timeout 90 mosh-client {to} 60001");
    let mut command = Command::new("script");
    command
        .args(["-qec", &line, "/dev/null"])
        .env("MOSH_KEY", key)
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    sandbox.namespace().start(&mut command).expect("mosh")
}

/// Reads on until the terminal shows this.
fn shows(screen: &mut impl Read, text: &str) {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&all).contains(text) {
        let count = screen.read(&mut piece).unwrap_or(0);
        let so_far = String::from_utf8_lossy(&all).into_owned();
        assert!(count > 0, "no {text:?} in {so_far:?}");
        all.extend(piece.iter().take(count));
    }
}

#[test]
fn mosh_keeps_a_session_with_a_permitted_host_and_sends_nothing_to_another() {
    const POLICY: &str = "policy: mosh\nnetwork: domains\nallow:\n  - { host: ok.sallylab.net, ports: [60001], protocol: udp }\n";
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(POLICY);
    let shell = "echo salute over mosh; read word; echo got $word; read end";
    let started = said(&lab.topology.internet.exec(&[
        "env",
        "LC_ALL=C.UTF-8",
        "MOSH_SERVER_NETWORK_TMOUT=20",
        "mosh-server",
        "new",
        "-i",
        PUBLIC4,
        "-p",
        "60001",
        "--",
        "/bin/sh",
        "-c",
        shell,
    ]));
    let key = started
        .lines()
        .find_map(|line| line.strip_prefix("MOSH CONNECT 60001 "))
        .unwrap_or_else(|| panic!("{started}"))
        .trim();
    let lease = sandbox
        .run(|| at("ok.sallylab.net", 60001))
        .ip()
        .to_string();
    let mark = lab.capture.mark();
    let _denied = Killed(mosh(&sandbox, key, OTHER4));
    let mut client = mosh(&sandbox, key, &lease);
    let mut screen = client.stdout.take().expect("piped");
    let mut keys = client.stdin.take().expect("piped");
    shows(&mut screen, "salute over mosh");
    keys.write_all(b"hello\n").expect("type");
    shows(&mut screen, "got hello");
    keys.write_all(b"bye\n").expect("type");
    shows(&mut screen, "mosh is exiting");
    client.wait().expect("the end");
    lab.capture.none_to(mark, ip(OTHER4));
}

#[test]
fn a_resolver_that_validates_gets_no_address_and_one_that_does_not_gets_the_lease() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let ask = |options: &[&str]| {
        let mut argv = vec!["timeout", "90", "delv", "@198.18.0.1"];
        argv.extend(options);
        argv.extend(["ok.sallylab.net", "A"]);
        said(&sandbox.exec(&argv))
    };
    // leases are nobody's signed data: whoever insists on signatures is told so and left without an address
    let validated = ask(&[]);
    assert!(!validated.contains("198.19."), "{validated}");
    assert!(
        validated.contains("failed") || validated.contains("broken"),
        "{validated}"
    );
    let plain = ask(&["-i"]);
    assert!(plain.contains("198.19."), "{plain}");
    let flags = said(&sandbox.exec(&["dig", "+dnssec", "@198.18.0.1", "ok.sallylab.net", "A"]));
    assert!(
        flags.contains("198.19.") && !flags.contains("RRSIG"),
        "{flags}"
    );
    let flags = flags
        .lines()
        .find(|l| l.starts_with(";; flags:"))
        .unwrap_or_default();
    assert!(
        !flags.split(';').nth(2).unwrap_or_default().contains(" ad"),
        "{flags}"
    );
}

#[test]
fn iperf3_measures_datagrams() {
    let lab = Lab::builder().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let internet = lab.topology.internet.clone();
    let server = std::thread::spawn(move || {
        internet.exec(&["timeout", "90", "iperf3", "-s", "-1", "-B", PUBLIC4])
    });
    let report = eventually("a measurement", || {
        let client = [
            "iperf3", "-u", "-c", PUBLIC4, "-J", "-b", "4M", "-l", "500", "-t", "2",
        ];
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
