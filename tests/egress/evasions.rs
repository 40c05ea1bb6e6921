//! Ways around a denial that stands: the second request of a connection, another road to the same server.

use std::net::SocketAddr;

use lab::client::{at, connect, exchange};
use lab::topology::{PUBLIC4, ip};
use lab::{Lab, Leak, Sandbox, denied};

/// Everything but one name.
const BUT_EVIL: &str = "\
policy: all-but-one
network: internet
deny:
  - host: evil.sallylab.net
";

/// One name, anything spoken on any port.
const ANY: &str = "\
policy: any
network: domains
allow:
  - { host: ok.sallylab.net, ports: any, speaks: any }
";

fn request(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n")
}

/// Sends requests on one connection, one after the other's answer; what arrived at the origin with the given text.
fn arrives(
    lab: &Lab,
    sandbox: &Sandbox,
    to: &(dyn Fn() -> SocketAddr + Sync),
    requests: &[String],
    text: &str,
) -> Leak {
    let mark = lab.origins.requests.mark();
    sandbox.run(|| {
        if let lab::client::Connect::Open(mut stream) = connect(to()) {
            let _ = stream.set_read_timeout(Some(std::time::Duration::from_millis(500)));
            for request in requests {
                exchange(&mut stream, request.as_bytes());
            }
        }
    });
    let seen = lab.origins.requests.since(mark);
    Leak::of(
        &seen
            .into_iter()
            .filter(|r| r.text().contains(text))
            .collect::<Vec<_>>(),
    )
}

#[test]
fn a_second_request_never_names_a_denied_host() {
    let requests = [
        request("ok.sallylab.net", "/"),
        request("evil.sallylab.net", "/"),
    ];
    for by_name in [true, false] {
        denied(BUT_EVIL, |lab, sandbox| {
            let to = || {
                if by_name {
                    at("ok.sallylab.net", 80)
                } else {
                    SocketAddr::new(ip(PUBLIC4), 80)
                }
            };
            arrives(lab, sandbox, &to, &requests, "evil.sallylab.net")
        });
    }
}

#[test]
fn a_second_request_never_names_another_host_where_anything_may_be_spoken() {
    let requests = [
        request("ok.sallylab.net", "/"),
        request("evil.sallylab.net", "/"),
    ];
    denied(ANY, |lab, sandbox| {
        arrives(
            lab,
            sandbox,
            &|| at("ok.sallylab.net", 80),
            &requests,
            "evil.sallylab.net",
        )
    });
}

#[test]
fn permitted_requests_of_one_connection_all_arrive() {
    let lab = Lab::builder().start();
    for policy in [BUT_EVIL, ANY] {
        let sandbox = lab.sandbox(policy);
        let mark = lab.origins.requests.mark();
        let requests = [
            request("ok.sallylab.net", "/public/1"),
            request("ok.sallylab.net", "/public/2"),
        ];
        arrives(&lab, &sandbox, &|| at("ok.sallylab.net", 80), &requests, "");
        let seen = lab.origins.requests.since(mark);
        assert_eq!(seen.len(), 2, "{policy}: {seen:?}");
        assert_eq!(seen[0].connection, seen[1].connection);
    }
}
