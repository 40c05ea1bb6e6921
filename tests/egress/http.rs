//! HTTP/1: each request judged, kept-alive connections relayed, denials in HTTP's own language.

use lab::client::{at, connect, exchange, http_get};
use lab::{Lab, policies};

fn lab() -> Lab {
    Lab::builder().gateway_only().start()
}

#[test]
fn a_denied_host_gets_a_403_with_its_reason_and_no_markup() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let answer = sandbox.run(|| {
        http_get(
            &mut connect(at("ok.sallylab.net", 80)).expect_open(),
            "evil.sallylab.net",
            "/<x>",
        )
    });
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(
        answer
            .to_ascii_lowercase()
            .contains("sallyport-reason: http_host_mismatch"),
        "{answer}"
    );
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    let body: serde_json::Value =
        serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"));
    assert_eq!(body["error"], "egress_denied");
    assert_eq!(body["reason"], "http_host_mismatch");
}

#[test]
fn denials_name_policy_and_rule_only_where_the_policy_says_so() {
    let lab = lab();
    for (explain, named) in [("true", true), ("false", false)] {
        let policy = format!(
            "policy: quiet\nnetwork: domains\nexplain: {explain}\nallow:\n  - host: ok.sallylab.net\n"
        );
        let sandbox = lab.sandbox(&policy);
        let answer = sandbox.run(|| {
            http_get(
                &mut connect(at("ok.sallylab.net", 80)).expect_open(),
                "evil.sallylab.net",
                "/",
            )
        });
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert_eq!(answer.contains("quiet"), named, "{answer}");
    }
}

#[test]
fn requests_on_one_connection_share_one_upstream_and_are_judged_each() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let mark = lab.origins.requests.mark();
    let pipeline = "GET /1 HTTP/1.1\r\nHost: ok.sallylab.net\r\n\r\n\
                    POST /2 HTTP/1.1\r\nHost: OK.sallylab.net:80\r\nContent-Length: 5\r\n\r\nhello\
                    GET /3 HTTP/1.1\r\nHost: ok.sallylab.net.\r\nConnection: close\r\n\r\n";
    let (answer, _) = sandbox.run(|| {
        exchange(
            &mut connect(at("ok.sallylab.net", 80)).expect_open(),
            pipeline.as_bytes(),
        )
    });
    let text = String::from_utf8_lossy(&answer);
    assert_eq!(text.matches("HTTP/1.1 200").count(), 3, "{text}");
    let seen = lab.origins.requests.since(mark);
    assert_eq!(seen.len(), 3);
    assert!(
        seen.iter().all(|r| r.connection == seen[0].connection),
        "{seen:?}"
    );
}

#[test]
fn invariant_3_the_head_arrives_byte_for_byte() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let mark = lab.origins.requests.mark();
    let head = "GET /a/%2e%2e/b?q=1;2 HTTP/1.1\r\nHost: ok.sallylab.net\r\nX-Odd:  two  blanks \r\nConnection: close\r\n\r\n";
    sandbox.run(|| {
        exchange(
            &mut connect(at("ok.sallylab.net", 80)).expect_open(),
            head.as_bytes(),
        )
    });
    let seen = lab.origins.requests.since(mark);
    assert_eq!(
        seen.first().map(lab::origin::Request::text).as_deref(),
        Some(head)
    );
}

#[test]
fn a_giant_head_is_refused() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let mark = lab.origins.requests.mark();
    let head = format!(
        "GET / HTTP/1.1\r\nHost: ok.sallylab.net\r\nX-Big: {}\r\n\r\n",
        "x".repeat(1 << 20)
    );
    sandbox.run(|| {
        exchange(
            &mut connect(at("ok.sallylab.net", 80)).expect_open(),
            head.as_bytes(),
        )
    });
    assert!(lab.origins.requests.since(mark).is_empty());
}

#[test]
fn two_sandboxes_never_share_an_upstream_connection() {
    let lab = lab();
    let (one, two) = (
        lab.sandbox(policies::DOMAINS),
        lab.sandbox(policies::DOMAINS),
    );
    let mark = lab.origins.requests.mark();
    let keep = b"GET /kept HTTP/1.1\r\nHost: ok.sallylab.net\r\n\r\n";
    for sandbox in [&one, &two, &one] {
        // the first stays open while the second asks
        sandbox.run(|| {
            let mut stream = connect(at("ok.sallylab.net", 80)).expect_open();
            std::io::Write::write_all(&mut stream, keep).expect("write");
            assert!(
                lab::client::reads(&mut stream, b"HTTP/1.1 200"),
                "an answer"
            );
        });
    }
    let seen = lab.origins.requests.since(mark);
    let connections: std::collections::BTreeSet<_> = seen.iter().map(|r| r.connection).collect();
    assert_eq!((seen.len(), connections.len()), (3, 3), "{seen:?}");
}
