//! First bytes: they must agree with what the flow was permitted for.

use super::*;

fn tls(text: Option<&str>) -> Evidence {
    Evidence::Tls {
        name: text.map(name),
    }
}

fn http(host: Option<&str>, port: Option<u16>) -> Evidence {
    let host = host.map(|text| {
        text.parse()
            .map_or_else(|_| Host::Name(name(text)), Host::Address)
    });
    Evidence::Http {
        host,
        port,
        method: "GET".into(),
        path: "/".into(),
    }
}

fn said(s: &Snapshot, ground: &Ground, evidence: &Evidence) -> String {
    match decide_bytes(s, ground, evidence, NOW) {
        Ok(permit) => format!("relay {}", permit.ground().speaks().word()),
        Err(denial) => denial.reason.code().to_owned(),
    }
}

#[test]
fn tls_needs_the_server_name_of_its_lease() {
    let s = job("network: domains\nallow: [{ host: a.example.com }]");
    let ground = to("a.example.com", 443).answers(&["8.8.8.8"]).ground(&s);
    for (evidence, outcome) in [
        (tls(Some("a.example.com")), "relay tls"),
        (tls(Some("A.EXAMPLE.COM.")), "relay tls"),
        (tls(Some("b.example.com")), "tls_name_mismatch"),
        (tls(Some("a.example.com.evil.net")), "tls_name_mismatch"),
        (tls(None), "tls_name_missing"),
        (Evidence::TlsMalformed, "tls_malformed"),
        (Evidence::HttpMalformed, "http_malformed"),
        (Evidence::Opaque, "tls_malformed"),
        (http(Some("a.example.com"), None), "tls_malformed"),
    ] {
        assert_eq!(said(&s, &ground, &evidence), outcome, "{evidence:?}");
    }
    let denial = decide_bytes(&s, &ground, &tls(None), NOW).unwrap_err();
    assert_eq!(denial.rule.unwrap().line, 3);
    assert_eq!(denial.layer, Some(LayerKind::Job));
}

#[test]
fn http_needs_the_host_of_its_lease() {
    let s =
        job("network: domains\nallow: [{ host: a.example.com, ports: [80, 8080], speaks: http }]");
    let ground = to("a.example.com", 80).answers(&["8.8.8.8"]).ground(&s);
    for (evidence, outcome) in [
        (http(Some("a.example.com"), None), "relay http"),
        (http(Some("a.example.com"), Some(80)), "relay http"),
        (http(Some("a.example.com"), Some(22)), "http_host_mismatch"),
        (http(Some("b.example.com"), None), "http_host_mismatch"),
        (http(Some("8.8.8.8"), None), "http_host_mismatch"),
        (http(None, None), "http_host_mismatch"),
        (tls(Some("a.example.com")), "http_malformed"),
        (Evidence::Opaque, "http_malformed"),
        (Evidence::HttpMalformed, "http_malformed"),
        (Evidence::TlsMalformed, "tls_malformed"),
    ] {
        assert_eq!(said(&s, &ground, &evidence), outcome, "{evidence:?}");
    }
    let other = to("a.example.com", 8080).answers(&["8.8.8.8"]).ground(&s);
    assert_eq!(
        said(&s, &other, &http(Some("a.example.com"), None)),
        "relay http"
    );
    assert_eq!(
        said(&s, &other, &http(Some("a.example.com"), Some(8080))),
        "relay http"
    );
    assert_eq!(
        said(&s, &other, &http(Some("a.example.com"), Some(80))),
        "http_host_mismatch"
    );
}

