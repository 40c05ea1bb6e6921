//! What the sandbox's DNS says: codes, reasons, TTLs, and what is answered locally.

use std::net::{IpAddr, SocketAddr};

use lab::client::{self, SURELY, ask, connect, exchange};
use lab::dns::{self, Record, code, kind, query};
use lab::origin::{Reply, port};
use lab::topology::{PUBLIC4, PUBLIC6, SERVICE4, ip};
use lab::{Lab, policies};

fn lab() -> Lab {
    Lab::builder().gateway_only().start()
}

#[test]
fn a_denied_name_does_not_exist_for_every_type_and_says_why() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    for kind in [
        kind::A,
        kind::AAAA,
        kind::TXT,
        kind::MX,
        kind::HTTPS,
        kind::ANY,
    ] {
        let answer = sandbox
            .run(|| ask("evil.sallylab.net", kind))
            .expect("an answer at once");
        assert_eq!(answer.code(), code::NXDOMAIN, "type {kind}");
        assert!(
            answer
                .extended_error()
                .unwrap_or_default()
                .contains("name_not_allowed"),
            "{answer:?}"
        );
        assert!(
            answer.authority.iter().any(|r| r.kind == 6),
            "an SOA bounds negative caching: {answer:?}"
        );
    }
    assert!(
        sandbox
            .run(|| ask("ok.sallylab.net", kind::A))
            .is_some_and(|m| !m.addresses().is_empty()),
        "permitted twin"
    );
}

#[test]
fn ancestors_of_permitted_names_exist_and_hold_nothing() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let answer = sandbox
        .run(|| ask("sallylab.net", kind::A))
        .expect("answer");
    assert_eq!((answer.code(), answer.answers.len()), (code::NOERROR, 0));
}

#[test]
fn a_name_without_ipv6_is_no_error_and_one_that_does_not_exist_says_so() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let empty = sandbox
        .run(|| ask("four.sallylab.net", kind::AAAA))
        .expect("answer");
    assert_eq!((empty.code(), empty.addresses().len()), (code::NOERROR, 0));
    let missing = sandbox
        .run(|| ask("missing.ok.sallylab.net", kind::A))
        .expect("answer");
    assert_eq!(missing.code(), code::NXDOMAIN);
}

#[test]
fn wildcards_match_every_depth_below_and_not_the_apex() {
    let lab = lab();
    let sandbox =
        lab.sandbox("policy: w\nnetwork: domains\nallow:\n  - host: '*.ok.sallylab.net'\n");
    lab.origins
        .zone
        .addresses("deep.a.ok.sallylab.net", &[PUBLIC4]);
    for (name, permitted) in [
        ("a.ok.sallylab.net", true),
        ("A.OK.sallylab.NET.", true),
        ("deep.a.ok.sallylab.net", true),
        ("ok.sallylab.net", false),
        ("notok.sallylab.net", false),
        ("ok.sallylab.net.evil.sallylab.net", false),
    ] {
        let addresses = sandbox.run(|| client::resolve4(name));
        assert_eq!(!addresses.is_empty(), permitted, "{name}: {addresses:?}");
    }
}

#[test]
fn a_failing_lookup_of_a_permitted_name_is_a_server_failure() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    lab.origins
        .zone
        .set("ok.sallylab.net", Reply::Code(code::SERVFAIL));
    let answer = sandbox
        .run(|| ask("ok.sallylab.net", kind::A))
        .expect("answer");
    assert_eq!(answer.code(), code::SERVFAIL);
}

#[test]
fn an_answer_with_a_forbidden_address_is_empty_and_says_why() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    lab.origins
        .zone
        .addresses("ok.sallylab.net", &[PUBLIC4, "10.0.0.5"]);
    let answer = sandbox
        .run(|| ask("ok.sallylab.net", kind::A))
        .expect("answer");
    assert_eq!(
        (answer.code(), answer.addresses().len()),
        (code::NOERROR, 0)
    );
    assert!(
        answer
            .extended_error()
            .unwrap_or_default()
            .contains("name_resolves_to_forbidden"),
        "{answer:?}"
    );
}

