//! TLS flows: the ClientHello that is judged, in every shape, is the one that arrives.

use std::io::Write;
use std::time::{Duration, Instant};

use lab::client::{End, SURELY, at, connect, exchange, read_to_end};
use lab::pace::Pace;
use lab::wait::LIMIT;
use lab::{Lab, policies, tls};

fn lab() -> Lab {
    Lab::builder().gateway_only().start()
}

#[test]
fn hellos_in_pieces_and_large_ones_arrive_whole() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let hello = tls::client_hello("ok.sallylab.net");
    assert!(
        hello.len() > 1000,
        "a post-quantum hello is large: {}",
        hello.len()
    );
    let mark = lab.origins.server_names.mark();
    sandbox.run(|| {
        let mut stream = connect(at("ok.sallylab.net", 443)).expect_open();
        stream.set_nodelay(true).expect("nodelay");
        for piece in hello.chunks(97) {
            stream.write_all(piece).expect("write");
        }
        let answer = lab::client::reads(&mut stream, &[22, 3, 3]);
        assert!(answer, "the server's hello comes back");
    });
    let seen = lab.origins.server_names.wait(mark, LIMIT, |_| true);
    assert_eq!(seen, Some(Some("ok.sallylab.net".to_owned())));
}

#[test]
fn invariant_3_what_cannot_be_judged_is_refused_fast_with_an_alert() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let cases: [(&str, Vec<u8>); 6] = [
        ("no name", tls::crafted_hello(&[])),
        ("another name", tls::crafted_hello(&[b"evil.sallylab.net"])),
        (
            "two names",
            tls::crafted_hello(&[b"ok.sallylab.net", b"evil.sallylab.net"]),
        ),
        ("an address", tls::crafted_hello(&[b"93.184.216.34"])),
        (
            "a NUL",
            tls::crafted_hello(&[b"ok.sallylab.net\0.evil.sallylab.net"]),
        ),
        ("a port", tls::crafted_hello(&[b"ok.sallylab.net:443"])),
    ];
    for (what, hello) in cases {
        let mark = lab.origins.server_names.mark();
        let (pace, started) = (Pace::watch(), Instant::now());
        let (answer, end) = sandbox.run(|| {
            exchange(
                &mut connect(at("ok.sallylab.net", 443)).expect_open(),
                &hello,
            )
        });
        let took = started.elapsed();
        assert!(
            took < pace.stretches(Duration::from_secs(1)),
            "{what}: {took:?}"
        );
        assert_ne!(end, End::Open, "{what}");
        // alert, fatal, access_denied (49)
        assert_eq!(
            answer.get(5..7),
            Some([2, 49].as_slice()),
            "{what}: {answer:?}"
        );
        assert!(
            lab.origins.server_names.since(mark).is_empty(),
            "{what} arrived"
        );
    }
}

#[test]
fn names_are_compared_without_case_and_final_dot() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let mark = lab.origins.server_names.mark();
    sandbox.run(|| {
        let mut stream = connect(at("ok.sallylab.net", 443)).expect_open();
        stream
            .write_all(&tls::client_hello("OK.SallyLab.NET"))
            .expect("write");
        assert!(lab::client::reads(&mut stream, &[22]), "the origin answers");
    });
    assert_eq!(lab.origins.server_names.since(mark).len(), 1);
}

#[test]
fn a_client_that_never_sends_a_hello_is_let_go() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let started = Instant::now();
    let end = sandbox.run(|| {
        let mut stream = connect(at("ok.sallylab.net", 443)).expect_open();
        stream.set_read_timeout(Some(SURELY)).expect("timeout");
        stream.write_all(&[22, 3, 1]).expect("write");
        read_to_end(&mut stream).1
    });
    assert_ne!(end, End::Open, "still open after {:?}", started.elapsed());
}