#[test]
fn anything_goes_but_a_name_must_agree() {
    let s = job("network: domains\nallow: [{ host: a.example.com, ports: [22], speaks: any }]");
    let ground = to("a.example.com", 22).answers(&["8.8.8.8"]).ground(&s);
    for (evidence, outcome) in [
        (Evidence::Opaque, "relay any"),
        (tls(Some("a.example.com")), "relay any"),
        (tls(None), "relay any"),
        (tls(Some("b.example.com")), "tls_name_mismatch"),
        (http(Some("a.example.com"), None), "relay any"),
        (http(None, None), "relay any"),
        (http(Some("b.example.com"), None), "http_host_mismatch"),
        (http(Some("8.8.8.8"), None), "http_host_mismatch"),
        (Evidence::TlsMalformed, "tls_malformed"),
        (Evidence::HttpMalformed, "http_malformed"),
    ] {
        assert_eq!(said(&s, &ground, &evidence), outcome, "{evidence:?}");
    }
}

#[test]
fn without_a_name_only_denied_names_are_refused() {
    let s = job(
        "network: internet\ndeny:\n  - { host: bad.example.com, ports: [80, 443] }\n  - { host: other.example.com, ports: [22] }",
    );
    let ground = to("8.8.8.8", 443).heard_nothing().ground(&s);
    for (evidence, outcome) in [
        (tls(None), "relay any"),
        (Evidence::Opaque, "relay any"),
        (tls(Some("any.example.org")), "relay any"),
        (tls(Some("other.example.com")), "relay any"),
        (tls(Some("bad.example.com")), "name_denied"),
        (http(Some("bad.example.com"), None), "name_denied"),
        (http(Some("console.example.net"), None), "name_denied"),
        (
            http(Some("metadata.google.internal"), None),
            "address_metadata",
        ),
        (http(Some("8.8.8.8"), None), "relay any"),
        (http(Some("::ffff:8.8.8.8"), None), "relay any"),
        (http(Some("8.8.4.4"), None), "http_host_mismatch"),
        (http(None, None), "relay any"),
        (Evidence::TlsMalformed, "tls_malformed"),
    ] {
        assert_eq!(said(&s, &ground, &evidence), outcome, "{evidence:?}");
    }
}

#[test]
fn a_cidr_rule_judges_the_kind_and_needs_no_name() {
    let s = job(
        "network: domains\nallow: [{ cidr: 8.8.8.0/24, ports: [443, 5432] }]\ndeny: [{ host: bad.example.com }]",
    );
    let web = to("8.8.8.8", 443).ground(&s);
    assert_eq!(said(&s, &web, &tls(None)), "relay tls");
    assert_eq!(said(&s, &web, &tls(Some("x.example.org"))), "relay tls");
    assert_eq!(said(&s, &web, &tls(Some("bad.example.com"))), "name_denied");
    assert_eq!(said(&s, &web, &Evidence::Opaque), "tls_malformed");
    let db = to("8.8.8.8", 5432).ground(&s);
    assert_eq!(said(&s, &db, &Evidence::Opaque), "relay any");
}

#[test]
fn bytes_are_decided_under_the_policy_of_now() {
    let old = job("network: domains\nallow: [{ host: a.example.com }]");
    let ground = to("a.example.com", 443).answers(&["8.8.8.8"]).ground(&old);
    let hello = tls(Some("a.example.com"));
    for (body, outcome) in [
        (
            "network: domains\nallow: [{ host: b.example.com }]",
            "name_not_allowed",
        ),
        (
            "network: domains\nallow: [{ host: a.example.com }]\ndeny: [{ cidr: 8.8.8.8 }]",
            "address_denied",
        ),
        ("network: none", "network_none"),
        ("network: internet", "relay any"),
        (
            "network: domains\nallow: [{ host: a.example.com, ports: [443], speaks: http }]",
            "http_malformed",
        ),
    ] {
        assert_eq!(said(&job(body), &ground, &hello), outcome, "{body}");
    }
    let wide = job("network: internet");
    let bare = to("8.8.8.8", 443).ground(&wide);
    let tight = job("network: internet\ndeny: [{ host: a.example.com }]");
    assert_eq!(said(&tight, &bare, &hello), "name_denied");
    assert_eq!(said(&tight, &bare, &tls(None)), "relay any");
    assert_eq!(said(&old, &bare, &hello), "address_not_allowed");
}

