//! A connect is honest: refused is refused, dead is dead, denied is reset at once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lab::client::{Connect, at, connect, connect_within};
use lab::origin::port;
use lab::pace::Pace;
use lab::topology::{PUBLIC4, PUBLIC6, SILENT4, UNREACHABLE4, ip};
use lab::wait::LIMIT;
use lab::{Lab, policies};

fn lab() -> Lab {
    Lab::builder().gateway_only().start()
}

#[test]
fn a_closed_port_is_refused_and_the_origin_was_asked() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::INTERNET);
    for address in [PUBLIC4, PUBLIC6] {
        let mark = lab.capture.mark();
        let outcome = sandbox.run(|| connect(SocketAddr::new(ip(address), port::CLOSED)));
        assert!(outcome.is_refused(), "{address}: {outcome:?}");
        assert!(
            lab.capture
                .since(mark)
                .iter()
                .any(|f| f.is_syn() && f.destination == Some(ip(address)))
        );
    }
}

#[test]
fn a_dead_host_stays_silent() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::INTERNET);
    let outcome =
        sandbox.run(|| connect_within(SocketAddr::new(ip(SILENT4), 443), Duration::from_secs(2)));
    assert!(matches!(outcome, Connect::Silence), "{outcome:?}");
}

#[test]
fn an_unreachable_host_is_unreachable() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::INTERNET);
    let outcome = sandbox.run(|| connect(SocketAddr::new(ip(UNREACHABLE4), 443)));
    assert!(matches!(outcome, Connect::Unreachable(_)), "{outcome:?}");
}

#[test]
fn a_denied_connect_is_reset_at_once_and_nothing_is_sent() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS);
    let mark = lab.capture.mark();
    let (pace, started) = (Pace::watch(), Instant::now());
    let name = sandbox.run(|| connect(at("ok.sallylab.net", 22)));
    let took = started.elapsed();
    assert!(name.is_refused(), "{name:?}");
    assert!(took < pace.stretches(Duration::from_secs(1)), "{took:?}");
    assert!(lab.capture.touching(mark, ip(PUBLIC4)).is_empty());
}

#[test]
fn happy_eyeballs_reaches_the_family_that_works() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::DOMAINS_ANY);
    lab.origins
        .zone
        .addresses("ok.sallylab.net", &[SILENT4, PUBLIC6]);
    let outcome = sandbox.run(|| connect(at("ok.sallylab.net", port::ECHO)));
    assert!(outcome.is_open(), "{outcome:?}");
}

#[test]
fn the_end_is_mirrored_as_a_reset() {
    let lab = lab();
    let sandbox = lab.sandbox(policies::INTERNET);
    let mark = lab.origins.ended.mark();
    sandbox.run(|| {
        let stream = connect(SocketAddr::new(ip(PUBLIC4), port::MUTE)).expect_open();
        let socket = socket2::SockRef::from(&stream);
        socket.set_linger(Some(Duration::ZERO)).expect("linger");
    });
    let ended = lab.origins.ended.wait(mark, LIMIT, |_| true);
    assert!(matches!(ended, Some((_, true))), "the origin saw {ended:?}");
}
