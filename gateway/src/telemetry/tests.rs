//! A fake collector that decodes what it gets; slow, absent and refusing collectors that hold nothing back.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::*;
use crate::record::{Entry, JournalConfig};

struct Collector {
    address: SocketAddr,
    got: Receiver<(String, Value)>,
}

impl Collector {
    /// Answers every request with a status.
    fn start(listener: TcpListener, status: &'static str) -> Self {
        let address = listener.local_addr().unwrap();
        let (sender, got) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                take(stream, status, &sender);
            }
        });
        Self { address, got }
    }

    fn endpoint(&self) -> Endpoint {
        format!("http://{}/otel/", self.address).parse().unwrap()
    }

    /// Log records and spans until as many of both have come.
    fn wait(&self, logs: usize, spans: usize) -> (Vec<Value>, Vec<Value>) {
        let (mut all_logs, mut all_spans) = (Vec::new(), Vec::new());
        while all_logs.len() < logs || all_spans.len() < spans {
            let (path, body) = self
                .got
                .recv_timeout(Duration::from_secs(20))
                .expect("a request");
            let list = |kind: &str, scope: &str, each: &str| -> Vec<Value> {
                body[kind][0][scope][0][each].as_array().unwrap().clone()
            };
            match path.as_str() {
                "/otel/v1/logs" => all_logs.extend(list("resourceLogs", "scopeLogs", "logRecords")),
                "/otel/v1/traces" => all_spans.extend(list("resourceSpans", "scopeSpans", "spans")),
                other => panic!("{other}"),
            }
        }
        (all_logs, all_spans)
    }
}

fn take(mut stream: TcpStream, status: &str, sender: &Sender<(String, Value)>) {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let (head, start) = loop {
        let count = stream.read(&mut piece).unwrap_or(0);
        if count == 0 {
            return;
        }
        bytes.extend_from_slice(&piece[..count]);
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break (String::from_utf8_lossy(&bytes[..at]).to_lowercase(), at + 4);
        }
    };
    let length: usize = head
        .lines()
        .find_map(|l| l.strip_prefix("content-length: "))
        .map_or(0, |l| l.trim().parse().unwrap());
    while bytes.len() < start + length {
        let count = stream.read(&mut piece).unwrap();
        bytes.extend_from_slice(&piece[..count]);
    }
    assert!(head.contains("content-type: application/json"), "{head}");
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let body = serde_json::from_slice(&bytes[start..start + length]).expect("JSON");
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    );
    let _ = sender.send((path, body));
}

fn journal(dir: &std::path::Path) -> Arc<Journal> {
    Arc::new(Journal::open(JournalConfig::under(dir)).unwrap())
}

fn entry(text: &str) -> Entry {
    serde_json::from_str(text).unwrap()
}

fn subject(name: &str) -> String {
    let name = serde_json::to_string(name).unwrap();
    format!(
        r#""subject":{{"network":"dev","run":"r1","door":"tcp","direction":"egress","protocol":"tcp","source":"198.18.0.9:1","name":{name},"port":443}}"#
    )
}

fn close(flow: u64, name: &str) -> Entry {
    let subject = subject(name);
    entry(&format!(
        r#"{{"kind":"close","flow":{flow},{subject},"up":10,"down":32,"duration_ms":1500,"end":"server_closed"}}"#
    ))
}

fn denial(name: &str) -> Entry {
    let (subject, policy) = (subject(name), "01".repeat(32));
    entry(&format!(
        r#"{{"kind":"denial",{subject},"reason":"name_denied","policy":"{policy}","generation":2}}"#
    ))
}

fn attributes(of: &Value) -> HashMap<String, Value> {
    of["attributes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| (a["key"].as_str().unwrap().to_owned(), a["value"].clone()))
        .collect()
}

/// Runs a follower beside a test.
fn following<T>(
    journal: &Arc<Journal>,
    endpoint: Endpoint,
    most_behind: u64,
    test: impl FnOnce() -> T,
) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let begin = Duration::from_millis(10);
    let follower = Follower::new(journal.clone(), endpoint, most_behind, begin);
    let tasks = crate::tasks::Tasks::default();
    let entered = runtime.enter();
    tasks.spawn("telemetry", follower.run());
    drop(entered);
    let outcome = test();
    runtime.block_on(tasks.shut_down());
    outcome
}

#[test]
fn flows_and_denials_arrive_as_log_records_and_flows_as_spans() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, collector) = (
        journal(dir.path()),
        Collector::start(TcpListener::bind("127.0.0.1:0").unwrap(), "200 OK"),
    );
    let hostile = "evil\u{1b}[31m\"}]\n.example";
    let (logs, spans) = following(&journal, collector.endpoint(), 1000, || {
        journal.append(close(7, "api.example.com")).unwrap();
        journal.append(denial(hostile)).unwrap();
        collector.wait(2, 1)
    });
    let (closed, denied, span) = (&logs[0], &logs[1], &spans[0]);
    let of = attributes(closed);
    assert_eq!(of["sandbox.id"]["stringValue"], "dev");
    assert_eq!(of["flow.id"]["intValue"], "7");
    assert_eq!(of["bytes.down"]["intValue"], "32");
    assert_eq!(attributes(denied)["reason"]["stringValue"], "name_denied");
    assert_eq!(
        attributes(denied)["destination.name"]["stringValue"],
        hostile,
        "as data, whatever it is"
    );
    assert_eq!(denied["severityText"], "WARN");
    // the span is the log record's, and both ids have the lengths that OTLP asks for
    assert_eq!(
        (&span["traceId"], &span["spanId"]),
        (&closed["traceId"], &closed["spanId"])
    );
    assert_eq!(span["traceId"].as_str().unwrap().len(), 32);
    assert_eq!(span["spanId"].as_str().unwrap().len(), 16);
    let at = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(
        at("endTimeUnixNano") - at("startTimeUnixNano"),
        1_500_000_000
    );
}