#[test]
fn malformed_questions_and_other_operations_are_refused_in_dns_terms() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let ask = |bytes: &[u8]| {
        sandbox
            .run(|| dns::ask_udp(client::resolver(), bytes, SURELY))
            .map(|m| m.code())
    };
    let mut none = query(1, "ok.sallylab.net", kind::A);
    none[5] = 0;
    assert_eq!(ask(&none), Some(code::FORMERR));
    let mut update = query(2, "ok.sallylab.net", kind::A);
    update[2] |= 5 << 3;
    assert_eq!(ask(&update), Some(code::NOTIMP));
    assert_eq!(
        ask(&query(3, "ok.sallylab.net", kind::AXFR)),
        Some(code::REFUSED)
    );
}

#[test]
fn foreign_resolvers_answer_with_the_policy() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let google = std::net::SocketAddr::new(ip("8.8.8.8"), 53);
    let denied = sandbox
        .run(|| dns::ask_udp(google, &query(1, "evil.sallylab.net", kind::A), SURELY))
        .expect("answer");
    assert_eq!(denied.code(), code::NXDOMAIN);
    let permitted = sandbox
        .run(|| dns::ask_tcp(google, &query(1, "ok.sallylab.net", kind::A), SURELY))
        .expect("answer");
    assert_eq!(permitted.addresses().len(), 1);
}

#[test]
fn answers_are_short_lived_and_upstream_sees_only_the_lower_case_name() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let long = |address: &str| Record {
        ttl: u32::MAX,
        ..lab::origin::address("ok.sallylab.net", address, 0)
    };
    lab.origins.zone.set(
        "ok.sallylab.net",
        Reply::Records(vec![long(PUBLIC4), long(PUBLIC6)]),
    );
    let answer = sandbox
        .run(|| ask("oK.SaLlYlAb.nEt", kind::A))
        .expect("answer");
    assert!(answer.answers.iter().all(|r| r.ttl <= 60), "{answer:?}");
    assert_eq!(
        answer.questions[0].0, "oK.SaLlYlAb.nEt",
        "the reply echoes the client's case"
    );
    let asked = lab.origins.queries.all();
    assert!(
        asked.iter().all(|q| !q.windows(2).any(|w| w == b"oK")),
        "the case is a channel"
    );
}

#[test]
fn reverse_names_of_leases_are_theirs_and_others_stay_inside() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let lease = sandbox.run(|| client::at("ok.sallylab.net", 0)).ip();
    let std::net::IpAddr::V4(lease) = lease else {
        panic!("{lease}")
    };
    let [a, b, c, d] = lease.octets();
    let own = sandbox
        .run(|| ask(&format!("{d}.{c}.{b}.{a}.in-addr.arpa"), kind::PTR))
        .expect("answer");
    assert_eq!(own.answers.len(), 1, "{own:?}");
    let mark = lab.origins.queries.mark();
    for name in [
        "5.0.0.10.in-addr.arpa",
        "254.169.254.169.in-addr.arpa",
        "34.216.184.93.in-addr.arpa",
    ] {
        assert_eq!(
            sandbox.run(|| ask(name, kind::PTR)).map(|m| m.code()),
            Some(code::NXDOMAIN),
            "{name}"
        );
    }
    assert!(
        !lab.origins.asked(mark, "in-addr"),
        "a reverse question left"
    );
}

#[test]
fn special_use_names_are_answered_locally_under_internet() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::INTERNET);
    let mark = lab.origins.queries.mark();
    for name in [
        "router",
        "nas.local",
        "x.internal",
        "x.home.arpa",
        "x.onion",
        "x.alt",
        "x.test",
        "localhost",
    ] {
        let answer = sandbox
            .run(|| ask(name, kind::A))
            .unwrap_or_else(|| panic!("no answer for {name}"));
        assert!(
            answer.addresses().iter().all(std::net::IpAddr::is_loopback),
            "{name}: {answer:?}"
        );
    }
    assert_eq!(
        lab.origins.queries.since(mark).len(),
        0,
        "a local name left the machine"
    );
}

