//! One decision under a policy of ten thousand rules.

use std::fmt::Write;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use netpolicy::addr::AddressBook;
use netpolicy::decide::{
    Connect, Destination, Direction, Intent, LayerKind, OwnListeners, Snapshot, decide_connect,
};
use netpolicy::ids::UnixSeconds;
use netpolicy::name::Name;
use netpolicy::policy::Protocol;

use super::{Figure, Row, Table, median};
use crate::Options;

const RULES: usize = 10_000;

/// The row on decisions.
pub fn decisions(options: &Options, table: &mut Table) -> Result<()> {
    if !options.wants(&["decision"]) {
        return Ok(());
    }
    let mut text = String::from("policy: many\nnetwork: domains\nallow:\n");
    for i in 0..RULES / 2 {
        let _ = writeln!(text, "  - host: h{i}.example.com");
        let _ = writeln!(text, "  - host: \"*.w{i}.example.net\"");
    }
    let policy = netpolicy::document::parse("many.yml", &text, None)
        .ok()
        .context("the bench policy has mistakes")?;
    let snapshot = Snapshot::new(
        vec![(LayerKind::Job, Arc::new(policy))],
        Arc::new(AddressBook::default()),
        Arc::new(OwnListeners::default()),
    );
    let intents: Vec<Intent> = (0..1000)
        .map(|i| -> Result<Intent> {
            Ok(Intent {
                direction: Direction::Egress,
                protocol: Protocol::Tcp,
                port: 443,
                to: Destination::Name {
                    name: Name::parse(&format!("a.b.w{}.example.net", i * 4))?,
                    answers: Some(vec![[93, 184, 216, 34].into()].into()),
                },
            })
        })
        .collect::<Result<_>>()?;
    let mut times = Vec::new();
    for _ in 0..options.reps {
        let start = Instant::now();
        for intent in &intents {
            let outcome = decide_connect(black_box(&snapshot), black_box(intent), UnixSeconds(0));
            anyhow::ensure!(
                matches!(outcome, Connect::Dial(_)),
                "the bench decision is not a permit"
            );
        }
        times.push(start.elapsed().as_secs_f64() * 1e6 / intents.len() as f64);
    }
    table.add(Row {
        title: "one decision, 10,000 rules",
        unit: "us",
        aim: "under 5",
        figures: vec![Figure {
            who: "decide_connect",
            median: median(times),
        }],
    });
    shapes(options, table);
    Ok(())
}

/// The heaviest policies that may be written, each by itself.
fn shapes(options: &Options, table: &mut Table) {
    const ROUNDS: u32 = 1_000;
    let micros = |took: std::time::Duration| took.as_secs_f64() * 1e6;
    let (mut connects, mut bytes) = (Vec::new(), Vec::new());
    for shape in lab::heaviest::shapes() {
        let reps = || 0..options.reps;
        let figure = |times: Vec<f64>| Figure {
            who: shape.name,
            median: median(times),
        };
        connects.push(figure(
            reps().map(|_| micros(shape.connect(ROUNDS))).collect(),
        ));
        let judged: Vec<f64> = (reps().filter_map(|_| shape.bytes(ROUNDS)))
            .map(micros)
            .collect();
        if !judged.is_empty() {
            bytes.push(figure(judged));
        }
    }
    for (title, figures) in [
        ("one decision on a connect, the heaviest policies", connects),
        ("one decision on first bytes, the heaviest policies", bytes),
    ] {
        table.add(Row {
            title,
            unit: "us",
            aim: "under 5",
            figures,
        });
    }
}
