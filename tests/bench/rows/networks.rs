//! Attach, detach, policy change and memory, with few and with a thousand networks.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context, Result};
use gateway::control::{AttachRequest, Client, PolicySource};
use netpolicy::ids::NetworkId;

use super::{Figure, Row, Table, median};
use crate::Options;
use crate::gateway::Gateway;
use crate::topology::Ns;

/// How many networks "many" means.
const MANY: usize = 1000;

/// Rows on attach, detach, policy change and memory.
pub fn networks(options: &Options, table: &mut Table) -> Result<()> {
    if !options.wants(&["attach", "detach", "policy change", "memory"]) {
        return Ok(());
    }
    let uplink = Ns::new("nets")?;
    let gateway = Gateway::start(&options.binary, &uplink, Ipv4Addr::new(93, 184, 216, 34))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure(options, table, &gateway))
}

async fn measure(options: &Options, table: &mut Table, gateway: &Gateway) -> Result<()> {
    let client = Client::connect(gateway.control()).await?;
    let idle_kib = gateway.resident_kib()?;
    let mut next = 0;
    let first = attach_and_detach(&client, &mut next, options.reps * 4).await?;
    let before_kib = gateway.resident_kib()?;
    let mut many = Vec::new();
    for _ in 0..MANY {
        many.push(attach(&client, &mut next).await?.0);
    }
    let full_kib = gateway.resident_kib()?;
    let later = attach_and_detach(&client, &mut next, options.reps * 4).await?;
    let mut changes = replace_each(&client, &many).await?;
    for id in &many {
        client.detach(id).await?;
    }
    changes.sort_by(f64::total_cmp);
    let p99 = changes
        .get(changes.len() * 99 / 100)
        .copied()
        .unwrap_or(f64::NAN);
    let figure = |who, median| Figure { who, median };
    table.add(Row {
        title: "attach",
        unit: "ms",
        aim: "under 10 ms, as fast at 1,000 as at 0",
        figures: vec![
            figure("with 1,000 networks", later.0),
            figure("with none", first.0),
        ],
    });
    table.add(Row {
        title: "detach to closed",
        unit: "ms",
        aim: "under 50 ms",
        figures: vec![
            figure("with 1,000 networks", later.1),
            figure("with none", first.1),
        ],
    });
    table.add(Row {
        title: "policy change to enforcement, 1,000 networks",
        unit: "ms",
        aim: "99th percentile under 50 ms",
        figures: vec![
            figure("99th percentile", p99),
            figure("median", median(changes)),
        ],
    });
    let each = full_kib.saturating_sub(before_kib) as f64 / MANY as f64;
    table.add(Row {
        title: "gateway memory, resident",
        unit: "KiB",
        aim: "30,720 idle, 64 for each idle network",
        figures: vec![
            figure("idle", idle_kib as f64),
            figure("each idle network", each),
        ],
    });
    Ok(())
}

/// A namespace that nobody names, held by its descriptor.
fn fresh_namespace() -> Result<OwnedFd> {
    let made = std::thread::spawn(|| -> Result<OwnedFd> {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)?;
        Ok(File::open("/proc/thread-self/ns/net")?.into())
    });
    made.join()
        .map_err(|_| anyhow::anyhow!("a thread panicked"))?
}

async fn attach(client: &Client, next: &mut usize) -> Result<(NetworkId, f64)> {
    *next += 1;
    let request = AttachRequest {
        via: gateway::control::api::Via::Link,
        id: Some(format!("bench-{next}").parse()?),
        run: None,
        workspace: "bench".into(),
        policy: PolicySource::Preset("domains".into()),
        broker: None,
        member: None,
        labels: std::collections::BTreeMap::new(),
    };
    let namespace = fresh_namespace()?;
    let start = Instant::now();
    let view = client
        .attach(&request, namespace)
        .await
        .context("attaching")?;
    Ok((view.id, start.elapsed().as_secs_f64() * 1e3))
}

async fn attach_and_detach(client: &Client, next: &mut usize, times: usize) -> Result<(f64, f64)> {
    let (mut attached, mut detached) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let (id, took) = attach(client, next).await?;
        attached.push(took);
        let start = Instant::now();
        client.detach(&id).await?;
        detached.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok((median(attached), median(detached)))
}

async fn replace_each(client: &Client, networks: &[NetworkId]) -> Result<Vec<f64>> {
    let mut took = Vec::new();
    for id in networks {
        let start = Instant::now();
        client
            .replace_policy(id, &PolicySource::Preset("internet".into()))
            .await?;
        took.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(took)
}
