//! A process without a free descriptor: flows are denied, nothing seals, and it is over when it is over.

use std::net::SocketAddr;
use std::time::Duration;

use netpolicy::reason::Reason;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

use super::lab::*;
use crate::record::Entry;

/// No new descriptor for anything in this process (all below four are in use); lifted on drop.
struct NoDescriptors(Rlimit);

impl NoDescriptors {
    fn begin() -> Self {
        let before = getrlimit(Resource::Nofile);
        let none = Rlimit {
            current: Some(4),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nofile, none).unwrap();
        Self(before)
    }
}

impl Drop for NoDescriptors {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).unwrap();
    }
}

#[test]
fn without_descriptors_flows_are_denied_nothing_seals_and_afterwards_flows_pass() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let kept = sandbox.echoes(FAR).unwrap();
    let within = lab.within();
    let generation = within.posture.view().generation;
    // Everything that the test needs meanwhile is open before.
    let sockets: Vec<Socket> = sandbox.run(|| {
        let new = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        std::iter::repeat_with(new).take(20).collect()
    });
    let to: SocketAddr = format!("{FAR}:7").parse().unwrap();
    let shortage = NoDescriptors::begin();
    for socket in &sockets {
        let denied = socket.connect_timeout(&to.into(), Duration::from_secs(5));
        assert!(denied.is_err(), "a flow needs descriptors");
    }
    // The gateway looks at its rules and cannot.
    eventually("a missed look", || {
        within.posture.wake();
        let view = within.posture.view();
        assert_eq!(view.state, "enforcing", "{:?}", view.cause);
        within.posture.is_blind().then_some(())
    });
    assert_eq!(within.posture.view().state, "enforcing");
    drop(shortage);
    eventually("a look", || {
        within.posture.wake();
        (!within.posture.is_blind()).then_some(())
    });
    sandbox.echoes(FAR).unwrap();
    assert!(!is_over(&kept));
    let view = within.posture.view();
    assert_eq!(
        (view.state.as_str(), view.generation),
        ("enforcing", generation)
    );
    let short = lab.block(async |c| {
        let mut lines = c.records(0).await.unwrap();
        let mut count = 0;
        while let Some(line) = lines.next().await.unwrap() {
            let (Entry::Denial(denied) | Entry::Failure(denied)) = line.entry else {
                continue;
            };
            count += usize::from(denied.reason == Reason::LimitFlows);
        }
        count
    });
    assert!(short > 0, "the denials are in the record as limit_flows");
}
