//! ClientHello cases.

use super::build::{
    captured, extension, handshake, hello, length16, message, name, names, record, records,
};
use crate::detect::hello::{HelloReader, Progress};

fn read(raw: &[u8]) -> Progress {
    HelloReader::default().advance(raw)
}

/// The name of a hello that must be well-formed.
fn named(raw: &[u8]) -> Option<String> {
    match read(raw) {
        Progress::Hello(hello) => hello.name.map(|name| name.to_string()),
        other => panic!("no hello: {other:?}"),
    }
}

fn is_malformed(raw: &[u8]) -> bool {
    matches!(read(raw), Progress::Malformed(_))
}

#[test]
fn real_clients_are_read() {
    let cases: [(&str, &str, Option<&str>, &[&str]); 7] = [
        (
            "openssl",
            include_str!("../../../tests/hellos/openssl.hex"),
            Some("ok.test"),
            &["h2", "http/1.1"],
        ),
        (
            "openssl tls 1.2",
            include_str!("../../../tests/hellos/openssl-tls12.hex"),
            Some("ok.test"),
            &[],
        ),
        (
            "openssl without a name",
            include_str!("../../../tests/hellos/openssl-noname.hex"),
            None,
            &[],
        ),
        (
            "curl",
            include_str!("../../../tests/hellos/curl.hex"),
            Some("ok.test"),
            &["h2", "http/1.1"],
        ),
        (
            "node",
            include_str!("../../../tests/hellos/node.hex"),
            Some("ok.test"),
            &["http/1.1"],
        ),
        (
            "git",
            include_str!("../../../tests/hellos/git.hex"),
            Some("localhost"),
            &["h2", "http/1.1"],
        ),
        (
            "python",
            include_str!("../../../tests/hellos/python.hex"),
            Some("ok.test"),
            &[],
        ),
    ];
    for (client, hex, name, alpn) in cases {
        let Progress::Hello(hello) = read(&captured(hex)) else {
            panic!("{client} is not read")
        };
        assert_eq!(
            hello.name.as_ref().map(ToString::to_string).as_deref(),
            name,
            "{client}"
        );
        assert_eq!(hello.alpn, alpn, "{client}");
    }
}

#[test]
fn tls_03_a_hello_without_a_name_has_none() {
    assert_eq!(named(&records(&handshake(None), 16_384)), None);
    assert_eq!(named(&records(&handshake(Some(&[])), 16_384)), None);
    assert_eq!(named(&hello(b"ok.test")).as_deref(), Some("ok.test"));
}

#[test]
fn tls_04_an_address_is_no_server_name() {
    for literal in [
        "93.184.216.34",
        "[::1]",
        "::1",
        "0x7f000001",
        "2130706433",
        "127.1",
        "1.2.3.0x4",
        "017700000001",
    ] {
        assert!(is_malformed(&hello(literal.as_bytes())), "{literal}");
    }
    assert_eq!(named(&hello(b"4.ok.test")).as_deref(), Some("4.ok.test"));
}

#[test]
fn tls_05_odd_names_are_normalised_or_refused() {
    for good in ["GITHUB.COM", "github.com.", "GitHub.com"] {
        assert_eq!(
            named(&hello(good.as_bytes())).as_deref(),
            Some("github.com")
        );
    }
    let long = [b'a'; 256];
    let refused: [&[u8]; 10] = [
        b"github.com:443",
        b".github.com",
        b"",
        &long,
        b"github.com\0.evil.test",
        b"github.com ",
        b" github.com",
        b"github.com\t",
        b"*.github.com",
        b"github.com..",
    ];
    for bad in refused {
        assert!(
            is_malformed(&hello(bad)),
            "{:?}",
            bad.escape_ascii().to_string()
        );
    }
}

#[test]
fn two_names_are_never_one() {
    for list in [
        names(&[(0, b"ok.test"), (0, b"evil.test")]),
        names(&[(0, b"ok.test"), (0, b"ok.test")]),
        names(&[(1, b"ok.test")]),
        names(&[(0, b"ok.test"), (1, b"evil.test")]),
        names(&[]),
        extension(0, &[]),
        extension(
            0,
            &[
                &length16(&[&[0][..], &length16(b"ok.test")].concat())[..],
                b"x",
            ]
            .concat(),
        ),
    ] {
        assert!(is_malformed(&records(&handshake(Some(&[list])), 16_384)));
    }
    let twice = [name(b"ok.test"), name(b"evil.test")];
    assert!(is_malformed(&records(&handshake(Some(&twice)), 16_384)));
}

