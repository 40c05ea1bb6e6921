//! What is seen does not depend on how the bytes are cut, and under which rule it is held back.

use netpolicy::decide::Evidence;
use netpolicy::policy::Speaks;
use proptest::prelude::*;

use super::build::{extension, handshake, hello, name, record, records};
use crate::detect::{Language, Seen, Sight, Sniffer};

/// Feeds bytes in pieces of these sizes, repeating them; what is seen and after how many bytes.
fn feed(speaks: Speaks, raw: &[u8], sizes: &[usize]) -> (Seen, usize) {
    let mut sniffer = Sniffer::new(speaks);
    let mut given = 0;
    for size in sizes.iter().cycle() {
        given = (given + size).min(raw.len());
        match sniffer.advance(&raw[..given]) {
            Sight::Seen(seen) => return (*seen, given),
            Sight::Need if given == raw.len() => break,
            Sight::Need => {}
        }
    }
    (sniffer.give_up(raw), given)
}

fn samples() -> Vec<Vec<u8>> {
    let padded = handshake(Some(&[extension(51, &[1; 3000]), name(b"ok.test")]));
    vec![
        hello(b"ok.test"),
        records(&padded, 1400),
        records(&handshake(Some(&[name(b"ok.test")])), 5),
        [
            record(22, &padded[..30]),
            record(21, &[1, 0]),
            record(22, &padded[30..]),
        ]
        .concat(),
        hello(b"evil\0.test"),
        b"GET /a HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 4\r\n\r\nbody".to_vec(),
        b"GET / HTTP/1.1\r\nHost: ok.test\r\nHost: evil.test\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\nHost: ok.test\n\n".to_vec(),
        b"POST http://evil.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"GE".to_vec(),
        b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(),
        b"EHLO client.test\r\n".to_vec(),
        vec![22, 3],
        vec![0; 100],
    ]
}

proptest! {
    #[test]
    fn tls_07_any_cut_into_segments_is_seen_the_same(sample in 0..15_usize, sizes in prop::collection::vec(1..700_usize, 1..6)) {
        let raw = &samples()[sample];
        for speaks in [Speaks::Tls, Speaks::Http, Speaks::Any] {
            let (whole, _) = feed(speaks, raw, &[raw.len()]);
            let (cut, _) = feed(speaks, raw, &sizes);
            prop_assert_eq!(&whole.evidence, &cut.evidence);
            prop_assert_eq!(whole.language, cut.language);
        }
    }

    #[test]
    fn nothing_panics_and_every_byte_string_is_seen(raw in prop::collection::vec(any::<u8>(), 0..300)) {
        for speaks in [Speaks::Tls, Speaks::Http, Speaks::Any] {
            feed(speaks, &raw, &[raw.len().max(1)]);
        }
    }
}

#[test]
fn one_byte_at_a_time_is_the_same_and_not_slow() {
    let began = std::time::Instant::now();
    let padded = records(
        &handshake(Some(&[extension(51, &vec![1; 60_000]), name(b"ok.test")])),
        16_384,
    );
    let (seen, given) = feed(Speaks::Tls, &padded, &[1]);
    assert!(matches!(seen.evidence, Evidence::Tls { name: Some(_) }));
    assert_eq!(given, padded.len());
    let head = format!(
        "GET / HTTP/1.1\r\nHost: ok.test\r\nCookie: {}\r\n\r\n",
        "a".repeat(60_000)
    );
    let (seen, _) = feed(Speaks::Http, head.as_bytes(), &[1]);
    assert!(matches!(seen.evidence, Evidence::Http { .. }));
    assert!(
        began.elapsed() < std::time::Duration::from_secs(10),
        "quadratic: {:?}",
        began.elapsed()
    );
}

#[test]
fn tls_30_and_31_content_decides_not_the_port() {
    let http = b"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n";
    assert_eq!(feed(Speaks::Tls, http, &[99]).0.evidence, Evidence::Opaque);
    assert_eq!(
        feed(Speaks::Tls, b"SSH-2.0-x\r\n", &[99]).0.evidence,
        Evidence::Opaque
    );
    for speaks in [Speaks::Http, Speaks::Any] {
        let (seen, _) = feed(speaks, &hello(b"evil.test"), &[999]);
        assert!(
            matches!(&seen.evidence, Evidence::Tls { name: Some(name) } if name.as_str() == "evil.test")
        );
        assert_eq!(seen.language, Language::Tls);
    }
    assert!(matches!(
        feed(Speaks::Any, http, &[99]).0.evidence,
        Evidence::Http { .. }
    ));
}

#[test]
fn tls_32_any_holds_no_byte_that_cannot_become_tls_or_http() {
    for said in [
        &b"x"[..],
        b"ping",
        b"PING\r\n",
        b"HELO",
        b"EHLO x",
        b"@RSYNCD: 31.0\n",
        b"*1\r\n",
        &[0],
        &[0xff, 0xfb],
        b"SSH-2.0",
    ] {
        assert!(
            matches!(Sniffer::new(Speaks::Any).advance(said), Sight::Seen(seen) if seen.evidence == Evidence::Opaque),
            "{}",
            said.escape_ascii()
        );
    }
    for held in [&b"G"[..], b"GET /", b"POST", &[22], &[22, 3, 1]] {
        assert!(
            matches!(Sniffer::new(Speaks::Any).advance(held), Sight::Need),
            "{}",
            held.escape_ascii()
        );
    }
}

#[test]
fn half_a_hello_or_head_is_malformed_when_no_more_comes() {
    assert_eq!(
        feed(Speaks::Any, &hello(b"ok.test")[..40], &[9]).0.evidence,
        Evidence::TlsMalformed
    );
    assert_eq!(
        feed(Speaks::Any, b"GET / HT", &[9]).0.evidence,
        Evidence::HttpMalformed
    );
    assert_eq!(
        feed(Speaks::Any, b"BREW / HTTP/1.1\r\nHost: ok.test\r\n", &[99])
            .0
            .evidence,
        Evidence::HttpMalformed
    );
    assert_eq!(feed(Speaks::Any, b"", &[1]).0.evidence, Evidence::Opaque);
}

#[test]
fn tls_22_and_23_http2_is_refused_where_requests_are_judged() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert_eq!(
        feed(Speaks::Http, preface, &[99]).0.evidence,
        Evidence::HttpMalformed
    );
    assert_eq!(
        feed(Speaks::Any, preface, &[99]).0.evidence,
        Evidence::Opaque
    );
}