#[test]
fn hints_and_encrypted_hello_are_taken_out_of_https_answers() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    // priority 1, target ".", alpn=h2, ipv4hint=10.0.0.5, ech=16 bytes
    let mut data = vec![
        0, 1, 0, 0, 1, 0, 3, 2, b'h', b'2', 0, 4, 0, 4, 10, 0, 0, 5, 0, 5, 0, 16,
    ];
    data.extend_from_slice(b"ech-config-bytes");
    let record = Record {
        name: "ok.sallylab.net".into(),
        kind: kind::HTTPS,
        ttl: 60,
        data,
    };
    lab.origins
        .zone
        .set("ok.sallylab.net", Reply::Records(vec![record]));
    let answer = sandbox
        .run(|| ask("ok.sallylab.net", kind::HTTPS))
        .expect("answer");
    let wire: Vec<u8> = answer.answers.iter().flat_map(|r| r.data.clone()).collect();
    let holds = |needle: &[u8]| wire.windows(needle.len()).any(|w| w == needle);
    assert!(
        !holds(&[10, 0, 0, 5]) && !holds(b"ech-config"),
        "{answer:?}"
    );
}

#[test]
fn a_denied_alias_denies_dns_leases_and_proxy_alike() {
    let lab = lab();
    let allows = "allow:\n  - { host: '*.ok.sallylab.net', ports: any, speaks: any }\n";
    let open = format!("policy: open\nnetwork: domains\n{allows}");
    let shut = format!("{open}deny:\n  - host: evil.sallylab.net\n");
    let zone = &lab.origins.zone;
    zone.alias("a.ok.sallylab.net", "evil.sallylab.net", &[PUBLIC4]);
    zone.alias("b.ok.sallylab.net", "fine.sallylab.net", &[PUBLIC4]);
    let sandbox = lab.sandbox(&open);
    let tunnel = |name: &str| {
        let head = format!(
            "CONNECT {name}:{0} HTTP/1.1\r\nHost: {name}:{0}\r\n\r\n",
            port::ECHO
        );
        let (said, _) = sandbox.run(|| {
            let mut proxy = connect(SocketAddr::new(ip(SERVICE4), 3128)).expect_open();
            exchange(&mut proxy, head.as_bytes())
        });
        String::from_utf8_lossy(&said).into_owned()
    };
    let [a, b] = ["a.ok.sallylab.net", "b.ok.sallylab.net"]
        .map(|name| sandbox.run(|| client::resolve4(name)));
    assert!(a.len() == 1 && b.len() == 1 && a != b, "{a:?} {b:?}");
    let dial = |to: &[IpAddr]| {
        let to = SocketAddr::new(to[0], port::ECHO);
        sandbox.run(|| client::connect_within(to, SURELY))
    };
    assert!(dial(&a).is_open() && dial(&b).is_open());
    lab.replace_policy(&sandbox, &shut).expect(0);
    // the lease stays what it was: the name; and the name leads to what is denied now
    assert!(dial(&a).is_refused());
    lab.recorded("the denial of the dial", |r| {
        r["reason"] == "name_denied" && r["subject"]["door"] == "tcp"
    });
    let answer = sandbox.run(|| ask("a.ok.sallylab.net", kind::A)).unwrap();
    assert_eq!(answer.code(), code::NXDOMAIN);
    let why = answer.extended_error().unwrap_or_default();
    assert!(why.contains("name_denied"), "{why}");
    let said = tunnel("a.ok.sallylab.net");
    assert!(
        said.starts_with("HTTP/1.1 403") && said.contains("name_denied"),
        "{said}"
    );
    // the twin behind another alias lives on
    assert!(dial(&b).is_open());
    assert!(
        !sandbox
            .run(|| client::resolve4("b.ok.sallylab.net"))
            .is_empty()
    );
    assert!(tunnel("b.ok.sallylab.net").starts_with("HTTP/1.1 200"));
}
