//! Datagrams through the gateway, beside bare and kernel-routed veth pairs: what arrives at a sink, large and small.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Row, Table, in_turn};
use crate::Options;
use crate::gateway::Gateway;
use crate::topology::{DIRECT, Ns, ORIGIN, Square};

const PORT: u16 = 9100;
/// The usual payload that fits every path, and one as small as a voice packet.
const LARGE: usize = 1400;
const SMALL: usize = 64;

/// Counts what arrives until it is dropped.
struct Sink {
    bytes: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Sink {
    fn start(ns: &Ns) -> Result<Self> {
        let sink = Self {
            bytes: Arc::default(),
            stop: Arc::default(),
        };
        let (bytes, stop) = (sink.bytes.clone(), sink.stop.clone());
        let socket = ns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)))??;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        ns.spawn(move || {
            let mut buffer = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                if let Ok(length) = socket.recv(&mut buffer) {
                    bytes.fetch_add(length as u64, Ordering::Relaxed);
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

/// Sends as fast as the system takes it; bytes a second that arrived.
fn arrives(ns: &Ns, to: Ipv4Addr, size: usize, sink: &Sink) -> Result<f64> {
    let (before, began) = (sink.bytes.load(Ordering::Relaxed), Instant::now());
    ns.run(move || -> Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(SocketAddr::from((to, PORT)))?;
        let payload = vec![b'd'; size];
        while began.elapsed() < Duration::from_secs(2) {
            // a full buffer is part of what is measured
            let _ = socket.send(&payload);
        }
        Ok(())
    })?
    .context("sending datagrams")?;
    let seconds = began.elapsed().as_secs_f64();
    let arrived = sink.bytes.load(Ordering::Relaxed).saturating_sub(before);
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
    for (title, unit, size, divisor) in [
        ("UDP, 1400 bytes a datagram", "Gbit/s", LARGE, 125e6),
        ("UDP, 64 bytes a datagram", "thousand a second", SMALL, 64e3),
    ] {
        let measured = |ns, to| Ok(arrives(ns, to, size, &sink)? / divisor);
        let figures = in_turn(
            options.reps,
            vec![
                ("gateway", Box::new(|| measured(&sandbox, ORIGIN))),
                ("bare veth pair", Box::new(|| measured(&client, DIRECT))),
                ("kernel-routed veth", Box::new(|| measured(&client, ORIGIN))),
            ],
        )?;
        table.add(Row {
            title,
            unit,
            aim: "half of kernel-routed",
            figures,
        });
    }
    Ok(())
}
