//! Datagrams through the gateway, beside bare and kernel-routed veth pairs: what arrives at a sink, large and small.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Costs, Row, Table, in_turn};
use crate::Options;
use crate::gateway::Gateway;
use crate::topology::{DIRECT, Ns, ORIGIN, Square};

const PORT: u16 = 9100;
/// The usual payload that fits every path, and one as small as a voice packet.
const LARGE: usize = 1400;
const SMALL: usize = 64;
const RUN: Duration = Duration::from_secs(2);

/// Counts what arrives until it is dropped.
struct Sink {
    count: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Sink {
    fn start(ns: &Ns) -> Result<Self> {
        let sink = Self {
            count: Arc::default(),
            stop: Arc::default(),
        };
        let (count, stop) = (sink.count.clone(), sink.stop.clone());
        let socket = ns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)))??;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        ns.spawn(move || {
            let mut buffer = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                if socket.recv(&mut buffer).is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(sink)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Sends as fast as the system takes it; datagrams a second that arrived.
fn arrives(ns: &Ns, to: Ipv4Addr, size: usize, sink: &Sink) -> Result<f64> {
    let (before, began) = (sink.count.load(Ordering::Relaxed), Instant::now());
    ns.run(move || -> Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(SocketAddr::from((to, PORT)))?;
        let payload = vec![b'd'; size];
        while began.elapsed() < RUN {
            // a full buffer is part of what is measured
            let _ = socket.send(&payload);
        }
        Ok(())
    })?
    .context("sending datagrams")?;
    let seconds = began.elapsed().as_secs_f64();
    let arrived = sink.count.load(Ordering::Relaxed).saturating_sub(before);
    if arrived == 0 {
        bail!("no datagram arrived at {to}");
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    Ok(arrived as f64 / seconds)
}

/// Rows about UDP.
pub fn datagrams(options: &Options, table: &mut Table) -> Result<()> {
    if !options.wants(&["UDP"]) {
        return Ok(());
    }
    let Square {
        client,
        proxy,
        sandbox,
        origin,
    } = Square::new("u")?;
    let sink = Sink::start(&origin)?;
    let gateway = Gateway::start(&options.binary, &proxy, ORIGIN)?;
    let policy = gateway.dir().join("datagrams.yml");
    std::fs::write(&policy, "policy: datagrams\nnetwork: internet\n")?;
    gateway.attach(&sandbox, &policy)?;
    for (titles, unit, size, each) in [
        (
            [
                "UDP, 1400 bytes a datagram",
                "UDP, 1400 bytes a datagram: CPU time of the process between",
                "UDP, 1400 bytes a datagram: CPU time with both ends",
            ],
            "Gbit/s",
            LARGE,
            1400.0 / 125e6,
        ),
        (
            [
                "UDP, 64 bytes a datagram",
                "UDP, 64 bytes a datagram: CPU time of the process between",
                "UDP, 64 bytes a datagram: CPU time with both ends",
            ],
            "thousand a second",
            SMALL,
            1e-3,
        ),
    ] {
        let costs = Costs::new(RUN);
        let measured = |who, between, ns, to| {
            let arrived = costs.beside(who, between, || arrives(ns, to, size, &sink));
            arrived.map(|datagrams| datagrams * each)
        };
        let (ours, bare, routed) = ("gateway", "bare veth pair", "kernel-routed veth");
        let figures = in_turn(
            options.reps,
            vec![
                (
                    ours,
                    Box::new(|| measured(ours, Some(gateway.pid()), &sandbox, ORIGIN)),
                ),
                (bare, Box::new(|| measured(bare, None, &client, DIRECT))),
                (routed, Box::new(|| measured(routed, None, &client, ORIGIN))),
            ],
        )?;
        let [title, between, whole] = titles;
        table.add(Row {
            title,
            unit,
            aim: "half of kernel-routed",
            figures,
        });
        for row in costs.rows([between, whole], "us each") {
            table.add(row);
        }
    }
    Ok(())
}
