//! The SYN gate: a first SYN waits in the kernel's queue while the gateway decides and dials, so a connect is honest.
//!
//! A refused port is refused, a dead host times out, a denied one is reset at once. The states are in [`state`]; this file
//! ties them to networks, budgets, decisions, dials and the queue. Invariant: an accepted socket is paired with what its own
//! SYN led to, or reset. Failure stance: silence. Whoever has no verdict is dropped by the kernel.

mod event;
mod queue;
pub mod state;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netpolicy::decide::{Connect, Denial, Intent};
use netpolicy::policy::Speaks;
use netpolicy::reason::Reason;
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::flow::{self, Accepted, Decided, Origin, Reach, Unreached};
use super::route::intent_to;
use super::tcp::canonical;
use crate::context::Context;
use crate::limits::FlowSlot;
use crate::network::Network;
use crate::network::flows::Door;
use crate::relay::{Early, Waits, plain_denial, reset};
use state::{Arrival, Bounds, Effect, Key, Outcome, Table, Verdict};

pub use queue::{Queued, Syn, SynQueue, serve_gate};

type Judge = Box<dyn Fn(u32, Verdict) -> std::io::Result<()> + Send + Sync>;

/// What an attempt owns: dropping it ends its task and gives its place back.
#[derive(Debug)]
struct Attempt {
    slot: FlowSlot,
    origin: Origin,
    _task: DropGuard,
}

/// What an accepted socket is paired with.
#[derive(Debug)]
struct Pairing {
    intent: Intent,
    reach: Reach,
}

/// The gate of one gateway.
pub struct Gate {
    ctx: Context,
    judge: Judge,
    table: Mutex<Table<Attempt, Pairing>>,
    /// Networks whose end is waited for.
    watched: Mutex<HashSet<u64>>,
    began: Instant,
    unpaired: AtomicU64,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate")
            .field("unpaired", &self.unpaired)
            .finish_non_exhaustive()
    }
}

/// Closes its entry when the relay is over, however it ends.
struct Closing {
    gate: Arc<Gate>,
    serial: u64,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.gate.table().close(self.serial);
    }
}

impl Gate {
    fn new(ctx: Context, judge: Judge) -> Self {
        let bounds = Bounds {
            total: ctx.ceilings.most_dials().max(1),
            ..Bounds::default()
        };
        Self {
            ctx,
            judge,
            table: Mutex::new(Table::new(bounds)),
            watched: Mutex::default(),
            began: Instant::now(),
            unpaired: AtomicU64::new(0),
        }
    }

    /// Sockets that were accepted without a verdict that led to them, and reset.
    pub fn unpaired(&self) -> u64 {
        self.unpaired.load(Ordering::Relaxed)
    }