#[test]
fn a_collector_that_is_away_holds_nothing_back_and_gets_everything_later() {
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(dir.path());
    let reserved = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = reserved.local_addr().unwrap();
    drop(reserved);
    let endpoint: Endpoint = format!("http://{address}/otel").parse().unwrap();
    let logs = following(&journal, endpoint, 10_000, || {
        let begun = Instant::now();
        for flow in 0..1200 {
            journal.append(close(flow, "api.example.com")).unwrap();
        }
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        Collector::start(TcpListener::bind(address).unwrap(), "200 OK")
            .wait(1200, 1200)
            .0
    });
    let ids: std::collections::BTreeSet<String> = logs
        .iter()
        .map(|l| attributes(l)["flow.id"]["intValue"].to_string())
        .collect();
    assert_eq!(ids.len(), 1200);
}

#[test]
fn who_is_too_far_behind_loses_the_oldest_and_that_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(dir.path());
    // nobody there
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint: Endpoint = format!("http://{}", silent.local_addr().unwrap())
        .parse()
        .unwrap();
    drop(silent);
    following(&journal, endpoint, 50, || {
        let end = Instant::now() + Duration::from_secs(20);
        let mut flow = 0;
        while journal.meters().telemetry_lost_so_far() == 0 {
            journal.append(close(flow, "api.example.com")).unwrap();
            flow += 1;
            assert!(Instant::now() < end, "nothing was given up");
            std::thread::yield_now();
        }
    });
}

/// A name, and what is done with a connection.
type Rudeness = (&'static str, fn(TcpStream));

/// Accepts every connection and does this with it.
fn rude(behave: fn(TcpStream)) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || behave(stream));
        }
    });
    format!("http://{address}").parse().unwrap()
}

/// Reads on until the other side is gone.
fn hang(mut stream: TcpStream) {
    let mut piece = [0; 16_000];
    while stream.read(&mut piece).is_ok_and(|count| count > 0) {}
}

#[test]
fn a_collector_that_says_nothing_garbage_or_no_end_holds_nothing_back() {
    let rudenesses: [Rudeness; 5] = [
        // accepts, reads nothing, says nothing
        ("silent", |stream| {
            let (_sender, never) = channel::<()>();
            let _ = never.recv_timeout(Duration::from_mins(1));
            drop(stream);
        }),
        ("says nothing", hang),
        ("garbage", |mut stream| {
            let _ = stream.write_all(b"\0\xff SSH-2.0-x\r\n\r\n");
            hang(stream);
        }),
        ("a head without end", |mut stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            while stream.write_all(&[b'x'; 16_000]).is_ok() {}
        }),
        ("fields without end", |mut stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            while stream.write_all(&b"x-more: y\r\n".repeat(500)).is_ok() {}
        }),
    ];
    for (name, behave) in rudenesses {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        following(&journal, rude(behave), 500, || {
            let (begun, mut slowest) = (Instant::now(), Duration::ZERO);
            let mut flow = 0;
            while journal.meters().telemetry_lost_so_far() == 0 {
                let before = Instant::now();
                journal.append(close(flow, "api.example.com")).unwrap();
                slowest = slowest.max(before.elapsed());
                flow += 1;
                assert!(
                    begun.elapsed() < Duration::from_secs(30),
                    "{name}: nothing was given up"
                );
                if flow > 2_000 {
                    std::thread::yield_now();
                }
            }
            assert!(
                slowest < Duration::from_secs(2),
                "{name}: an append took {slowest:?}"
            );
        });
    }
}

#[test]
fn an_answer_without_end_is_read_in_part_and_counts_by_its_status() {
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(dir.path());
    let endless = rude(|mut stream| {
        let mut piece = [0; 4096];
        let _ = stream.read(&mut piece);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [&b"3e80\r\n"[..], &[b'x'; 16_000], b"\r\n"].concat();
        while stream.write_all(&chunk).is_ok() {}
    });
    following(&journal, endless, 1_000, || {
        journal.append(denial("one.example")).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while journal.meters().telemetry_lost_so_far() == 0 {
            assert!(Instant::now() < end, "the answer is read for ever");
            std::thread::yield_now();
        }
    });
}

#[test]
fn what_a_collector_refuses_is_passed_over_and_the_next_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, collector) = (
        journal(dir.path()),
        Collector::start(TcpListener::bind("127.0.0.1:0").unwrap(), "400 Bad Request"),
    );
    following(&journal, collector.endpoint(), 1000, || {
        journal.append(denial("one.example")).unwrap();
        collector.wait(1, 0);
        journal.append(denial("two.example")).unwrap();
        let (logs, _) = collector.wait(1, 0);
        assert_eq!(
            attributes(&logs[0])["destination.name"]["stringValue"],
            "two.example"
        );
    });
    assert!(journal.meters().telemetry_lost_so_far() >= 1);
}

#[test]
fn an_endpoint_is_http_with_a_host() {
    for (text, shown) in [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
        ("http://collector.example/", "http://collector.example:4318"),
        ("http://[::1]:9/a/b/", "http://[::1]:9/a/b"),
    ] {
        assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), shown);
    }
    for wrong in [
        "https://c.example",
        "c.example:4318",
        "http://",
        "http://u:p@c.example",
        "http://c.example/?q",
        "http://a b",
    ] {
        assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
    }
}
