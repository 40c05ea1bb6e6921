//! The kernel's queue of first SYNs, as the gate sees it, and the two tasks that serve it.

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Gate;
use super::state::Verdict;
use crate::context::Context;
use crate::tasks::in_turn;

/// How often held and ready entries are looked at; a quarter of the shortest time that matters to a sender.
const TICK: Duration = Duration::from_millis(250);
/// After a failed read of the queue.
const BACK_OFF: Duration = Duration::from_millis(50);

/// A first SYN from the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Syn {
    /// The kernel's id of the held packet.
    pub packet: u32,
    /// Sandbox side.
    pub source: SocketAddr,
    /// What it addressed.
    pub destination: SocketAddr,
    /// Initial sequence number.
    pub isn: u32,
}

/// What a queue delivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queued {
    /// A first SYN.
    Syn(Syn),
    /// A packet that cannot be read as one.
    Other(u32),
}

/// The kernel's queue of first SYNs.
pub trait SynQueue: Send + Sync + 'static {
    /// Waits for packets and appends them.
    fn receive(
        &self,
        into: &mut VecDeque<Queued>,
    ) -> impl Future<Output = std::io::Result<()>> + Send;
    /// Answers one packet.
    fn judge(&self, packet: u32, verdict: Verdict) -> std::io::Result<()>;
}

/// Serves a queue until the gateway stops.
pub fn serve_gate(ctx: &Context, queue: impl SynQueue) -> Arc<Gate> {
    let queue = Arc::new(queue);
    let judging = queue.clone();
    let gate = Arc::new(Gate::new(
        ctx.clone(),
        Box::new(move |packet, verdict| judging.judge(packet, verdict)),
    ));
    let (reader, ticker) = (gate.clone(), gate.clone());
    ctx.tasks.keep("syn queue", async move {
        let mut queued = VecDeque::new();
        loop {
            if let Err(error) = queue.receive(&mut queued).await {
                tracing::error!(%error, "reading the queue of first SYNs");
                tokio::time::sleep(BACK_OFF).await;
            }
            for packet in queued.drain(..) {
                reader.read(packet);
            }
            in_turn().await;
        }
    });
    ctx.tasks.keep("syn gate clock", async move {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            ticks.tick().await;
            let (tasks, ticker) = (ticker.ctx.tasks.clone(), &ticker);
            tasks.contain("the clock of the gate", || {
                let effects = ticker.table().tick(ticker.now());
                ticker.apply(effects);
            });
        }
    });
    gate
}
