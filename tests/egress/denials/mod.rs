//! Attacks on a domain policy that an ordinary product lets through; each is proven to leak without the gateway.

mod names;

use std::net::SocketAddr;
use std::time::Duration;

use lab::client::{self, PATIENCE, at, connect, connect_within, exchange};
use lab::origin::port;
use lab::topology::{METADATA, OTHER4, PUBLIC4, ip};
use lab::{Lab, Leak, Sandbox, denied, policies, tls};

const SHORT: Duration = Duration::from_millis(800);

#[test]
fn a_server_name_or_host_that_is_not_the_leases_never_arrives() {
    denied(policies::DOMAINS, |lab, sandbox| {
        let (names, requests) = (lab.origins.server_names.mark(), lab.origins.requests.mark());
        sandbox.run(|| {
            let mut stream = connect(at("ok.sallylab.net", 443)).expect_open();
            exchange(&mut stream, &tls::client_hello("evil.sallylab.net"));
            let mut stream = connect(at("ok.sallylab.net", 80)).expect_open();
            exchange(
                &mut stream,
                b"GET / HTTP/1.1\r\nHost: evil.sallylab.net\r\nConnection: close\r\n\r\n",
            );
        });
        Leak::of(&lab.origins.server_names.since(names))
            .or(Leak::of(&lab.origins.requests.since(requests)))
    });
}

#[test]
fn smuggling_shapes_never_arrive() {
    let shapes: &[&str] = &[
        "GET / HTTP/1.1\r\nHost: ok.sallylab.net\r\nHost: evil.sallylab.net\r\n\r\n",
        "GET http://evil.sallylab.net/ HTTP/1.1\r\nHost: ok.sallylab.net\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : ok.sallylab.net\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ok.sallylab.net\r\n folded: yes\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: ok.sallylab.net\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: ok.sallylab.net\r\nContent-Length: 4\r\nContent-Length: 0\r\n\r\nabcd",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ok.sallylab.net@evil.sallylab.net\r\n\r\n",
    ];
    denied(policies::DOMAINS, |lab, sandbox| {
        let mut leaks: Vec<&str> = Vec::new();
        for shape in shapes {
            let mark = lab.origins.requests.mark();
            sandbox.run(|| {
                let mut stream = connect(at("ok.sallylab.net", 80)).expect_open();
                let _ = stream.set_read_timeout(Some(SHORT));
                exchange(&mut stream, shape.as_bytes());
            });
            if !lab.origins.requests.since(mark).is_empty() {
                leaks.push(shape);
            }
        }
        Leak::of(&leaks)
    });
}

#[test]
fn a_second_request_for_another_host_on_one_connection_never_arrives() {
    denied(policies::DOMAINS, |lab, sandbox| {
        let mark = lab.origins.requests.mark();
        let both = "GET /one HTTP/1.1\r\nHost: ok.sallylab.net\r\n\r\nGET /two HTTP/1.1\r\nHost: evil.sallylab.net\r\n\r\n";
        sandbox.run(|| {
            let mut stream = connect(at("ok.sallylab.net", 80)).expect_open();
            let _ = stream.set_read_timeout(Some(SHORT));
            exchange(&mut stream, both.as_bytes());
        });
        let seen = lab.origins.requests.since(mark);
        Leak::when(
            seen.iter().any(|r| r.text().contains("/two")),
            "the second request arrived",
        )
    });
}

#[test]
fn plain_text_on_443_never_arrives() {
    denied(policies::DOMAINS, |lab, sandbox| {
        let frames = lab.capture.mark();
        sandbox.run(|| {
            let mut stream = connect(at("ok.sallylab.net", 443)).expect_open();
            let _ = stream.set_read_timeout(Some(SHORT));
            exchange(
                &mut stream,
                b"GET /plain-on-443 HTTP/1.1\r\nHost: ok.sallylab.net\r\n\r\n",
            );
        });
        Leak::when(lab.capture.holds(frames, b"plain-on-443"), "the bytes left")
    });
}

#[test]
fn unlisted_ports_and_literal_addresses_are_closed() {
    denied(policies::DOMAINS, |lab, sandbox| {
        let accepted = lab.origins.accepted.mark();
        sandbox.run(|| {
            for port in [port::ECHO, port::BANNER, port::TLS_ALT, port::HTTP_ALT] {
                drop(connect_within(at("ok.sallylab.net", port), PATIENCE));
                drop(connect_within(SocketAddr::new(ip(PUBLIC4), port), SHORT));
            }
        });
        Leak::of(&lab.origins.accepted.since(accepted))
    });
}

#[test]
fn port_25_is_closed_to_the_internet_preset() {
    fn knock(lab: &Lab, sandbox: &Sandbox) -> Leak {
        let mark = lab.capture.mark();
        sandbox.run(|| drop(connect_within(SocketAddr::new(ip(PUBLIC4), 25), SHORT)));
        Leak::of(&lab.capture.touching(mark, ip(PUBLIC4)))
    }
    denied("internet", knock);
}

#[test]
fn a_denied_name_or_address_beats_every_permission() {
    let policy = "\
policy: beats
network: internet
allow:
  - { host: other.sallylab.net, ports: any, speaks: any }
deny:
  - cidr: 142.250.74.0/24
    reason: not there
  - host: evil.sallylab.net
";
    denied(policy, |lab, sandbox| {
        let mark = lab.capture.mark();
        lab.origins.zone.addresses("other.sallylab.net", &[OTHER4]);
        sandbox.run(|| {
            for name in ["other.sallylab.net", "evil.sallylab.net"] {
                for address in client::resolve4(name) {
                    drop(connect_within(SocketAddr::new(address, port::ECHO), SHORT));
                }
            }
            drop(connect_within(
                SocketAddr::new(ip(OTHER4), port::ECHO),
                SHORT,
            ));
        });
        Leak::of(&lab.capture.touching(mark, ip(OTHER4)))
    });
}

#[test]
fn a_permitted_name_does_not_lead_to_metadata_even_with_private() {
    let policy = "\
policy: private
network: domains
private: true
allow:
  - { host: four.sallylab.net, ports: any, speaks: any }
  - { host: six.sallylab.net, ports: any, speaks: any }
";
    denied(policy, |lab, sandbox| {
        let mark = lab.capture.mark();
        for address in METADATA {
            let (name, resolve): (_, fn(&str) -> Vec<std::net::IpAddr>) = if ip(address).is_ipv4() {
                ("four.sallylab.net", client::resolve4)
            } else {
                ("six.sallylab.net", client::resolve6)
            };
            lab.origins.zone.addresses(name, &[address]);
            sandbox.run(|| {
                for address in resolve(name) {
                    drop(connect_within(SocketAddr::new(address, 80), SHORT));
                }
            });
        }
        METADATA.iter().fold(Leak::Nothing, |leak, a| {
            leak.or(Leak::of(&lab.capture.touching(mark, ip(a))))
        })
    });
}
