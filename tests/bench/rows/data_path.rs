//! Streams, connections and DNS through the gateway, beside nginx, HAProxy, dnsmasq and bare veth pairs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::time::Duration;

use anyhow::Result;

use super::{Costs, Row, Table, in_turn};
use crate::gateway::Gateway;
use crate::load::{Origins, bulk, connections, look_up, questions};
use crate::topology::{DIRECT, Ns, ORIGIN, Square};
use crate::{Options, peers};

/// The proxy namespace as its clients see it.
const PROXY: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 2);
const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));
const NAME: &str = "bench.example.com";

/// The square with its origins; thousands of connections a second must not run out of ports.
struct World {
    square: Square,
    _origins: Origins,
}

impl World {
    fn new() -> Result<Self> {
        let square = Square::new("")?;
        for ns in [
            &square.client,
            &square.proxy,
            &square.sandbox,
            &square.origin,
        ] {
            ns.sysctl("net.ipv4.ip_local_port_range", "1024 65000")?;
            ns.sysctl("net.ipv4.tcp_tw_reuse", "1")?;
            ns.sysctl("net.core.somaxconn", "4096")?;
        }
        let origins = Origins::start(&square.origin, ORIGIN)?;
        Ok(Self {
            square,
            _origins: origins,
        })
    }
}

impl Deref for World {
    type Target = Square;

    fn deref(&self) -> &Square {
        &self.square
    }
}

/// Rows one to three of the cost table.
pub fn data_path(options: &Options, table: &mut Table) -> Result<()> {
    if !options.wants(&["stream", "connections", "DNS"]) {
        return Ok(());
    }
    let world = World::new()?;
    let gateway = Gateway::start(&options.binary, &world.proxy, ORIGIN)?;
    let policy = gateway.dir().join("bench.yml");
    std::fs::write(
        &policy,
        format!(
            "policy: bench\nnetwork: domains\nallow:\n  - host: {NAME}\n    ports: [443, 8443]\n    speaks: tls\n  - host: \"*.{NAME}\"\n\
             limits: {{ flows: 20000, rate: 1000000, names: 5000 }}\n"
        ),
    )?;
    gateway.attach(&world.sandbox, &policy)?;
    let lease = look_up(&world.sandbox, SERVICE, NAME)?;
    let ours = (gateway.pid(), lease);
    streams(options, table, &world, ours)?;
    short_connections(options, table, &world, ours)?;
    dns(options, table, &world)
}

fn streams(
    options: &Options,
    table: &mut Table,
    world: &World,
    (pid, lease): (u32, Ipv4Addr),
) -> Result<()> {
    if !options.wants(&["stream"]) {
        return Ok(());
    }
    let run = Duration::from_secs(2);
    let to = |ip: Ipv4Addr| SocketAddr::from((ip, Origins::BULK));
    let costs = Costs::new(run);
    // a client in a namespace, and the process between it and the origin
    let measure =
        |who, between, ns: &Ns, ip| costs.beside(who, between, || bulk(ns, to(ip), NAME, run));
    let mut figures = in_turn(
        options.reps,
        vec![
            (
                "gateway",
                Box::new(|| measure("gateway", Some(pid), &world.sandbox, lease)),
            ),
            (
                "bare veth pair",
                Box::new(|| measure("bare veth pair", None, &world.client, DIRECT)),
            ),
            (
                "kernel-routed veth",
                Box::new(|| measure("kernel-routed veth", None, &world.client, ORIGIN)),
            ),
        ],
    )?;
    for (who, start) in [
        ("nginx stream", peers::nginx as fn(&Ns, Ipv4Addr) -> _),
        ("HAProxy, TCP, splice", peers::haproxy),
    ] {
        let peer = start(&world.proxy, ORIGIN)?;
        let through = || measure(who, Some(peer.pid()), &world.client, PROXY);
        figures.extend(in_turn(options.reps, vec![(who, Box::new(through))])?);
    }
    table.add(Row {
        title: "one TLS stream, passed",
        unit: "Gbit/s",
        aim: "ahead of nginx and HAProxy; 0.65 of bare veth",
        figures,
    });
    let titles = [
        "one TLS stream, passed: CPU time of the process between",
        "one TLS stream, passed: CPU time with both ends",
    ];
    for row in costs.rows(titles, "us a Gbit") {
        table.add(row);
    }
    Ok(())
}

