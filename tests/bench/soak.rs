//! `./dev bench --soak`: mixed load for ten minutes (or `--duration`), and memory that stays flat.
//!
//! Short connections, streams, names, denied names and addresses, resets, datagrams, policies that are replaced and
//! networks that come and go, all at once. What the gateway holds is read all the time; after a warm-up of a fifth of the
//! time it may not grow: the last fifth is compared with the second one, and a gateway that grew fails the run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use socket2::SockRef;

use crate::Options;
use crate::gateway::Gateway;
use crate::load::{Origins, bulk, connections, questions};
use crate::topology::{Ns, join};

const ORIGIN: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));
const NAME: &str = "soak.example.com";
const POLICY: &str = "policy: soak\nnetwork: internet\ndeny:\n  - host: never.example.org\nlimits: { flows: 2000, rate: 100000, names: 5000 }\n";
/// Memory that a sound gateway may still take after the warm-up: allocators settle slowly.
const GROWTH_KIB: u64 = 4 << 10;
/// The same for descriptors and threads: what is under way at the moment of a look.
const GROWTH_COUNT: u64 = 100;

/// What a process holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Held {
    resident_kib: u64,
    descriptors: u64,
    tasks: u64,
}

impl Held {
    fn of(pid: u32) -> Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
            .context("the gateway has ended")?;
        let number = |key: &str| -> Result<u64> {
            let line = status.lines().find_map(|l| l.strip_prefix(key));
            let word = line.and_then(|l| l.split_whitespace().next());
            Ok(word.with_context(|| format!("no {key}"))?.parse()?)
        };
        Ok(Self {
            resident_kib: number("VmRSS:")?,
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
            tasks: number("Threads:")?,
        })
    }

    /// The middle of some looks, each quantity by itself.
    fn middle(looks: &[Self]) -> Self {
        let of = |part: fn(&Self) -> u64| {
            let mut all: Vec<u64> = looks.iter().map(part).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or_default()
        };
        Self {
            resident_kib: of(|h| h.resident_kib),
            descriptors: of(|h| h.descriptors),
            tasks: of(|h| h.tasks),
        }
    }
}

/// Counters of what was done.
#[derive(Debug, Default)]
struct Done {
    connections: AtomicU64,
    resets: AtomicU64,
    datagrams: AtomicU64,
    replaced: AtomicU64,
    networks: AtomicU64,
    failures: AtomicU64,
}

/// Runs it.
pub fn soak(options: &Options, duration: Duration) -> Result<()> {
    let (uplink, origin) = (Ns::new("suplink")?, Ns::new("sorigin")?);
    join(
        (&uplink, "p1", "10.9.2.1/30"),
        (&origin, "o0", "10.9.2.2/30"),
    )?;
    origin.ip(&["addr", "add", "93.184.216.34/32", "dev", "lo"])?;
    uplink.ip(&["route", "add", "default", "via", "10.9.2.2"])?;
    for ns in [&uplink, &origin] {
        ns.sysctl("net.ipv4.ip_local_port_range", "1024 65000")?;
        ns.sysctl("net.ipv4.tcp_tw_reuse", "1")?;
    }
    let _origins = Origins::start(&origin, ORIGIN)?;
    let gateway = Arc::new(Gateway::start(&options.binary, &uplink, ORIGIN)?);
    let policy = gateway.dir().join("soak.yml");
    std::fs::write(&policy, POLICY)?;
    let mut sandboxes = Vec::new();
    for part in ["sa", "sb", "sc", "sd"] {
        let sandbox = Ns::new(part)?;
        sandbox.sysctl("net.ipv4.ip_local_port_range", "1024 65000")?;
        sandbox.sysctl("net.ipv4.tcp_tw_reuse", "1")?;
        gateway.attach(&sandbox, &policy)?;
        sandboxes.push(Arc::new(sandbox));
    }
    let begun = Held::of(gateway.pid())?;
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(Done::default()));
    let workers = load(&sandboxes, &gateway, &stop, &done);
    let looks = look(gateway.pid(), duration);
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker
            .join()
            .map_err(|_| anyhow::anyhow!("a load thread panicked"))??;
    }
    judge(begun, &looks?, &done)
}

/// Looks at the process until the time is up.
fn look(pid: u32, duration: Duration) -> Result<Vec<Held>> {
    let (began, pause) = (Instant::now(), duration / 200);
    let mut looks = Vec::new();
    while began.elapsed() < duration {
        std::thread::park_timeout(pause);
        looks.push(Held::of(pid)?);
    }
    Ok(looks)
}

