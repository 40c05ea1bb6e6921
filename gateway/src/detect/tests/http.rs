//! Request head cases.

use netpolicy::name::Host;

use crate::detect::Head;
use crate::detect::http::{Framing, HeadError, HeadReader, Target};

fn read(raw: &[u8]) -> Result<Option<Head>, HeadError> {
    HeadReader::default().advance(raw)
}

/// A request of one line and these fields.
fn request(line: &str, fields: &[&str]) -> Vec<u8> {
    let lines = std::iter::once(line).chain(fields.iter().copied());
    let mut raw: Vec<u8> = lines
        .flat_map(|line| [line.as_bytes(), b"\r\n"].concat())
        .collect();
    raw.extend(b"\r\n");
    raw
}

fn head(line: &str, fields: &[&str]) -> Head {
    read(&request(line, fields)).unwrap().unwrap()
}

fn is_malformed(raw: &[u8]) -> bool {
    matches!(read(raw), Err(HeadError::Malformed(_)))
}

const GET: &str = "GET /a?b HTTP/1.1";
const OK: &str = "Host: ok.test";

#[test]
fn http_01_only_old_requests_may_come_without_host() {
    assert!(is_malformed(&request(GET, &[])));
    assert_eq!(head("GET / HTTP/1.0", &[]).host, None);
    assert!(head(GET, &[OK]).host.is_some());
}

#[test]
fn http_02_two_hosts_are_refused() {
    for fields in [
        &[OK, "Host: evil.test"][..],
        &["Host: evil.test", OK],
        &[OK, OK],
        &["Host: ok.test, evil.test"],
        &[OK, "hOST: evil.test"],
    ] {
        assert!(is_malformed(&request(GET, fields)), "{fields:?}");
    }
}

#[test]
fn http_04_the_target_and_the_host_agree() {
    for line in [
        "GET http://evil.test/ HTTP/1.1",
        "GET https://ok.test/ HTTP/1.1",
        "GET ftp://ok.test/ HTTP/1.1",
        "GET http://ok.test:81/ HTTP/1.1",
        "GET http://user@ok.test/ HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET ok.test/ HTTP/1.1",
        "GET * HTTP/1.1",
        "CONNECT evil.test:443 HTTP/1.1",
        "CONNECT / HTTP/1.1",
    ] {
        assert!(is_malformed(&request(line, &[OK])), "{line}");
    }
    let absolute = head("GET HTTP://OK.test:80?q HTTP/1.1", &[OK]);
    assert_eq!(absolute.path(), "/?q");
    assert!(matches!(absolute.target, Target::Absolute { .. }));
    assert!(matches!(
        head("CONNECT ok.test:443 HTTP/1.1", &[OK]).target,
        Target::Authority(_)
    ));
    assert_eq!(head("OPTIONS * HTTP/1.1", &[OK]).target, Target::Asterisk);
}

#[test]
fn http_05_a_host_is_a_host_and_nothing_else() {
    for host in [
        "ok.test@evil.test",
        "evil.test#.ok.test",
        "ok.test\\evil.test",
        "ok.test/evil",
        "ok.test evil.test",
        "ok.test:80@evil",
        "",
        "ok.test:",
        "ok.test:+80",
        "ok.test:080000",
        "127.1",
        "0x7f000001",
        "[::1%25eth0]",
        "::1",
        "ok.test\u{e9}",
    ] {
        assert!(
            is_malformed(&request(GET, &[&format!("Host: {host}")])),
            "{host}"
        );
    }
}

#[test]
fn http_33_spellings_of_one_host_are_one_host() {
    for host in ["OK.TEST:443", "ok.test", "Ok.Test.", " ok.test\t"] {
        let Some(host) = head(GET, &[&format!("Host:{host}")]).host else {
            panic!("no host")
        };
        assert!(matches!(host.host, Host::Name(name) if name.as_str() == "ok.test"));
    }
}

