//! Parts of the gateway that end or panic: noticed, and sealed for as long as they are missing.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::lab::*;
use crate::appliance::watch::{self, Watcher};
use crate::control::api::PostureView;
use crate::kernel::KernelError;

fn posture(lab: &Lab) -> PostureView {
    lab.block(async |c| c.posture().await.unwrap())
}

fn sealed_for(lab: &Lab, cause: &str) -> PostureView {
    eventually("the seal", || {
        Some(posture(lab)).filter(|p| {
            p.state == "sealed" && p.cause.as_deref().is_some_and(|c| c.contains(cause))
        })
    })
}

#[test]
fn a_door_that_panics_or_ends_seals_with_its_name_and_a_flow_that_panics_does_not() {
    for panics in [true, false] {
        let lab = Lab::started();
        let sandbox = lab.attach(&far_only());
        let within = lab.within();
        let _runtime = within.runtime.enter();
        within
            .ctx
            .tasks
            .spawn("flow", async { panic!("a flow trips over a packet") });
        eventually("the count", || {
            (within.ctx.tasks.panics() == 1).then_some(())
        });
        sandbox.echoes(FAR).unwrap();
        assert_eq!(posture(&lab).state, "enforcing");

        within.ctx.tasks.keep("door", async move {
            assert!(!panics, "a door trips over a packet");
        });
        let seen = sealed_for(&lab, "a part of the gateway has ended: door");
        assert!(seen.hint.unwrap().contains("restart"));
        let refused = sandbox.echoes(FAR).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // a look at rules that are right does not open what nobody serves
        within.posture.wake();
        assert!(sandbox.echoes(FAR).is_err());
        assert_eq!(posture(&lab).state, "sealed");
    }
}

/// A question for a name below a service of ours; the gateway answers it by itself.
fn answers(sandbox: &Sandbox, patience: Duration) -> bool {
    // RFC 1035: identifier 7, one question, `a.invalid`, type A, class IN
    let question = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\x07invalid\0\0\x01\0\x01";
    let to = SocketAddr::new(sandbox.view.service_v4.into(), 53);
    sandbox.run(move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(patience)).unwrap();
        socket.send_to(question, to).unwrap();
        let mut answer = [0; 512];
        matches!(socket.recv(&mut answer), Ok(length) if length > 12 && answer[..2] == [0, 7])
    })
}

/// Waits until so many panics are counted: each is told in the log at length before that.
fn counted(tasks: &crate::tasks::Tasks, panics: u64) {
    eventually("a panic to be counted", || {
        (tasks.panics() >= panics).then_some(())
    });
    assert_eq!(tasks.panics(), panics);
}

#[test]
fn a_panic_over_one_packet_costs_that_packet_only() {
    let lab = Lab::started();
    let (unlucky, other) = (lab.attach(&far_only()), lab.attach(&far_only()));
    let kept = other.echoes(FAR).unwrap();
    let within = lab.within();
    let generation = within.posture.view().generation;
    let patience = Duration::from_secs(30);
    assert!(answers(&unlucky, patience), "the permitted twin");

    within.ctx.tasks.lay_tripwire("a DNS question");
    // the answer never comes, and this is how long it is waited for
    assert!(!answers(&unlucky, Duration::from_millis(500)));
    counted(&within.ctx.tasks, 1);
    assert!(answers(&unlucky, patience) && answers(&other, patience));

    within.ctx.tasks.lay_tripwire("a first SYN");
    let begun = Instant::now();
    // its kernel sends the first SYN again after a second; the lock that was held in the panic is no hindrance
    unlucky.echoes(FAR).unwrap();
    assert!(
        begun.elapsed() > Duration::from_millis(900),
        "{:?}",
        begun.elapsed()
    );
    counted(&within.ctx.tasks, 2);
    unlucky.echoes(FAR).unwrap();
    other.echoes(FAR).unwrap();
    assert!(!is_over(&kept));

    // UDP is refused at once here; the one that trips its reader is not answered at all
    let told = |patience| {
        let refused = unlucky.run(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(patience)).unwrap();
            socket.connect((FAR, 9)).unwrap();
            socket.send(b"x").unwrap();
            socket.recv(&mut [0; 16]).unwrap_err().kind()
        });
        refused == ErrorKind::ConnectionRefused
    };
    assert!(told(patience));
    within.ctx.tasks.lay_tripwire("a datagram");
    assert!(!told(Duration::from_millis(500)));
    counted(&within.ctx.tasks, 3);
    assert!(told(patience));

    let view = posture(&lab);
    assert_eq!(
        (view.state.as_str(), view.generation),
        ("enforcing", generation)
    );
}

/// Fails at first, then panics, then watches.
struct Clumsy {
    begun: Arc<AtomicUsize>,
    go_on: Arc<tokio::sync::Notify>,
}

impl Watcher for Clumsy {
    const NAME: &'static str = "clumsy";
    const LOST: &'static str = "nothing is seen";

    async fn watch(&mut self) -> String {
        match self.begun.load(Ordering::SeqCst) {
            0 => "its socket broke".to_owned(),
            1 => panic!("it trips over a notice"),
            _ => std::future::pending().await,
        }
    }

    async fn renew(&mut self) -> Result<(), KernelError> {
        self.go_on.notified().await;
        self.begun.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn a_watcher_that_fails_or_panics_seals_until_it_watches_again() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let kept = sandbox.echoes(FAR).unwrap();
    let within = lab.within();
    let clumsy = Clumsy {
        begun: Arc::default(),
        go_on: Arc::default(),
    };
    let go_on = clumsy.go_on.clone();
    let _runtime = within.runtime.enter();
    watch::keep(&within.ctx, &within.posture, clumsy);
    sealed_for(&lab, "nothing is seen: its socket broke");
    assert!(sandbox.echoes(FAR).is_err());
    go_on.notify_one();
    sealed_for(&lab, "nothing is seen: it panicked");
    assert!(sandbox.echoes(FAR).is_err());
    go_on.notify_one();
    eventually("an enforcing gateway", || {
        (posture(&lab).state == "enforcing").then_some(())
    });
    sandbox.echoes(FAR).unwrap();
    assert!(!is_over(&kept), "what was permitted before stays");
}