    fn table(&self) -> MutexGuard<'_, Table<Attempt, Pairing>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn apply(&self, effects: Vec<Effect<Pairing>>) {
        for effect in effects {
            match effect {
                Effect::Verdict(packet, verdict) => self.answer(packet, verdict),
                Effect::Discard(Pairing {
                    reach: Reach::Dialled(dialled, _),
                    ..
                }) => reset(&dialled.stream),
                Effect::Discard(Pairing {
                    reach: Reach::Hear(_),
                    ..
                }) => {}
            }
        }
    }

    fn answer(&self, packet: u32, verdict: Verdict) {
        if let Err(error) = (self.judge)(packet, verdict) {
            // the packet stays held until the queue drops it: silence, as for any other failure
            tracing::warn!(%error, packet, "answering a first SYN");
        }
    }

    /// A packet came out of the queue. One that makes the gate panic is dropped by itself: its sender may try again, and
    /// everybody else's packets are read on.
    fn read(self: &Arc<Self>, queued: Queued) {
        let read = self
            .ctx
            .tasks
            .contain("a first SYN", || self.arrived(queued));
        if read.is_none() {
            let (Queued::Syn(Syn { packet, .. }) | Queued::Other(packet)) = queued;
            self.answer(packet, Verdict::Drop);
        }
    }

    /// Judges a packet.
    fn arrived(self: &Arc<Self>, queued: Queued) {
        let syn = match queued {
            Queued::Syn(syn) => syn,
            Queued::Other(packet) => return self.answer(packet, Verdict::Drop),
        };
        let key = (canonical(syn.source), canonical(syn.destination));
        let Some(network) = self.ctx.networks.by_source(key.0.ip()) else {
            return self.answer(syn.packet, Verdict::Drop);
        };
        let origin = self.origin(network, key);
        if !self.ctx.may_pass(&origin.network) {
            let intent = intent_to(&origin.network, key.1);
            origin.record_denial(&intent, &plain_denial(Reason::GatewaySealed), None);
            return self.answer(syn.packet, Verdict::Reset);
        }
        let arrival = Arrival {
            key,
            isn: syn.isn,
            packet: syn.packet,
            network: number(&origin.network),
        };
        let (outcome, effects) = {
            let mut table = self.table();
            // with the table in hand: the worst moment for a panic
            #[cfg(test)]
            self.ctx.tasks.pass_tripwire("a first SYN");
            table.syn(arrival, self.now())
        };
        self.apply(effects);
        if let Outcome::New(serial) = outcome {
            self.attempt(serial, origin);
        }
    }

    fn origin(&self, network: Arc<Network>, (source, destination): Key) -> Origin {
        Origin {
            ctx: self.ctx.clone(),
            network,
            door: Door::Tcp,
            source,
            destination,
            waits: Waits::default(),
        }
    }

    /// Decides a new attempt as far as the SYN alone allows, and dials if that is the decision.
    fn attempt(self: &Arc<Self>, serial: u64, origin: Origin) {
        let intent = intent_to(&origin.network, origin.destination);
        let slot = match self.admit(serial, &origin) {
            Ok(slot) => slot,
            Err(reason) => return self.deny(serial, &origin, &intent, &plain_denial(reason)),
        };
        let decided = Decided::now(&origin, &intent);
        let speaks = match &decided.connect {
            Connect::Deny(denial) => return self.deny(serial, &origin, &intent, denial),
            Connect::Hear(speaks) => Some(*speaks),
            Connect::Dial(_) | Connect::LookUp(_) => None,
        };
        let token = CancellationToken::new();
        let attempt = Attempt {
            slot,
            origin: origin.clone(),
            _task: token.clone().drop_guard(),
        };
        if self.table().own(serial, attempt).is_err() {
            return;
        }
        match speaks {
            Some(speaks) => {
                self.hear(serial, intent, speaks);
                self.watch(&origin.network);
            }
            None => self.dial(serial, origin, (intent, decided), token),
        }
    }

    /// Sees to it that nothing waits to be accepted for a network that has ended: its places are others' from then on.
    /// Called when the entry is ready, so that it is seen by whoever watches already.
    fn watch(self: &Arc<Self>, network: &Arc<Network>) {
        let number = number(network);
        if !self.watched().insert(number) {
            return;
        }
        let (gate, network) = (self.clone(), network.clone());
        self.ctx.tasks.spawn("a network's end", async move {
            network.ended.cancelled().await;
            gate.watched().remove(&number);
            let effects = gate.table().forget(number);
            gate.apply(effects);
        });
    }

    fn watched(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, serial: u64, intent: Intent, speaks: Speaks) {
        let effects = self.table().ready(
            serial,
            Pairing {
                intent,
                reach: Reach::Hear(speaks),
            },
            self.now(),
        );
        self.apply(effects);
    }

    fn dial(
        self: &Arc<Self>,
        serial: u64,
        origin: Origin,
        (mut intent, decided): (Intent, Decided),
        token: CancellationToken,
    ) {
        let gate = self.clone();
        self.ctx.tasks.spawn("dial", async move {
            let reached = tokio::select! {
                biased;
                () = token.cancelled() => return,
                reached = flow::reach_on(&origin, &mut intent, decided) => reached,
            };
            gate.settle(serial, &origin, intent, reached);
        });
    }

    fn settle(
        self: &Arc<Self>,
        serial: u64,
        origin: &Origin,
        intent: Intent,
        reached: Result<Reach, Unreached>,
    ) {
        match reached {
            Ok(reach) => {
                let effects = self
                    .table()
                    .ready(serial, Pairing { intent, reach }, self.now());
                self.apply(effects);
                self.watch(&origin.network);
            }
            Err(Unreached::Denied(denial, _)) => self.deny(serial, origin, &intent, &denial),
            Err(Unreached::Cause(reason)) => {
                self.deny(serial, origin, &intent, &plain_denial(reason));
            }
            Err(Unreached::Failed(failed)) => {
                origin.record_failure(&intent, &failed);
                self.refuse(serial, verdict_of(failed.reason, failed.errno));
            }
            Err(Unreached::Gone) => self.refuse(serial, Verdict::Drop),
        }
    }

    /// A place among the network's flows. Attempts hold places too; the oldest of them makes room, so a scan of silent
    /// hosts starves only itself.
    fn admit(&self, serial: u64, origin: &Origin) -> Result<FlowSlot, Reason> {
        let ledger = &origin.network.ledger;
        let admitted = ledger.admit(&self.ctx.ceilings);
        if admitted.as_ref().err() != Some(&Reason::LimitFlows) {
            return admitted;
        }
        let dropped = self.table().drop_oldest(number(&origin.network), serial);
        let Some(effects) = dropped else {
            return admitted;
        };
        self.apply(effects);
        ledger.place(&self.ctx.ceilings)
    }

    fn deny(&self, serial: u64, origin: &Origin, intent: &Intent, denial: &Denial) {
        origin.record_denial(intent, denial, None);
        self.refuse(serial, Verdict::Reset);
    }

    fn refuse(&self, serial: u64, verdict: Verdict) {
        let effects = self.table().refuse(serial, verdict);
        self.apply(effects);
    }

    /// A socket was accepted.
    pub(crate) fn accepted(self: &Arc<Self>, client: TcpStream, key: Key) {
        let found = self.table().accept(key);
        let Some((serial, attempt, Pairing { intent, reach })) = found else {
            self.unpaired.fetch_add(1, Ordering::Relaxed);
            return reset(&client);
        };
        let closing = Closing {
            gate: self.clone(),
            serial,
        };
        let Some(Attempt {
            slot,
            origin,
            _task: task,
        }) = attempt
        else {
            return reset(&client);
        };
        let accepted = Accepted {
            origin,
            client,
            intent,
            slot,
        };
        self.ctx.tasks.spawn("tcp flow", async move {
            let _closing = closing;
            drop(task);
            flow::run(accepted, reach, Early::default()).await;
        });
    }
}

/// What the kernel said to the dial is what it says to the sandbox.
fn verdict_of(reason: Reason, errno: Option<i32>) -> Verdict {
    match (reason, errno) {
        (Reason::UpstreamRefused, _) => Verdict::Reset,
        (Reason::NameUnresolvable, _) | (_, Some(libc::EHOSTUNREACH | libc::EHOSTDOWN)) => {
            Verdict::HostUnreachable
        }
        (_, Some(libc::ENETUNREACH)) => Verdict::NetUnreachable,
        (_, Some(libc::EACCES | libc::EPERM)) => Verdict::Prohibited,
        _ => Verdict::Drop,
    }
}

/// A number that no other live network has: its place in memory, which attempts keep alive.
fn number(network: &Arc<Network>) -> u64 {
    Arc::as_ptr(network) as usize as u64
}
