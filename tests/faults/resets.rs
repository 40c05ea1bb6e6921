//! Storms of resets, from a sandbox and from an origin: nothing is left of them, and a calm flow beside goes on.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use lab::client::{Connect, End, SURELY, connect, read_to_end, reads};
use lab::origin::port;
use lab::pace::Pace;
use lab::topology::{PUBLIC4, ip};
use lab::wait::eventually;
use socket2::SockRef;

use crate::meter;
use crate::server::Mute;
use crate::storms::{POLICY, lab, latency};

/// Resets of each side.
const RESETS: usize = 2000;

#[test]
fn a_storm_of_resets_from_both_sides_leaves_nothing_behind_and_disturbs_nobody() {
    let lab = lab();
    let (wild, calm) = (lab.sandbox(POLICY), lab.sandbox(POLICY));
    let (server, resetting) = (Mute::start(&lab, 24_444), Mute::resetting(&lab, 24_445));
    let before = meter::descriptors(&lab);
    let echo = SocketAddr::new(ip(PUBLIC4), port::ECHO);
    let mut kept = calm.run(|| connect(echo).expect_open());
    let pace = Pace::watch();
    let slowest = std::thread::scope(|scope| {
        let storms = [
            scope.spawn(|| wild.run(|| reset_by_client(server.at))),
            scope.spawn(|| wild.run(|| reset_by_server(resetting.at))),
        ];
        let mut slowest = Duration::ZERO;
        while storms.iter().any(|storm| !storm.is_finished()) {
            slowest = slowest.max(latency(&calm, echo, 5).0);
            kept.write_all(b"still there").expect("its own connection");
            assert!(reads(&mut kept, b"still there"), "a calm flow beside");
        }
        for storm in storms {
            storm.join().expect("a storm");
        }
        slowest
    });
    eventually("each reset to arrive", || {
        (server.count() + resetting.count() == 2 * RESETS).then_some(())
    });
    println!("a connect beside {RESETS} resets from each side: {slowest:?} at most");
    let most = pace.stretches(Duration::from_secs(2));
    assert!(slowest < most, "{slowest:?}");
    drop(kept);
    server.reset_all();
    meter::is_back_at(&lab, before);
    assert!(meter::enforces(&lab));
}

/// Connections that their sandbox resets as soon as they stand, some with bytes on their way.
fn reset_by_client(to: SocketAddr) {
    for round in 0..RESETS {
        let stream = connect(to).expect_open();
        let linger = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        linger.expect("linger");
        if round % 3 == 0 {
            let _ = (&stream).write_all(&[0; 1000]);
        }
    }
}

/// Connections that their origin resets as soon as they stand; each is told so.
fn reset_by_server(to: SocketAddr) {
    for _ in 0..RESETS {
        // so soon that the connect may not have returned
        if let Connect::Open(mut stream) = connect(to) {
            let _ = stream.set_read_timeout(Some(SURELY));
            assert_eq!(read_to_end(&mut stream).1, End::Reset);
        }
    }
}
