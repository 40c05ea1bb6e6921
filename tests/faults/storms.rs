//! Storms: readers that do not read, servers that stall, scans and floods, while a neighbour works.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::client::{connect, connect_within};
use lab::pace::Pace;
use lab::topology::{PUBLIC4, SERVICE4, SILENT4, ip};
use lab::wait::eventually;
use lab::{Lab, Sandbox, policies};

use crate::meter;
use crate::server::{Mute, many_descriptors};

pub const POLICY: &str =
    "policy: storm\nnetwork: internet\nlimits: { flows: 2000, rate: 100000 }\n";
const CONFIG: &str = "floods: { connects: 1000000, questions: 1000000, datagrams: 1000000 }";
/// Resident memory that a storm may cost: the buffers of a few hundred flows are the kernel's.
const MORE_KIB: u64 = 48 << 10;

pub fn lab() -> Lab {
    many_descriptors();
    Lab::builder().gateway_only().config(CONFIG).start()
}

/// Connects one after the other; how long the slowest and the middle one took.
pub fn latency(sandbox: &Sandbox, to: SocketAddr, count: usize) -> (Duration, Duration) {
    let mut took: Vec<Duration> = sandbox.run(|| {
        let one = |_| {
            let began = Instant::now();
            drop(connect(to).expect_open());
            began.elapsed()
        };
        (0..count).map(one).collect()
    });
    took.sort();
    let nth = |place: usize| took.get(place).copied().expect("so many");
    (nth(count - 1), nth(count / 2))
}

#[test]
fn readers_that_do_not_read_and_servers_that_stall_cost_no_memory_and_hold_up_nobody() {
    let lab = lab();
    let (slow, other) = (lab.sandbox(POLICY), lab.sandbox(policies::INTERNET));
    let (pouring, stalling) = (Mute::start(&lab, 24_444), Mute::start(&lab, 24_446));
    let before = meter::resident_kib(&lab);
    let streams: Vec<TcpStream> = slow.run(|| {
        let mut all = Vec::new();
        for _ in 0..200 {
            all.push(connect(pouring.at).expect_open());
            let stream = connect(stalling.at).expect_open();
            stream.set_nonblocking(true).expect("nonblocking");
            all.push(stream);
        }
        all
    });
    eventually("all connections", || {
        (pouring.count() == 200 && stalling.count() == 200).then_some(())
    });
    // poured from both ends until neither takes any more
    let mut poured = 0;
    eventually("everything to be full", || {
        let mut now = pouring.pour();
        for stream in streams.iter().skip(1).step_by(2) {
            while let Ok(length) = (&mut &*stream).write(&[0x55; 16_384]) {
                now += length;
            }
        }
        poured += now;
        (now == 0).then_some(())
    });
    assert!(poured > 10 << 20, "{poured}");
    let more = meter::resident_kib(&lab).saturating_sub(before);
    assert!(more < MORE_KIB, "{more} KiB more");
    let (pace, quick) = (Pace::watch(), Mute::start(&lab, 24_447));
    let (slowest, _) = latency(&other, quick.at, 20);
    let most = pace.stretches(Duration::from_secs(2));
    assert!(slowest < most, "{slowest:?}");
    drop(streams);
}

/// Stops when it is dropped, in a panic too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_sandbox_that_scans_and_floods_does_not_keep_its_neighbour_waiting() {
    let lab = lab();
    let (wild, calm) = (lab.sandbox(POLICY), lab.sandbox(policies::INTERNET));
    let server = Mute::start(&lab, 24_444);
    let (quiet, quiet_middle) = latency(&calm, server.at, 50);
    let pace = Pace::watch();
    let stop = AtomicBool::new(false);
    let going = || !stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        // however this ends, or the two would go on
        let over = Over(&stop);
        let scan = scope.spawn(|| {
            wild.run(|| {
                let mut tried = 0_u32;
                for port in (1..60_000).cycle().take_while(|_| going()) {
                    let to =
                        SocketAddr::new(ip(if port % 2 == 0 { SILENT4 } else { PUBLIC4 }), port);
                    let _ = connect_within(to, Duration::from_millis(1));
                    tried += 1;
                }
                tried
            })
        });
        let flood = scope.spawn(|| {
            wild.run(|| {
                let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
                let mut sent = 0_u32;
                while going() {
                    for port in 1..2000 {
                        let _ = socket.send_to(&[0; 64], (ip(PUBLIC4), port));
                    }
                    let _ = socket.send_to(b"no question", (ip(SERVICE4), 53));
                    sent += 2000;
                    // a processor for the others: two cores are shared by sandbox, gateway and victim
                    std::thread::park_timeout(Duration::from_millis(5));
                }
                sent
            })
        });
        let (slowest, middle) = latency(&calm, server.at, 200);
        drop(over);
        let (tried, sent) = (
            scan.join().expect("no panic"),
            flood.join().expect("no panic"),
        );
        println!(
            "quiet {quiet_middle:?} (slowest {quiet:?}), beside {tried} connects and {sent} datagrams {middle:?} (slowest {slowest:?})"
        );
        assert!(tried > 50 && sent > 2000, "{tried} {sent}");
        for (took, most) in [(slowest, 3000), (middle, 250)] {
            let most = pace.stretches(Duration::from_millis(most));
            assert!(took < most, "{took:?} of {most:?}");
        }
    });
    assert!(meter::enforces(&lab));
}
