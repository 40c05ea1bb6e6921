//! Fairness: what a victim's connects take while its neighbour scans and floods, beside what they take alone.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Row, Table, in_turn};
use crate::Options;
use crate::gateway::Gateway;
use crate::load::{Origins, question};
use crate::topology::{Ns, join};

/// The public-looking address that the origin owns.
const ORIGIN: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
/// Nobody answers there.
const SILENT: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 99);
const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));
/// Connects of one measurement; the 99th percentile is the fifth slowest.
const CONNECTS: usize = 500;

/// A neighbour that does what it can until it is dropped.
struct Attacker {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<Result<()>>>,
}

impl Attacker {
    fn start(ns: &Ns) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let going = |stop: &Arc<AtomicBool>| {
            let stop = stop.clone();
            move || !stop.load(Ordering::Relaxed)
        };
        let (scans, floods) = (going(&stop), going(&stop));
        let scan = ns.spawn(move || {
            for port in (1..60_000).cycle().take_while(|_| scans()) {
                let to = SocketAddr::from((if port % 2 == 0 { SILENT } else { ORIGIN }, port));
                // what becomes of it is not the point
                drop(TcpStream::connect_timeout(&to, Duration::from_millis(1)));
            }
        });
        let flood = ns.spawn(move || {
            let Ok(socket) = UdpSocket::bind("0.0.0.0:0") else {
                return;
            };
            let asked = question(7, "flood.example.com");
            for port in (1..60_000).cycle().take_while(|_| floods()) {
                let _ = socket.send_to(&[0; 64], (ORIGIN, port));
                let _ = socket.send_to(&asked, (SERVICE, 53));
            }
        });
        Self {
            stop,
            threads: vec![scan, flood],
        }
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The 99th percentile of a victim's connects, ms.
fn slow_connect(ns: &Ns) -> Result<f64> {
    let took = ns.run(|| -> Result<Vec<f64>> {
        let one = |_| {
            let began = Instant::now();
            let to = SocketAddr::from((ORIGIN, Origins::SHORT));
            drop(TcpStream::connect_timeout(&to, Duration::from_secs(10)).context("connecting")?);
            Ok(began.elapsed().as_secs_f64() * 1e3)
        };
        (0..CONNECTS).map(one).collect()
    })?;
    let mut took = took?;
    took.sort_by(f64::total_cmp);
    took.get(CONNECTS * 99 / 100).copied().context("no connect")
}

/// The row on fairness.
pub fn fairness(options: &Options, table: &mut Table) -> Result<()> {
    if !options.wants(&["fairness"]) {
        return Ok(());
    }
    let (uplink, origin) = (Ns::new("fuplink")?, Ns::new("forigin")?);
    let (victim, wild) = (Ns::new("fvictim")?, Ns::new("fwild")?);
    join(
        (&uplink, "p1", "10.9.2.1/30"),
        (&origin, "o0", "10.9.2.2/30"),
    )?;
    origin.ip(&["addr", "add", "93.184.216.34/32", "dev", "lo"])?;
    uplink.ip(&["route", "add", "default", "via", "10.9.2.2"])?;
    origin.ip(&["route", "add", "blackhole", "93.184.216.99/32"])?;
    let _origins = Origins::start(&origin, ORIGIN)?;
    let gateway = Gateway::start(&options.binary, &uplink, ORIGIN)?;
    let policy = gateway.dir().join("fairness.yml");
    let text = "policy: fairness\nnetwork: internet\nlimits: { flows: 2000, rate: 100000 }\n";
    std::fs::write(&policy, text)?;
    gateway.attach(&victim, &policy)?;
    gateway.attach(&wild, &policy)?;
    let figures = in_turn(
        options.reps,
        vec![
            (
                "beside a scan and floods",
                Box::new(|| {
                    let _attacker = Attacker::start(&wild);
                    slow_connect(&victim)
                }),
            ),
            ("alone", Box::new(|| slow_connect(&victim))),
        ],
    )?;
    table.add(Row {
        title: "fairness: a connect of one sandbox, 99th percentile",
        unit: "ms",
        aim: "printed",
        figures,
    });
    Ok(())
}