#[test]
fn method_and_path_rules_hold_on_plain_http() {
    let s = job(
        "network: domains\nallow:\n  - { host: a.example.com, http: [{ methods: [GET], paths: ['/pub/**'] }] }",
    );
    let ground = to("a.example.com", 80).answers(&["8.8.8.8"]).ground(&s);
    let ask = |method: &str, path: &str| {
        let evidence = Evidence::Http {
            host: Some(Host::Name(name("a.example.com"))),
            port: None,
            method: method.into(),
            path: path.into(),
        };
        said(&s, &ground, &evidence)
    };
    assert_eq!(ask("GET", "/pub/x?y=1"), "relay http");
    assert_eq!(ask("POST", "/pub/x"), "http_request_not_allowed");
    assert_eq!(ask("GET", "/private"), "http_request_not_allowed");
    assert_eq!(ask("GET", "/pub/../private"), "http_request_not_allowed");
    assert_eq!(
        ask("GET", "/pub/%2e%2e/private"),
        "http_request_not_allowed"
    );
    let sealed = to("a.example.com", 443).answers(&["8.8.8.8"]).ground(&s);
    assert_eq!(
        said(&s, &sealed, &tls(Some("a.example.com"))),
        "http_request_not_allowed"
    );
}

#[test]
fn the_way_in_carries_any_bytes() {
    let s = job("network: none\ningress: [{ ports: [8080] }]");
    let ground = to("198.18.0.9", 8080).ingress().ground(&s);
    assert_eq!(ground.direction(), Direction::Ingress);
    assert_eq!(
        said(&s, &ground, &http(Some("whatever.example"), Some(1))),
        "relay any"
    );
    assert_eq!(said(&s, &ground, &Evidence::Opaque), "relay any");
    assert_eq!(
        said(&job("network: internet"), &ground, &Evidence::Opaque),
        "port_not_allowed"
    );
}

#[test]
fn the_bare_address_is_no_way_around_the_requests_of_a_name() {
    let s = job(
        "network: internet\nallow: [{ host: a.example.com, ports: [80], http: [{ methods: [GET] }] }]",
    );
    let ground = to("8.8.8.8", 80).ground(&s);
    let post = |host| match http(Some(host), None) {
        Evidence::Http {
            host, port, path, ..
        } => Evidence::Http {
            host,
            port,
            path,
            method: "POST".into(),
        },
        other => other,
    };
    for (evidence, outcome) in [
        (http(Some("a.example.com"), None), "relay any"),
        (post("a.example.com"), "http_request_not_allowed"),
        (post("b.example.com"), "relay any"),
    ] {
        assert_eq!(said(&s, &ground, &evidence), outcome, "{evidence:?}");
    }
}

#[test]
fn every_request_is_judged_where_a_name_decides_anything() {
    let internet = "network: internet";
    let denies = "network: internet\ndeny: [{ host: evil.net, ports: [80] }]";
    let reads = "network: internet\nallow: [{ host: a.example.com, ports: [80], http: [{ methods: [GET] }] }]";
    let nets = "network: domains\nallow: [{ cidr: 8.8.8.0/24, ports: [80, 81], speaks: any }]";
    for (policy, port, each) in [
        (internet, 80, false),
        (denies, 80, true),
        (denies, 81, false),
        (reads, 80, true),
        (nets, 80, false),
    ] {
        let s = job(policy);
        let ground = to("8.8.8.8", port).heard_nothing().ground(&s);
        assert_eq!(
            judges_each_request(&s, &ground, NOW),
            each,
            "{policy} {port}"
        );
    }
    let s = job(internet);
    let ground = to("a.example.com", 80).answers(&["8.8.8.8"]).ground(&s);
    assert!(judges_each_request(&s, &ground, NOW));
}
