//! The explicit proxy: CONNECT and absolute-form, judged as the transparent doors judge.

use std::net::SocketAddr;

use lab::client::{connect, exchange};
use lab::origin::port;
use lab::topology::{OTHER4, SERVICE4, ip};
use lab::{Lab, Sandbox, policies, tls};

fn ask(sandbox: &Sandbox, bytes: &[u8]) -> String {
    sandbox.run(|| {
        let mut stream = connect(SocketAddr::new(ip(SERVICE4), 3128)).expect_open();
        String::from_utf8_lossy(&exchange(&mut stream, bytes).0).into_owned()
    })
}

#[test]
fn connect_and_absolute_form_reach_what_is_permitted() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let absolute = ask(&sandbox, b"GET http://ok.sallylab.net/x HTTP/1.1\r\nHost: ok.sallylab.net\r\nConnection: close\r\n\r\n");
    assert!(absolute.starts_with("HTTP/1.1 200"), "{absolute}");
    let mut tunnel =
        b"CONNECT ok.sallylab.net:443 HTTP/1.1\r\nHost: ok.sallylab.net:443\r\n\r\n".to_vec();
    tunnel.extend_from_slice(&tls::client_hello("ok.sallylab.net"));
    let answer = ask(&sandbox, &tunnel);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        lab.origins
            .server_names
            .all()
            .contains(&Some("ok.sallylab.net".to_owned()))
    );
}

#[test]
fn denied_targets_get_a_403_with_their_reason_and_nothing_is_sent() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let mark = lab.capture.mark();
    for (target, reason) in [
        ("evil.sallylab.net:443", "name_not_allowed"),
        ("ok.sallylab.net:22", "port_not_allowed"),
        ("10.0.0.5:22", "address_private"),
        ("169.254.169.254:80", "address_metadata"),
        ("127.0.0.1:80", "address_loopback"),
        ("198.18.0.1:53", "address_gateway"),
    ] {
        let answer = ask(
            &sandbox,
            format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes(),
        );
        assert!(answer.starts_with("HTTP/1.1 403"), "{target}: {answer}");
        assert!(
            answer.contains(reason),
            "{target} is not {reason}: {answer}"
        );
    }
    let seen = lab.capture.since(mark);
    assert!(seen.is_empty(), "{:?}", seen.first());
}

#[test]
fn what_comes_through_a_tunnel_is_judged_too() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let mark = lab.origins.server_names.mark();
    let mut tunnel =
        b"CONNECT ok.sallylab.net:443 HTTP/1.1\r\nHost: ok.sallylab.net:443\r\n\r\n".to_vec();
    tunnel.extend_from_slice(&tls::client_hello("evil.sallylab.net"));
    ask(&sandbox, &tunnel);
    assert!(lab.origins.server_names.since(mark).is_empty());
}

#[test]
fn the_proxy_port_of_other_addresses_is_no_proxy() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(policies::INTERNET);
    let outcome = sandbox.run(|| connect(SocketAddr::new(ip(OTHER4), 3128)));
    assert!(!outcome.is_open(), "{outcome:?}");
    assert!(
        sandbox
            .run(|| connect(SocketAddr::new(ip(OTHER4), port::ECHO)))
            .is_open(),
        "permitted twin"
    );
}
