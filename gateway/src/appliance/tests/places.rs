//! Places among the flows: what a network held is free for others as soon as it has ended.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::lab::*;
use crate::kernel::pace::Pace;

/// Connects of each kind.
const EACH: usize = 20;
/// Far below what the gate lets a connection wait to be accepted (`Bounds::ready`), or a client to speak (`Waits`).
const SOON: Duration = Duration::from_secs(2);

fn places(lab: &Lab) -> u64 {
    let counters = lab.block(async |client| client.counters().await.unwrap());
    counters["flows"].as_u64().unwrap()
}

/// First SYNs of a client that is gone when they are answered, and connections on which nobody speaks.
fn takes(sandbox: &Sandbox, to: &str) -> Vec<TcpStream> {
    let to = SocketAddr::new(to.parse::<IpAddr>().unwrap(), 443);
    sandbox.run(move || {
        for _ in 0..EACH {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&to.into());
        }
        let silent = |_| TcpStream::connect_timeout(&to, Duration::from_secs(30)).unwrap();
        (0..EACH).map(silent).collect()
    })
}

#[test]
fn what_a_network_held_is_free_again_as_soon_as_it_has_ended() {
    let lab = Lab::started();
    let policy = "policy: named\nnetwork: domains\nallow:\n  - host: example.com\n";
    let (goes, stays) = (lab.attach(policy), lab.attach(policy));
    let _silent = [takes(&goes, FAR), takes(&stays, FAR)];
    let all = u64::try_from(4 * EACH).unwrap();
    eventually("all places taken", || (places(&lab) == all).then_some(()));
    let (pace, began) = (Pace::watch(), Instant::now());
    lab.block(async |client| client.detach(&goes.view.id).await.unwrap());
    eventually("half of them free", || {
        (places(&lab) <= all / 2).then_some(())
    });
    assert!(began.elapsed() < pace.stretches(SOON));
    // the other network's are its own
    let kept = places(&lab);
    assert!(kept >= u64::try_from(EACH).unwrap(), "{kept}");
}
