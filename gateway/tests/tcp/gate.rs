//! The SYN gate over a queue of the test: what is answered to a first SYN, and what an accepted socket is paired with.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use gateway::listen::gate::state::Verdict;
use gateway::listen::gate::{Queued, Syn, SynQueue};
use gateway::listen::serve_gate;

use crate::lab::{
    Lab, ORIGIN, SANDBOX, SILENT, accept, eventually, is_reset, nothing_reached, read, rest, run,
    write,
};

const POLICY: &str = "policy: p\nnetwork: domains\nallow:\n  - host: ok.net\n    ports: [22]\n    speaks: any\n  - host: closed.net\n  - host: missing.net\n  - cidr: 93.184.217.0/24\n    ports: [22]\n";

/// SYNs in, verdicts out.
struct Fake {
    syns: tokio::sync::Mutex<tokio::sync::mpsc::Receiver<Queued>>,
    verdicts: Mutex<mpsc::Sender<(u32, Verdict)>>,
    /// Whether the next reset panics: a mistake that one packet meets.
    trips: Arc<AtomicBool>,
}

impl SynQueue for Fake {
    async fn receive(&self, into: &mut VecDeque<Queued>) -> io::Result<()> {
        match self.syns.lock().await.recv().await {
            Some(syn) => into.push_back(syn),
            None => std::future::pending().await,
        }
        Ok(())
    }

    fn judge(&self, packet: u32, verdict: Verdict) -> io::Result<()> {
        let trips = verdict == Verdict::Reset && self.trips.swap(false, Ordering::Relaxed);
        assert!(!trips, "a packet trips the gate");
        self.verdicts
            .lock()
            .unwrap()
            .send((packet, verdict))
            .map_err(io::Error::other)
    }
}

struct Syns {
    send: tokio::sync::mpsc::Sender<Queued>,
    verdicts: mpsc::Receiver<(u32, Verdict)>,
    trips: Arc<AtomicBool>,
    packet: u32,
}

impl Syns {
    fn start(lab: &Lab, port: u16) -> Self {
        let (send, syns) = tokio::sync::mpsc::channel(1024);
        let (said, verdicts) = mpsc::channel();
        let trips = Arc::new(AtomicBool::new(false));
        let gate = serve_gate(
            &lab.ctx,
            Fake {
                syns: tokio::sync::Mutex::new(syns),
                verdicts: Mutex::new(said),
                trips: trips.clone(),
            },
        );
        gateway::listen::serve_tcp(&lab.ctx, lab.inside_listener(port), Some(gate));
        Self {
            send,
            verdicts,
            trips,
            packet: 0,
        }
    }

    async fn syn(&mut self, from: u16, to: impl Into<IpAddr>, port: u16) -> u32 {
        self.syn_from((SANDBOX, from).into(), (to.into(), port).into())
            .await
    }

    async fn syn_from(&mut self, source: SocketAddr, destination: SocketAddr) -> u32 {
        self.packet += 1;
        let syn = Syn {
            packet: self.packet,
            source,
            destination,
            isn: 1,
        };
        self.send.send(Queued::Syn(syn)).await.unwrap();
        self.packet
    }

    async fn verdict(&self) -> (u32, Verdict) {
        eventually(|| self.verdicts.try_recv().ok()).await
    }
}

#[test]
fn a_permitted_syn_is_dialled_before_it_is_accepted() {
    run(POLICY, |lab| async move {
        let origin = lab.origin(22).await;
        let mut syns = Syns::start(&lab, 22);
        let lease = lab.lease("ok.net");
        // the kernel's side: a socket with these ends arrives at the listener only after the verdict
        let packet = syns.syn(40_000, lease, 22).await;
        let mut server = accept(&origin).await;
        assert_eq!(syns.verdict().await, (packet, Verdict::Accept));
        let mut client = lab.connect_from(40_000, lease, 22);
        write(&mut client, b"\0hi").await;
        assert_eq!(read(&mut server, 3).await, b"\0hi");
        drop((client, server));
        lab.ends(1).await;
        eventually(|| (lab.network.ledger.flows() == 0).then_some(())).await;
    });
}

#[test]
fn a_packet_that_trips_the_gate_is_dropped_alone() {
    run(POLICY, |lab| async move {
        let _origin = lab.origin(22).await;
        let mut syns = Syns::start(&lab, 22);
        let lease = lab.lease("ok.net");
        syns.trips.store(true, Ordering::Relaxed);
        let tripping = syns.syn(40_000, [10, 0, 0, 9], 22).await;
        assert_eq!(syns.verdict().await, (tripping, Verdict::Drop));
        assert_eq!(lab.ctx.tasks.panics(), 1);
        assert_eq!(*lab.ctx.tasks.fallen().borrow(), None);
        // everybody else's packets are judged as before, also equal ones
        let denied = syns.syn(40_001, [10, 0, 0, 9], 22).await;
        assert_eq!(syns.verdict().await, (denied, Verdict::Reset));
        let permitted = syns.syn(40_002, lease, 22).await;
        assert_eq!(syns.verdict().await, (permitted, Verdict::Accept));
    });
}