#[test]
fn http_07_lengths_and_codings_that_servers_read_differently_are_refused() {
    for fields in [
        &["Content-Length: 5", "Transfer-Encoding: chunked"][..],
        &["Transfer-Encoding: chunked", "Content-Length: 5"],
        &["Transfer-Encoding : chunked"],
        &["Transfer-Encoding: xchunked"],
        &["Transfer-Encoding: chunked, identity"],
        &["Transfer-Encoding: gzip, chunked"],
        &["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        &["Transfer-Encoding: \u{b}chunked"],
        &["Transfer-Encoding: \"chunked\""],
        &["Transfer-Encoding:"],
        &["Transfer-Encoding\u{0}: chunked"],
    ] {
        let fields: Vec<&str> = std::iter::once(OK).chain(fields.iter().copied()).collect();
        assert!(
            is_malformed(&request("POST / HTTP/1.1", &fields)),
            "{fields:?}"
        );
    }
    assert!(is_malformed(&request(
        "POST / HTTP/1.0",
        &[OK, "Transfer-Encoding: chunked"]
    )));
    assert_eq!(
        head("POST / HTTP/1.1", &[OK, "Transfer-Encoding:\tChunked "]).framing,
        Framing::Chunked
    );
}

#[test]
fn http_08_a_length_is_digits_once() {
    for length in [
        "5, 5",
        "+5",
        "0x5",
        "5 5",
        "18446744073709551616",
        "-1",
        "",
        "5\u{a0}",
        "٥",
    ] {
        assert!(
            is_malformed(&request(
                "POST / HTTP/1.1",
                &[OK, &format!("Content-Length: {length}")]
            )),
            "{length}"
        );
    }
    assert!(is_malformed(&request(
        "POST / HTTP/1.1",
        &[OK, "Content-Length: 5", "Content-Length: 5"]
    )));
    assert_eq!(
        head(
            "POST / HTTP/1.1",
            &[OK, "Content-Length: 18446744073709551615"]
        )
        .framing,
        Framing::Length(u64::MAX)
    );
    assert_eq!(
        head("POST / HTTP/1.1", &[OK, "Content-Length: 005"]).framing,
        Framing::Length(5)
    );
}

#[test]
fn http_10_line_ends_and_fields_are_strict() {
    let refused: [&[u8]; 16] = [
        b"GET / HTTP/1.1\nHost: ok.test\n\n",
        b"GET / HTTP/1.1\r\nHost: ok.test\n\r\n",
        b"GET / HTTP/1.1\r\nHost: ok.test\rX: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: ok.test\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\n Host: ok.test\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : ok.test\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: ok.test\0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: ok.test\r\nX Y: z\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: ok.test\r\nX\xff: z\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: ok.test\r\n: z\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: ok.test\r\nX\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        b"GET\t/ HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        b"GET / HTTP/1.1 \r\nHost: ok.test\r\n\r\n",
        b"\r\nGET / HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: ok.test\r\nX: \x7f\r\n\r\n",
    ];
    for raw in refused {
        assert!(is_malformed(raw), "{}", raw.escape_ascii());
    }
    for line in [
        "G(T / HTTP/1.1",
        "GET /\u{1f} HTTP/1.1",
        "GET /# HTTP/1.1",
        "GET /\\x HTTP/1.1",
        "GET /",
        "GET / HTTP/1.2",
        "GET / HTTP/0.9",
        "GET / http/1.1",
        " GET / HTTP/1.1",
    ] {
        assert!(is_malformed(&request(line, &[OK])), "{line}");
    }
    assert_eq!(read(&request("PRI * HTTP/2.0", &[])), Err(HeadError::Http2));
    assert!(
        read(&request(GET, &[OK, "X: caf\u{e9}", "Cookie: a=\"b\"; c"]))
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_bare_line_feed_is_refused_before_the_head_is_complete() {
    assert!(is_malformed(b"GET / HTTP/1.1\n"));
    assert_eq!(read(b"GET / HTTP/1.1\r\nHost: ok"), Ok(None));
}

#[test]
fn http_11_a_pipelined_request_is_not_part_of_the_first() {
    let first = request(GET, &[OK]);
    let both = [
        &first[..],
        &request("GET /forbidden HTTP/1.1", &["Host: evil.test"]),
    ]
    .concat();
    assert_eq!(read(&both).unwrap().unwrap().length, first.len());
}

#[test]
fn http_13_upgrades_are_read_by_token() {
    assert!(
        head(GET, &[OK, "Connection: notupgrade", "Upgrade: websocket"])
            .upgrade
            .is_empty()
    );
    assert!(head(GET, &[OK, "Upgrade: websocket"]).upgrade.is_empty());
    assert_eq!(
        head(
            GET,
            &[
                OK,
                "Connection: keep-alive, Upgrade",
                "Upgrade: WebSocket, h2c"
            ]
        )
        .upgrade,
        ["websocket", "h2c"]
    );
}

#[test]
fn http_14_an_unknown_expectation_has_its_own_answer() {
    assert_eq!(
        read(&request(GET, &[OK, "Expect: bogus"])),
        Err(HeadError::Expectation)
    );
    assert!(
        read(&request(GET, &[OK, "Expect: 100-Continue"]))
            .unwrap()
            .is_some()
    );
}

#[test]
fn http_16_giant_heads_are_refused_while_they_arrive() {
    let mut raw = b"GET /".to_vec();
    raw.resize(70_000, b'a');
    assert_eq!(read(&raw), Err(HeadError::TooLong));
    let mut raw = request(GET, &[OK, &format!("Cookie: {}", "a".repeat(1 << 20))]);
    assert_eq!(read(&raw), Err(HeadError::TooLong));
    raw = request(GET, &[OK, &format!("Cookie: {}", "a".repeat(40_000))]);
    assert!(read(&raw).unwrap().is_some());
    let many: Vec<String> = (0..20_000).map(|n| format!("x{n}: 1")).collect();
    let many: Vec<&str> = std::iter::once(OK)
        .chain(many.iter().map(String::as_str))
        .collect();
    assert!(read(&request(GET, &many)).is_err());
    assert!(is_malformed(&request(GET, &many[..300])));
}

#[test]
fn http_23_a_connection_option_cannot_remove_what_was_checked() {
    for option in [
        "close, Host",
        "content-length",
        "Transfer-Encoding",
        "authorization",
    ] {
        assert!(
            is_malformed(&request(GET, &[OK, &format!("Connection: {option}")])),
            "{option}"
        );
    }
    assert!(!head(GET, &[OK, "Connection: Close"]).persistent);
    assert!(head(GET, &[OK]).persistent);
    assert!(!head("GET / HTTP/1.0", &["Host: ok.test"]).persistent);
    assert!(head("GET / HTTP/1.0", &["Connection: keep-alive"]).persistent);
}

#[test]
fn the_record_never_gets_the_query() {
    let head = head("GET /a/b?token=secret HTTP/1.1", &[OK]);
    assert_eq!(
        (head.path(), head.path_without_query()),
        ("/a/b?token=secret", "/a/b")
    );
}