/// Prints and compares.
fn judge(begun: Held, looks: &[Held], done: &Done) -> Result<()> {
    let fifth = (looks.len() / 5).max(1);
    let part = |from: usize| {
        Held::middle(
            looks
                .get(from..(from + fifth).min(looks.len()))
                .unwrap_or_default(),
        )
    };
    let (early, middle, end) = (
        part(fifth),
        part(fifth * 2),
        part(looks.len().saturating_sub(fifth)),
    );
    println!(
        "soak: what the gateway holds\n{:<22} {:>14} {:>12} {:>8}",
        "", "resident KiB", "descriptors", "tasks"
    );
    for (when, held) in [
        ("at the start, idle", begun),
        ("after the warm-up", early),
        ("in the middle", middle),
        ("at the end", end),
    ] {
        println!(
            "{when:<22} {:>14} {:>12} {:>8}",
            held.resident_kib, held.descriptors, held.tasks
        );
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{} connections, {} resets, {} datagrams, {} policies replaced, {} networks attached and detached, {} failures",
        count(&done.connections),
        count(&done.resets),
        count(&done.datagrams),
        count(&done.replaced),
        count(&done.networks),
        count(&done.failures)
    );
    if count(&done.connections) == 0 || count(&done.replaced) == 0 || count(&done.networks) == 0 {
        bail!("a part of the load did nothing");
    }
    if count(&done.failures) > count(&done.connections) / 1000 + 10 {
        bail!(
            "{} failures are more than one in a thousand",
            count(&done.failures)
        );
    }
    for (what, before, after, may) in [
        (
            "resident memory (KiB)",
            early.resident_kib,
            end.resident_kib,
            GROWTH_KIB + early.resident_kib / 20,
        ),
        (
            "descriptors",
            early.descriptors,
            end.descriptors,
            GROWTH_COUNT,
        ),
        ("tasks", early.tasks, end.tasks, GROWTH_COUNT),
    ] {
        if after > before + may {
            bail!("not flat: {what} grew from {before} to {after}, {may} more is the limit");
        }
    }
    println!("flat");
    Ok(())
}

/// The threads of the load.
fn load(
    sandboxes: &[Arc<Ns>],
    gateway: &Arc<Gateway>,
    stop: &Arc<AtomicBool>,
    done: &Arc<Done>,
) -> Vec<JoinHandle<Result<()>>> {
    let second = Duration::from_secs(1);
    let mut workers = Vec::new();
    let mut spawn = |act: Box<dyn Fn() -> Result<()> + Send>| {
        let stop = stop.clone();
        workers.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                act()?;
            }
            Ok(())
        }));
    };
    let to = |port| SocketAddr::from((ORIGIN, port));
    if let [a, b, c, d] = sandboxes {
        let (ns, counts) = (a.clone(), done.clone());
        spawn(Box::new(move || {
            let (rate, _, failed) = connections(&ns, to(Origins::SHORT), NAME, 2, second)?;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count, rounded"
            )]
            counts.connections.fetch_add(rate as u64, Ordering::Relaxed);
            counts.failures.fetch_add(failed, Ordering::Relaxed);
            Ok(())
        }));
        let ns = b.clone();
        spawn(Box::new(move || {
            bulk(&ns, to(Origins::BULK), NAME, second).map(drop)
        }));
        let ns = b.clone();
        spawn(Box::new(move || {
            let names: Vec<String> = (0..200)
                .map(|n| format!("n{n}.example.com"))
                .chain(["never.example.org".into()])
                .collect();
            questions(&ns, SERVICE, &names, 8, second).map(drop)
        }));
        let (ns, counts) = (c.clone(), done.clone());
        spawn(Box::new(move || {
            let sent = ns.run(move || resets(to(Origins::SHORT)))?;
            counts.resets.fetch_add(sent, Ordering::Relaxed);
            Ok(())
        }));
        let (ns, counts) = (d.clone(), done.clone());
        spawn(Box::new(move || {
            let sent = ns.run(datagrams)?;
            counts.datagrams.fetch_add(sent, Ordering::Relaxed);
            Ok(())
        }));
        let (ns, gateway, counts) = (d.clone(), gateway.clone(), done.clone());
        let policy = gateway.dir().join("soak.yml").display().to_string();
        spawn(Box::new(move || {
            gateway.sallyport(&["net", "policy", &ns.name, &policy])?;
            counts.replaced.fetch_add(1, Ordering::Relaxed);
            let short = Ns::new(&format!("st{}", counts.networks.load(Ordering::Relaxed)))?;
            gateway.attach(&short, policy.as_ref())?;
            gateway.sallyport(&["net", "detach", &short.name])?;
            counts.networks.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }));
    }
    workers
}

/// Connections that are reset at once, and some to where nothing is permitted.
fn resets(to: SocketAddr) -> u64 {
    let mut sent = 0;
    for number in 0..50_u8 {
        let to = if number % 5 == 0 {
            SocketAddr::from(([10, 0, 0, number], 80))
        } else {
            to
        };
        if let Ok(stream) = TcpStream::connect_timeout(&to, Duration::from_secs(5)) {
            drop(SockRef::from(&stream).set_linger(Some(Duration::ZERO)));
            sent += 1;
        }
    }
    std::thread::park_timeout(Duration::from_millis(100));
    sent
}

/// Datagrams that begin sessions, from ports of their own; nobody answers them.
fn datagrams() -> u64 {
    let mut sent = 0;
    for port in 9000..9020 {
        if let Ok(socket) = UdpSocket::bind("0.0.0.0:0")
            && socket.send_to(&[0; 512], (ORIGIN, port)).is_ok()
        {
            sent += 1;
        }
    }
    std::thread::park_timeout(Duration::from_millis(200));
    sent
}
