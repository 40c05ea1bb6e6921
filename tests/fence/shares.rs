//! What one user makes the gateway work on holds nobody else up: the largest policy that is permitted, replaced over and
//! over. (Invariants 5 and 7.)

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lab::client::connect_within;
use lab::control::ask;
use lab::origin::port;
use lab::topology::{PUBLIC4, ip};
use lab::{Lab, Sandbox, policies};

/// What somebody else's connect may take meanwhile: a retransmission, on a machine that is busy with other tests.
const BOUND: Duration = Duration::from_secs(2);

/// Of who connects as fast as it can, which the default rate would not permit.
const FAST: &str = "policy: fast\nnetwork: internet\nlimits: { rate: 100000, flows: 10000 }\n";

/// As many entries as are permitted, and as many of one host.
fn largest() -> String {
    let mut text = String::from(
        "policy: large\nnetwork: domains\nlimits: { rate: 100000, flows: 10000 }\nallow:\n",
    );
    for port in 1..=256 {
        let _ = writeln!(text, "  - {{ host: ok.sallylab.net, ports: [{port}] }}");
    }
    for n in 0..10_000 - 256 {
        let _ = writeln!(text, "  - {{ host: h{n}.example.net, ports: [443, 8443] }}");
    }
    text
}

/// The longest of some connects in a row; each must succeed.
fn slowest(sandbox: &Sandbox, during: impl Fn() -> bool) -> Duration {
    let mut worst = Duration::ZERO;
    let mut count = 0;
    while count < 20 || during() {
        let began = Instant::now();
        let open = sandbox.run(|| {
            connect_within(
                SocketAddr::new(ip(PUBLIC4), port::ECHO),
                Duration::from_secs(30),
            )
            .is_open()
        });
        assert!(open, "a connect of somebody else failed");
        worst = worst.max(began.elapsed());
        count += 1;
    }
    worst
}

#[test]
fn large_policies_that_are_replaced_over_and_over_hold_nobody_else_up() {
    let lab = Lab::builder().gateway_only().start();
    let other = lab.sandbox(FAST);
    let target = lab.sandbox(policies::NONE);
    let control = lab.gateway().control();
    let body = serde_json::json!({ "document": { "file": "large.yml", "text": largest() } });
    let body = body.to_string();
    let alone = slowest(&other, || false);
    let path = format!("/v1/networks/{}/policy", target.name());
    let (left, replaced, seen) = (AtomicU32::new(12), AtomicU32::new(0), AtomicU32::new(0));
    let under = std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                for _ in 0..3 {
                    if ask(&control, "PUT", &path, &body) == 200 {
                        replaced.fetch_add(1, Ordering::Relaxed);
                    }
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        // whoever looks at networks waits with them, and not on the threads that carry flows
        for _ in 0..4 {
            scope.spawn(|| {
                while left.load(Ordering::Relaxed) > 0 {
                    assert_eq!(ask(&control, "GET", "/v1/networks", ""), 200);
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        slowest(&other, || left.load(Ordering::Relaxed) > 0)
    });
    let (replaced, seen) = (replaced.into_inner(), seen.into_inner());
    println!(
        "slowest connect of another sandbox: {alone:?} alone, {under:?} beside {replaced} replacements and {seen} looks"
    );
    assert!(replaced > 0 && seen > 0, "the permitted twin");
    assert!(under < BOUND, "{under:?}");
}
