//! `names: real`: the checked upstream addresses, bound to names for this network.

use std::net::SocketAddr;

use lab::Lab;
use lab::client::{self, connect, http_get, resolve4};
use lab::topology::{OTHER4, PUBLIC4, ip};

const REAL: &str = "\
policy: real
network: domains
names: real
allow:
  - host: ok.sallylab.net
  - host: four.sallylab.net
";

#[test]
fn real_names_answer_with_the_checked_addresses() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(REAL);
    assert_eq!(sandbox.run(|| resolve4("ok.sallylab.net")), [ip(PUBLIC4)]);
    let answer = sandbox.run(|| {
        http_get(
            &mut connect(SocketAddr::new(ip(PUBLIC4), 80)).expect_open(),
            "ok.sallylab.net",
            "/",
        )
    });
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_host_that_was_not_asked_for_is_denied_at_a_shared_address() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(REAL);
    sandbox.run(|| resolve4("ok.sallylab.net"));
    let mark = lab.origins.requests.mark();
    let answer = sandbox.run(|| {
        http_get(
            &mut connect(SocketAddr::new(ip(PUBLIC4), 80)).expect_open(),
            "evil.sallylab.net",
            "/",
        )
    });
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(lab.origins.requests.since(mark).is_empty());
}

#[test]
fn an_address_that_no_name_led_to_is_not_reached() {
    let lab = Lab::builder().gateway_only().start();
    let sandbox = lab.sandbox(REAL);
    let mark = lab.capture.mark();
    sandbox.run(|| drop(client::connect(SocketAddr::new(ip(OTHER4), 22))));
    lab.capture.none_to(mark, ip(OTHER4));
}