#[test]
fn an_accepted_socket_without_a_verdict_is_reset() {
    run(POLICY, |lab| async move {
        let origin = lab.origin(22).await;
        let mut syns = Syns::start(&lab, 22);
        let lease = lab.lease("ok.net");
        let mut client = lab.connect_from(40_001, lease, 22);
        assert!(is_reset(&rest(&mut client).await));
        nothing_reached(&origin).await;
        // a verdict for other ports does not help
        syns.syn(40_002, lease, 22).await;
        syns.verdict().await;
        let mut client = lab.connect_from(40_003, lease, 22);
        assert!(is_reset(&rest(&mut client).await));
    });
}

#[test]
fn denied_refused_and_unresolvable_are_told_apart() {
    run(POLICY, |lab| async move {
        let origin = lab.origin(443).await;
        let mut syns = Syns::start(&lab, 443);
        for (name, verdict) in [
            ("evil.net", Verdict::Reset),
            ("closed.net", Verdict::Reset),
            ("missing.net", Verdict::HostUnreachable),
        ] {
            let lease = lab.lease(name);
            let packet = syns.syn(40_000, lease, 443).await;
            assert_eq!(syns.verdict().await, (packet, verdict), "{name}");
        }
        for to in [[198, 19, 200, 200], [10, 0, 0, 5], [169, 254, 169, 254]] {
            let packet = syns.syn(40_000, to, 443).await;
            assert_eq!(syns.verdict().await, (packet, Verdict::Reset), "{to:?}");
        }
        nothing_reached(&origin).await;
        assert_eq!(
            lab.denials(),
            [
                "name_not_allowed",
                "lease_unknown",
                "address_private",
                "address_metadata"
            ]
        );
    });
}

#[test]
fn strangers_and_odd_packets_are_dropped_in_silence() {
    run(POLICY, |lab| async move {
        let mut syns = Syns::start(&lab, 22);
        let packet = syns
            .syn_from("198.18.9.9:1".parse().unwrap(), (ORIGIN, 22).into())
            .await;
        assert_eq!(syns.verdict().await, (packet, Verdict::Drop));
        syns.send.send(Queued::Other(77)).await.unwrap();
        assert_eq!(syns.verdict().await, (77, Verdict::Drop));
        assert!(lab.entries().is_empty());
    });
}

#[test]
fn a_sealed_gateway_resets_syns() {
    run(POLICY, |lab| async move {
        let origin = lab.origin(22).await;
        let mut syns = Syns::start(&lab, 22);
        lab.seal.send_replace(false);
        let packet = syns.syn(40_000, lab.lease("ok.net"), 22).await;
        assert_eq!(syns.verdict().await, (packet, Verdict::Reset));
        nothing_reached(&origin).await;
        assert_eq!(lab.denials(), ["gateway_sealed"]);
    });
}

#[test]
fn a_silent_host_lets_the_syn_go_after_three_seconds_and_blocks_nobody() {
    run(POLICY, |lab| async move {
        let origin = lab.origin(22).await;
        let mut syns = Syns::start(&lab, 22);
        let began = Instant::now();
        let packet = syns.syn(40_000, SILENT, 22).await;
        let lease = lab.lease("ok.net");
        let other = syns.syn(40_001, lease, 22).await;
        assert_eq!(syns.verdict().await, (other, Verdict::Accept));
        // before the silent one is let go
        assert!(began.elapsed() < Duration::from_millis(2900));
        let _server = accept(&origin).await;
        assert_eq!(syns.verdict().await, (packet, Verdict::Drop));
        let held = began.elapsed();
        assert!(
            (Duration::from_millis(2900)..Duration::from_secs(9)).contains(&held),
            "{held:?}"
        );
    });
}

#[test]
fn a_scan_of_silent_hosts_starves_only_itself() {
    let policy = "policy: p\nnetwork: internet\nlimits: { flows: 8, rate: 1000 }\n";
    run(policy, |lab| async move {
        let origin = lab.origin(22).await;
        let mut syns = Syns::start(&lab, 22);
        for port in 0..64 {
            syns.syn(
                40_000 + port,
                [93, 184, 217, u8::try_from(port).unwrap()],
                22,
            )
            .await;
        }
        // the oldest made room for each that came later
        for _ in 0..56 {
            assert_eq!(syns.verdict().await.1, Verdict::Drop);
        }
        let packet = syns.syn(50_000, ORIGIN, 22).await;
        let mut verdicts = [syns.verdict().await, syns.verdict().await];
        verdicts.sort_unstable_by_key(|(packet, _)| *packet);
        assert_eq!(verdicts[1], (packet, Verdict::Accept));
        accept(&origin).await;
        assert!(lab.denials().is_empty(), "{:?}", lab.denials());
    });
}
