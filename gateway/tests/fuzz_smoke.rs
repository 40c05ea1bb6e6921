//! Two seconds of each fuzz target of the TCP doors and of git's objects (or `FUZZ_SECONDS` of them): seeds and the files
//! of `fuzz/corpus` first, then seeded mutations of them. Each says how many inputs a second it took.
//!
//! The seed of the generator is fixed, so a failure repeats; the offending bytes are printed with it. The same bodies run
//! under libFuzzer for as long as somebody likes (`cargo fuzz run client_hello` in `gateway`).
#![expect(
    clippy::indexing_slicing,
    reason = "a wrong input should fail the test loudly"
)]

#[path = "../fuzz/targets/client_hello.rs"]
mod client_hello;
#[path = "../fuzz/targets/git_object.rs"]
mod git_object;
#[path = "../fuzz/targets/http2.rs"]
mod http2;
#[path = "../fuzz/targets/http_head.rs"]
mod http_head;
#[path = "../fuzz/targets/proxy_request.rs"]
mod proxy_request;
#[path = "../fuzz/targets/quic_initial.rs"]
mod quic_initial;
#[path = "../fuzz/targets/syn_gate.rs"]
mod syn_gate;

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

/// How long each target runs.
fn time() -> Duration {
    let asked = std::env::var("FUZZ_SECONDS").ok();
    Duration::from_secs(asked.and_then(|s| s.parse().ok()).unwrap_or(2))
}

/// xorshift: repeatable, and good enough to choose bytes.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).expect("below a usize")
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("below 256")
    }
}

fn run(target: &str, seeds: &[Vec<u8>], telling: &[u8], body: fn(&[u8])) {
    let check = |input: &[u8]| {
        assert!(
            catch_unwind(|| body(input)).is_ok(),
            "target {target} fails for b\"{}\"",
            input.escape_ascii()
        );
    };
    for seed in seeds {
        check(seed);
    }
    let (mut random, began, mut runs) = (Random(0x5a11), Instant::now(), 0_u32);
    while began.elapsed() < time() {
        check(&mutated(seeds, telling, &mut random));
        runs += 1;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "fuzz {target}: {runs} inputs in {seconds:.1} s, {:.0} a second",
        f64::from(runs) / seconds
    );
    assert!(runs > 500, "{target} managed only {runs} inputs");
}

/// One to six edits of a seed: flip, replace, insert, remove, repeat a part, or splice with another seed.
fn mutated(seeds: &[Vec<u8>], telling: &[u8], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(input.len() + 1);
        let byte = if random.below(2) == 0 {
            random.byte()
        } else {
            telling[random.below(telling.len())]
        };
        match random.below(7) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = byte,
            2 => input.insert(at, byte),
            3 => drop(input.drain(at..(at + random.below(8)).min(input.len()))),
            4 if input.len() < 4096 => input.extend_from_within(at..),
            5 => input.truncate(at),
            _ => {
                let other = &seeds[random.below(seeds.len())];
                input.truncate(at);
                input.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
        }
    }
    input
}

/// The files that a fuzzer starts from, and what ever failed: each is replayed here.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).expect("a corpus");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    // the order of a directory is not repeatable
    paths.sort();
    let all: Vec<_> = paths.iter().map(std::fs::read).collect();
    assert!(all.len() >= 10, "the corpus of {target} is too small");
    all.into_iter().map(|read| read.expect("bytes")).collect()
}

fn captured(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex")
    };
    std::iter::once(128)
        .chain(digits.chunks_exact(2).map(byte))
        .collect()
}

#[test]
fn any_bytes_are_a_hello_or_not() {
    let seeds = [
        captured(include_str!("hellos/openssl.hex")),
        captured(include_str!("hellos/openssl-tls12.hex")),
        captured(include_str!("hellos/openssl-noname.hex")),
        captured(include_str!("hellos/curl.hex")),
        captured(include_str!("hellos/node.hex")),
    ];
    run(
        "client_hello",
        &seeds,
        &[0, 1, 3, 16, 22, 23, 0x80, 0xff],
        client_hello::run,
    );
}

fn requests() -> Vec<Vec<u8>> {
    [
        &b"\x80GET /a?b HTTP/1.1\r\nHost: ok.net\r\n\r\n"[..],
        b"\x80POST http://ok.net:80/x HTTP/1.1\r\nHost: ok.net\r\nContent-Length: 5\r\n\r\nhello",
        b"\x80POST / HTTP/1.1\r\nHost: ok.net\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nA: b\r\n\r\n",
        b"\x805;x\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nA: b\r\n\r\n",
        b"\x80CONNECT ok.net:443 HTTP/1.1\r\nHost: ok.net:443\r\n\r\n",
        b"\x80GET http://[2001:db8::1]/ HTTP/1.0\r\nConnection: keep-alive, x-y\r\nX-Y: 1\r\nUpgrade: h2c\r\n\r\n",
        b"\x80HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
        b"\x80HTTP/1.0 304\r\n\r\n",
    ]
    .map(<[u8]>::to_vec)
    .to_vec()
}

#[test]
fn any_bytes_are_a_head_or_not() {
    run(
        "http_head",
        &requests(),
        b" \t\r\n:;,/\0\x7f\xff0a-HTP*",
        http_head::run,
    );
}

#[test]
fn any_request_is_forwarded_as_it_was_decided() {
    let seeds: Vec<Vec<u8>> = requests()
        .iter()
        .map(|request| request[1..].to_vec())
        .collect();
    run(
        "proxy_request",
        &seeds,
        b" \t\r\n:;,/?@[]0a",
        proxy_request::run,
    );
}

