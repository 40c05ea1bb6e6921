//! Metrics: what happened can be read on this machine, by nobody in a sandbox, and every declared one is real.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use lab::client::{at, connect, http_get};
use lab::origin::port;
use lab::topology::{HOST4, PUBLIC4, ip};
use lab::wait::eventually;
use lab::{Lab, policies};

const PORT: u16 = 9466;
const CONFIG: &str = "management: { listen: \"127.0.0.1:9466\" }";

fn ask(lab: &Lab, head: &str) -> String {
    lab.topology.uplink.run(|| {
        let mut stream = TcpStream::connect(("127.0.0.1", PORT)).expect("the management listener");
        stream.write_all(head.as_bytes()).expect("send");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        answer
    })
}

fn scrape(lab: &Lab) -> String {
    let answer = ask(
        lab,
        "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9466\r\nConnection: close\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

/// The value of a series.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines()
        .find_map(|l| l.strip_prefix(series)?.strip_prefix(' '))?
        .trim()
        .parse()
        .ok()
}

/// Metrics that rightly stay at nothing in a healthy lab.
const QUIET: [&str; 5] = [
    "sallyport_queue_dropped",
    "sallyport_task_panics",
    "sallyport_anchors_lost",
    "sallyport_telemetry_lost",
    "sallyport_journal_unsigned",
];

#[test]
fn every_declared_metric_is_touched_by_what_it_is_about() {
    let lab = Lab::builder().gateway_only().config(CONFIG).start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    sandbox.run(|| {
        http_get(
            &mut connect(at("ok.sallylab.net", 80)).expect_open(),
            "ok.sallylab.net",
            "/",
        );
        lab::client::ask("evil.sallylab.net", 1);
    });
    let few = lab.sandbox("policy: few\nnetwork: internet\nlimits: { flows: 1 }\n");
    let held = few.run(|| connect(SocketAddr::new(ip(PUBLIC4), port::MUTE)).expect_open());
    few.run(|| connect(SocketAddr::new(ip(PUBLIC4), port::MUTE)));
    let closed = lab.sandbox(policies::INTERNET);
    closed.run(|| connect(SocketAddr::new(ip(PUBLIC4), port::CLOSED)));
    // a shape that the kernel drops by itself
    closed.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        drop(socket.send_to(b"x", "224.0.0.251:5353"));
    });
    // an echo request whose checksum is wrong
    let damaged = format!(
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).sendto(b'\\x08\\0\\0\\0\\0\\1\\0\\1', ('{PUBLIC4}', 0))"
    );
    assert!(closed.exec(&["python3", "-c", &damaged]).status.success());
    lab.replace_policy(&sandbox, policies::NONE).expect(0);
    let text = eventually("the flow's end and the echo to be counted", || {
        let text = scrape(&lab);
        let both = [
            "sallyport_flows_closed_total",
            "sallyport_echoes_refused_total",
        ];
        let counted = both.iter().all(|series| value(&text, series) > Some(0.0));
        counted.then_some(text)
    });
    for series in [
        "sallyport_flows_open",
        "sallyport_flows_permitted_total{door=\"tcp\"}",
        "sallyport_denials_total{reason=\"name_not_allowed\"}",
        "sallyport_denials_total{reason=\"limit_flows\"}",
        "sallyport_limits_reached_total{reason=\"limit_flows\"}",
        "sallyport_failures_total{reason=\"upstream_refused\"}",
        "sallyport_bytes_total{direction=\"up\"}",
        "sallyport_bytes_total{direction=\"down\"}",
        "sallyport_dns_answers_total{code=\"noerror\"}",
        "sallyport_dns_answers_total{code=\"nxdomain\"}",
        "sallyport_posture{state=\"enforcing\"}",
        "sallyport_policy_change_seconds_count",
    ] {
        assert!(value(&text, series) > Some(0.0), "{series}:\n{text}");
    }
    assert_eq!(value(&text, "sallyport_networks"), Some(3.0));
    let touched: BTreeSet<&str> = text
        .lines()
        .filter(|l| !l.starts_with('#') && !l.ends_with(" 0") && !l.ends_with(" 0.0"))
        .filter_map(|l| l.split(['{', ' ']).next())
        .collect();
    let declared = text.lines().filter_map(|l| l.strip_prefix("# TYPE "));
    for name in declared.filter_map(|l| l.split(' ').next()) {
        let real = touched.iter().any(|series| series.starts_with(name));
        assert!(
            real || QUIET.contains(&name),
            "{name} is declared and nothing touched it:\n{text}"
        );
    }
    assert!(
        !text.contains("sallylab") && !text.contains("sb1"),
        "{text}"
    );
    drop(held);
}

#[test]
fn no_sandbox_reaches_the_management_listener_and_a_policy_opens_other_ports() {
    let lab = Lab::builder().gateway_only().config(CONFIG).start();
    // whoever listened on another address of the machine would still be behind the floor
    let [own, other] = [PORT, PORT + 1].map(|port| {
        let uplink = &lab.topology.uplink;
        uplink.run(|| TcpListener::bind((HOST4, port)).expect("a listener of the host"))
    });
    let sandbox = lab.sandbox(policies::INTERNET_PRIVATE);
    let to = |port| SocketAddr::new(ip(HOST4), port);
    assert!(sandbox.run(|| connect(to(PORT + 1))).is_open(), "the twin");
    assert!(!sandbox.run(|| connect(to(PORT))).is_open());
    assert!(
        !sandbox
            .run(|| connect(SocketAddr::new(ip("127.0.0.1"), PORT)))
            .is_open()
    );
    own.set_nonblocking(true).expect("nonblocking");
    assert!(own.accept().is_err(), "nothing arrived");
    drop(other);
}

#[test]
fn a_page_in_a_browser_cannot_read_them_by_a_rebound_name() {
    let lab = Lab::builder().gateway_only().config(CONFIG).start();
    for (head, status) in [
        (
            "GET /metrics HTTP/1.1\r\nHost: evil.sallylab.net:9466\r\nConnection: close\r\n\r\n",
            "403",
        ),
        (
            "GET /metrics HTTP/1.1\r\nHost: localhost:9466\r\nConnection: close\r\n\r\n",
            "200",
        ),
        (
            "POST /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "405",
        ),
        (
            "GET /v1/networks HTTP/1.1\r\nHost: [::1]:9466\r\nConnection: close\r\n\r\n",
            "404",
        ),
    ] {
        let answer = ask(&lab, head);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{head}: {answer}"
        );
    }
}