#[test]
fn lengths_that_do_not_add_up_are_malformed() {
    let whole = handshake(Some(&[name(b"ok.test")]));
    // bytes after the extensions, inside the message
    assert!(is_malformed(&records(
        &message(&[&whole[4..], b"x"].concat()),
        16_384
    )));
    // bytes after the message, inside the record
    assert!(is_malformed(&record(22, &[&whole[..], b"x"].concat())));
    // a body cut short in every place, with a length that says it is whole
    for cut in 0..whole.len() - 4 {
        let read = read(&records(&message(&whole[4..4 + cut]), 16_384));
        let ends_before_extensions = cut == 2 + 32 + 33 + 8 + 2;
        assert_eq!(
            matches!(read, Progress::Hello(_)),
            ends_before_extensions,
            "cut at {cut}: {read:?}"
        );
    }
    assert!(is_malformed(&records(
        &handshake(Some(&[extension(16, &[0, 0])])),
        16_384
    )));
    assert!(is_malformed(&records(
        &handshake(Some(&[extension(16, &[0, 1, 0])])),
        16_384
    )));
}

#[test]
fn tls_08_records_are_put_together_or_refused() {
    let whole = handshake(Some(&[name(b"ok.test")]));
    for size in [1, 5, 64] {
        assert_eq!(
            named(&records(&whole, size)).as_deref(),
            Some("ok.test"),
            "records of {size}"
        );
    }
    let (first, second) = whole.split_at(20);
    for between in [
        record(22, &[]),
        record(21, &[1, 0]),
        record(20, &[1]),
        record(23, b"data"),
    ] {
        assert!(is_malformed(
            &[record(22, first), between, record(22, second)].concat()
        ));
    }
}

#[test]
fn tls_10_large_hellos_work_and_endless_ones_do_not() {
    for size in [1_800, 16_000, 40_000, 60_000] {
        let padding = [extension(51, &vec![1; size]), name(b"ok.test")];
        assert_eq!(
            named(&records(&handshake(Some(&padding)), 16_384)).as_deref(),
            Some("ok.test"),
            "{size}"
        );
    }
    // 16 MB, as a length alone and before any of it came
    assert!(is_malformed(&record(22, &[1, 0xff, 0xff, 0xff])));
    assert!(is_malformed(&[22, 3, 1, 0x40, 1]), "a record over 2^14");
    let flood = records(&message(&vec![0; 60_000]), 1);
    assert!(is_malformed(&flood), "one-byte records beyond any use");
}

#[test]
fn tls_11_grease_and_order_do_not_matter() {
    let grease = [
        extension(0x1a1a, &[]),
        extension(0x8a8a, &[0]),
        extension(65_037, &[0; 40]),
        name(b"ok.test"),
    ];
    assert_eq!(
        named(&records(&handshake(Some(&grease)), 16_384)).as_deref(),
        Some("ok.test")
    );
}

#[test]
fn tls_12_old_versions_are_read_and_sslv2_is_refused() {
    for minor in 0..=4 {
        let mut raw = hello(b"ok.test");
        raw[2] = minor;
        raw[10] = minor.min(3);
        assert_eq!(named(&raw).as_deref(), Some("ok.test"), "3.{minor}");
    }
    for version in [[3, 1], [0, 2]] {
        let sslv2 = [&[0x80, 0x2e, 1][..], &version, &[0, 0x15, 0, 0, 0, 0x10]].concat();
        assert_eq!(read(&sslv2), Progress::NotTls);
    }
    let mut raw = hello(b"ok.test");
    raw[9] = 2;
    assert!(is_malformed(&raw), "a hello of version 2.x");
}

#[test]
fn tls_14_the_outer_name_decides_whatever_ech_says() {
    let ech = [name(b"cloudflare-ech.test"), extension(0xfe0d, &[0; 200])];
    assert_eq!(
        named(&records(&handshake(Some(&ech)), 16_384)).as_deref(),
        Some("cloudflare-ech.test")
    );
}

#[test]
fn early_data_after_the_hello_is_left_alone() {
    let raw = [hello(b"ok.test"), record(20, &[1]), record(23, b"early")].concat();
    assert_eq!(named(&raw).as_deref(), Some("ok.test"));
}

#[test]
fn other_protocols_are_not_tls() {
    for raw in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"SSH-2.0-x\r\n",
        &[0, 0, 0, 8, 4, 210, 22, 47],
        &[22, 2, 0],
        b"x",
    ] {
        assert_eq!(read(raw), Progress::NotTls, "{}", raw.escape_ascii());
    }
    assert_eq!(read(b""), Progress::Need);
    assert_eq!(read(&[22]), Progress::Need);
}