#[test]
fn any_datagrams_are_initials_or_not() {
    // a captured hello without its record header, in one CRYPTO frame and in two that come in the wrong order
    let hello = captured(include_str!("hellos/openssl.hex"))[6..].to_vec();
    let frame = |offset: usize, data: &[u8]| {
        let number = |n: usize| (u32::try_from(n).expect("short") | 0x8000_0000).to_be_bytes();
        [&[6][..], &number(offset), &number(data.len()), data].concat()
    };
    let piece = |mut bytes: Vec<u8>| {
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.insert(0, u8::try_from(bytes.len() / 8).expect("short"));
        bytes
    };
    let whole = piece(frame(0, &hello));
    let (begin, end) = hello.split_at(100);
    let halves = [piece(frame(100, end)), piece(frame(0, begin))].concat();
    let sealed = piece(quic_initial::initial(false, 0, &frame(0, &hello)));
    let seeds: Vec<Vec<u8>> = [(1, &whole), (3, &whole), (1, &halves), (0, &sealed)]
        .map(|(how, bytes)| [&[how], &bytes[..]].concat())
        .to_vec();
    run(
        "quic_initial",
        &seeds,
        &[0, 1, 2, 6, 8, 22, 0x40, 0x80, 0xc0, 0xff],
        quic_initial::run,
    );
}

#[test]
fn any_events_keep_the_gates_promises() {
    let seeds: Vec<Vec<u8>> = (0..8_u8)
        .map(|seed| {
            (0..120_u8)
                .map(|n| n.wrapping_mul(seed.wrapping_mul(2).wrapping_add(37)))
                .collect()
        })
        .collect();
    run(
        "syn_gate",
        &seeds,
        &[0, 1, 2, 3, 4, 5, 6, 20, 64],
        syn_gate::run,
    );
    // syn, own, ready, accept, close; a copy; a hold that is let go; a refusal
    let met = syn_gate::walk(&[0, 0, 1, 0, 2, 0, 0, 0, 4, 0, 5, 0, 0, 1, 6, 20, 0, 1, 3, 1]);
    assert!(
        met.accepted > 0 && met.paired > 0 && met.dropped > 0,
        "the walk reaches every state: {met:?}"
    );
}

#[test]
fn any_frames_are_requests_or_not() {
    // GET / of ok.net: three indexed fields and an authority
    let fields = |host: &[u8]| {
        let length = u8::try_from(host.len()).expect("short");
        [&[0x82, 0x86, 0x84, 0x41, length][..], host].concat()
    };
    let ask = |stream, fields: &[u8]| http2::frame(1, 5, stream, fields);
    let settings = http2::frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]);
    let get = [settings.clone(), ask(1, &fields(b"ok.net"))].concat();
    // a Host field beside it: literal with an indexed name, static entry 38
    let host = [&fields(b"ok.net")[..], &[0x66, 6], b"ok.net"].concat();
    let mut seeds = vec![
        get.clone(),
        [
            &settings[..],
            &ask(1, &host),
            &ask(3, &fields(b"ok.net:80")),
        ]
        .concat(),
        // fields in two frames, a body, a reset, a ping, a window, a priority, the end
        [
            &settings[..],
            &http2::frame(1, 0, 1, &host[..5]),
            &http2::frame(9, 4, 1, &host[5..]),
            &http2::frame(0, 1, 1, b"body"),
            &http2::frame(3, 0, 1, &[0, 0, 0, 8]),
            &http2::frame(6, 0, 0, &[7; 8]),
            &http2::frame(8, 0, 0, &[0, 0, 1, 0]),
            &http2::frame(2, 0, 3, &[0, 0, 0, 1, 9]),
            &http2::frame(7, 0, 0, &[0; 8]),
        ]
        .concat(),
    ];
    assert_eq!(http2::walk(&get), 1, "the seed is a request");
    assert_eq!(http2::walk(&seeds[1]), 2, "and the other is two");
    seeds.extend(corpus("http2"));
    run(
        "http2",
        &seeds,
        &[
            0, 1, 4, 5, 9, 0x20, 0x3f, 0x41, 0x7f, 0x82, 0x84, 0xff, b':', b'@',
        ],
        http2::run,
    );
}

#[test]
fn any_bytes_of_a_remote_are_objects_or_not() {
    let entry =
        |mode: &str, name: &str| [mode.as_bytes(), b" ", name.as_bytes(), b"\0", &[7; 20]].concat();
    let tree = [
        &b"\0"[..],
        &entry("100644", "a.yml"),
        &entry("40000", "policies"),
        &entry("120000", "x"),
    ]
    .concat();
    let oid = "0123456789abcdef0123456789abcdef01234567";
    let plain = format!(
        "\u{1}tree {oid}\nparent {oid}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nwhy\n"
    );
    let signed = plain.replace(
        "\n\nwhy",
        "\ngpgsig -----BEGIN SSH SIGNATURE-----\n U1NI\n -----END SSH SIGNATURE-----\n\nwhy",
    );
    let mut seeds = vec![tree, plain.into_bytes(), signed.into_bytes()];
    for name in [
        "main",
        "policies/web",
        "https://git.example/p.git",
        "git@git.example:p.git",
        "/srv/p.git",
        oid,
    ] {
        seeds.push([b"\x02", name.as_bytes()].concat());
    }
    seeds.extend(corpus("git_object"));
    run(
        "git_object",
        &seeds,
        b"\0\n\r ./-:@~^\\01\x80\xffgptree",
        git_object::run,
    );
}