fn short_connections(
    options: &Options,
    table: &mut Table,
    world: &World,
    (pid, lease): (u32, Ipv4Addr),
) -> Result<()> {
    if !options.wants(&["connections"]) {
        return Ok(());
    }
    let run = Duration::from_secs(3);
    let to = |ip: Ipv4Addr| SocketAddr::from((ip, Origins::SHORT));
    let rate = |ns: &Ns, ip: Ipv4Addr| -> Result<f64> {
        let (rate, _, failed) = connections(ns, to(ip), NAME, 32, run)?;
        if failed > 0 {
            eprintln!("    {failed} connections failed");
        }
        Ok(rate)
    };
    let costs = Costs::new(run);
    let measure = |who, between, ns: &Ns, ip| costs.beside(who, between, || rate(ns, ip));
    let mut figures = in_turn(
        options.reps,
        vec![
            (
                "gateway, SYN queue",
                Box::new(|| measure("gateway, SYN queue", Some(pid), &world.sandbox, lease)),
            ),
            (
                "bare veth pair",
                Box::new(|| measure("bare veth pair", None, &world.client, DIRECT)),
            ),
        ],
    )?;
    for (who, start) in [
        ("nginx stream", peers::nginx as fn(&Ns, Ipv4Addr) -> _),
        ("HAProxy, TCP", peers::haproxy),
    ] {
        let peer = start(&world.proxy, ORIGIN)?;
        let through = || measure(who, Some(peer.pid()), &world.client, PROXY);
        figures.extend(in_turn(options.reps, vec![(who, Box::new(through))])?);
    }
    table.add(Row {
        title: "new TLS connections, passed, 32 at once",
        unit: "a second",
        aim: "ahead of HAProxy in TCP mode",
        figures,
    });
    let titles = [
        "new TLS connections, passed: CPU time of the process between",
        "new TLS connections, passed: CPU time with both ends",
    ];
    for row in costs.rows(titles, "us each") {
        table.add(row);
    }
    let mut latency = Vec::new();
    for (who, ns, ip) in [
        ("gateway, SYN queue", &world.sandbox, lease),
        ("bare veth pair", &world.client, DIRECT),
    ] {
        latency.extend(in_turn(
            options.reps,
            vec![(
                who,
                Box::new(move || Ok(connections(ns, to(ip), NAME, 1, run)?.1)),
            )],
        )?);
    }
    table.add(Row {
        title: "connections one after another, connect to end",
        unit: "us, median",
        aim: "printed",
        figures: latency,
    });
    Ok(())
}

fn dns(options: &Options, table: &mut Table, world: &World) -> Result<()> {
    if !options.wants(&["DNS"]) {
        return Ok(());
    }
    let run = Duration::from_secs(2);
    let names: Vec<String> = (0..100).map(|i| format!("n{i}.{NAME}")).collect();
    let mut figures = in_turn(
        options.reps,
        vec![(
            "gateway",
            Box::new(|| questions(&world.sandbox, SERVICE, &names, 64, run)),
        )],
    )?;
    let _peer = peers::dnsmasq(&world.proxy, ORIGIN)?;
    let ask = || questions(&world.client, IpAddr::V4(PROXY), &names, 64, run);
    figures.extend(in_turn(options.reps, vec![("dnsmasq", Box::new(ask))])?);
    table.add(Row {
        title: "DNS answers, cached names",
        unit: "a second",
        aim: "ahead of dnsmasq",
        figures,
    });
    Ok(())
}
