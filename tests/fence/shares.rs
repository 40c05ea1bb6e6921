//! What one user or sandbox makes the gateway work on holds nobody else up: the largest policy that is permitted, replaced
//! over and over, and a flood under it. (Invariants 5 and 7.)

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lab::client::{connect_within, resolve4};
use lab::control::ask;
use lab::origin::port;
use lab::raw::{self, protocol};
use lab::topology::{PUBLIC4, ip};
use lab::{Lab, Sandbox, heaviest, policies};

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

fn v4(address: IpAddr) -> Ipv4Addr {
    if let IpAddr::V4(ip) = address {
        ip
    } else {
        Ipv4Addr::UNSPECIFIED
    }
}

/// First packets to a permitted name as fast as they can be sent, until told; how many there were.
fn flood(sandbox: &Sandbox, done: &AtomicBool) -> u32 {
    sandbox.run(|| {
        let lease = *resolve4("ok.sallylab.net")
            .first()
            .expect("the permitted twin: a lease");
        let source = sandbox.v4();
        let mut sent = 0;
        while !done.load(Ordering::Relaxed) {
            let from = 1_024 + u16::try_from(sent % 60_000).unwrap_or_default();
            // ports at the end of the list and some that nothing permits
            let to = 230 + u16::try_from(sent % 50).unwrap_or_default();
            let syn = raw::syn(source, lease, (from, to));
            let packet = raw::ipv4(v4(source), v4(lease), protocol::TCP, 0, &syn);
            let _ = raw::send4(&packet);
            sent += 1;
        }
        sent
    })
}

/// The slowest answer of the control socket, asked again and again.
fn slowest_answer(control: &std::path::Path, done: &AtomicBool) -> Duration {
    let mut worst = Duration::ZERO;
    while !done.load(Ordering::Relaxed) {
        let began = Instant::now();
        assert_eq!(ask(control, "GET", "/v1/networks", ""), 200);
        worst = worst.max(began.elapsed());
    }
    worst
}

/// The slowest connect of another sandbox, and the slowest answer of the control socket, beside such a flood.
fn beside_flood(lab: &Lab, other: &Sandbox, policy: &str) -> (Duration, Duration, u32) {
    let (flooding, control) = (lab.sandbox(policy), lab.gateway().control());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| flood(&flooding, &done));
        let answers = scope.spawn(|| slowest_answer(&control, &done));
        let until = Instant::now() + Duration::from_secs(4);
        let connects = slowest(other, || Instant::now() < until);
        done.store(true, Ordering::Relaxed);
        let (sent, answers) = (sent.join(), answers.join());
        (connects, answers.expect("answers"), sent.expect("a flood"))
    })
}

#[test]
fn a_flood_under_the_largest_policy_holds_neither_other_sandboxes_nor_the_control_socket_up() {
    let lab = Lab::builder().gateway_only().start();
    let other = lab.sandbox(FAST);
    let limits = "limits: { rate: 100000, flows: 10000 }";
    let small = format!(
        "policy: small\nnetwork: domains\n{limits}\nallow:\n  - {{ host: ok.sallylab.net, ports: [256] }}\n"
    );
    let alone = slowest(&other, || false);
    let few = beside_flood(&lab, &other, &small);
    let many = beside_flood(&lab, &other, &largest());
    println!(
        "{alone:?} alone; connect, answer, SYNs: {few:?} under one entry, {many:?} under 10,000"
    );
    for (connect, answer, sent) in [few, many] {
        assert!(sent > 1_000, "that is no flood");
        assert!(connect < BOUND && answer < BOUND, "{connect:?} {answer:?}");
    }
}

#[test]
fn no_shape_of_ten_thousand_entries_makes_a_decision_dear() {
    // a loaded machine and an unoptimised build get room: what is excluded is a walk over all entries
    let (rounds, bound) = if cfg!(debug_assertions) {
        (50, 2_000)
    } else {
        (1_000, 50)
    };
    for shape in heaviest::shapes() {
        let (connect, bytes) = (shape.connect(rounds), shape.bytes(rounds));
        println!("{}: {connect:?} {bytes:?}", shape.name);
        let dearest = connect.max(bytes.unwrap_or_default());
        assert!(dearest.as_micros() < bound, "{}: {dearest:?}", shape.name);
    }
}
