//! One decision over ten thousand rules.

use std::fmt::Write as _;
use std::time::Instant;

use super::*;

/// A long policy: exact names, wildcards, prefixes, denials.
fn long_policy() -> Snapshot {
    let mut body = String::from("network: domains\nallow:\n");
    for i in 0..4000 {
        writeln!(
            body,
            "  - {{ host: h{i}.example.com, ports: [443, {}] }}",
            1000 + i
        )
        .unwrap();
        writeln!(body, "  - {{ host: '*.w{i}.example.org' }}").unwrap();
    }
    body.push_str("deny:\n");
    for i in 0..2000 {
        writeln!(body, "  - {{ cidr: 23.{}.{}.0/24 }}", i / 250, i % 250).unwrap();
    }
    job(&body)
}

#[test]
fn a_decision_over_ten_thousand_rules_is_cheap() {
    let s = long_policy();
    let asks = [
        to("h3999.example.com", 443).answers(&["8.8.8.8", "2606:4700::1"]),
        to("a.b.w77.example.org", 443).answers(&["8.8.8.8"]),
        to("unlisted.example.net", 443),
        to("23.7.249.1", 443),
        to("8.8.8.8", 4999),
    ];
    let outcomes: Vec<String> = asks.iter().map(|ask| ask.on(&s)).collect();
    assert_eq!(
        outcomes[0],
        "dial 8.8.8.8 2606:4700::1 tls as h3999.example.com"
    );
    assert_eq!(outcomes[2], "name_not_allowed @job:2");
    assert!(outcomes[3].starts_with("address_denied"));
    assert_eq!(outcomes[4], "hear any");
    let rounds = 2000;
    for ask in &asks {
        let start = Instant::now();
        for _ in 0..rounds {
            std::hint::black_box(decide_connect(&s, std::hint::black_box(&ask.intent), NOW));
        }
        let each = start.elapsed() / rounds;
        println!("{each:?} for {:?}", ask.intent.to);
        // a loaded machine and an unoptimised build get room; what is excluded is a walk over all rules
        let bound = if cfg!(debug_assertions) { 500 } else { 20 };
        assert!(each.as_micros() < bound, "{each:?}");
    }
}
