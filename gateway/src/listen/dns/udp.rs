//! Questions in datagrams: whole batches are read and answered in place; only look-ups become tasks.
//!
//! A reply leaves from the address that was asked, whatever address that was. Who asks is the source address alone
//! (the kernel rules bind it to its interface); a stranger gets nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Door;
use super::answer::{Step, moment, recalled};
use super::question::{Parsed, Question, parse};
use super::reply::{self, Way};
use super::verdict::Asker;
use crate::resolve::leases::Moment;
use crate::tasks::in_turn;

/// Datagrams read at once.
const BATCH: usize = 32;
/// Longer questions are cut and then malformed; no question needs more.
const LONGEST: usize = 2048;
/// Failed reads in a row after which the door rests between them.
const PATIENCE: u32 = 16;
/// How long it rests.
const REST: Duration = Duration::from_millis(50);

/// A datagram socket that knows the original destination of what it receives and can send from it.
pub trait Datagrams: Send + Sync + 'static {
    /// Waits for datagrams and reads as many as there are, up to the batch's size.
    fn receive(&self, batch: &mut Batch) -> impl Future<Output = io::Result<()>> + Send;
    /// Sends every reply from the address that was asked. What cannot be sent at once is lost, as datagrams are.
    fn send(&self, replies: &[Outgoing]);
}

/// Received datagrams and room for them.
#[derive(Debug)]
pub struct Batch {
    slots: Vec<Slot>,
    used: usize,
}

/// One place of a [`Batch`].
#[derive(Debug)]
pub struct Slot {
    /// Room for the datagram.
    pub buffer: Box<[u8]>,
    /// Octets of it that were received.
    pub length: usize,
    /// Who sent it.
    pub source: SocketAddr,
    /// Which address it was sent to.
    pub asked: SocketAddr,
}

/// One reply.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Where to.
    pub to: SocketAddr,
    /// From which address.
    pub from: SocketAddr,
    /// The datagram.
    pub bytes: Vec<u8>,
}

impl Default for Batch {
    fn default() -> Self {
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        let slot = || Slot {
            buffer: vec![0; LONGEST].into(),
            length: 0,
            source: nobody,
            asked: nobody,
        };
        Self {
            slots: std::iter::repeat_with(slot).take(BATCH).collect(),
            used: 0,
        }
    }
}

impl Batch {
    /// All places, to be filled from the first on.
    pub fn slots(&mut self) -> &mut [Slot] {
        &mut self.slots
    }

    /// How many places were filled.
    pub fn filled(&mut self, count: usize) {
        self.used = count.min(self.slots.len());
    }

    fn received(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().take(self.used)
    }
}

/// Answers until the gateway stops.
pub(super) async fn serve<S: Datagrams>(door: Arc<Door>, socket: Arc<S>) {
    let mut batch = Batch::default();
    let mut replies: Vec<Outgoing> = Vec::with_capacity(BATCH);
    // reply buffers go round: no allocation for an answer from the cache
    let mut spare: Vec<Vec<u8>> = Vec::new();
    let mut failures = 0_u32;
    loop {
        if let Err(error) = socket.receive(&mut batch).await {
            failures = failures.saturating_add(1);
            rest(failures, &error).await;
            continue;
        }
        failures = 0;
        let time = Time {
            now: Instant::now(),
            moment: moment(&door),
        };
        for slot in batch.received() {
            let mut bytes = spare.pop().unwrap_or_default();
            bytes.clear();
            // a question that trips the door loses its own answer and nothing else
            let answered = door.ctx.tasks.contain("a DNS question", || {
                answer(&door, &socket, slot, time, &mut bytes);
            });
            if answered.is_none() || bytes.is_empty() {
                spare.push(bytes);
            } else {
                replies.push(Outgoing {
                    to: slot.source,
                    from: slot.asked,
                    bytes,
                });
            }
        }
        // neighbours with the same ends and length are cheaper to send
        replies.sort_unstable_by_key(|reply| {
            (reply.to, reply.from, std::cmp::Reverse(reply.bytes.len()))
        });
        socket.send(&replies);
        spare.extend(replies.drain(..).map(|reply| reply.bytes));
        in_turn().await;
    }
}

/// Waits after a failed read. The first may be an ICMP error of an earlier reply, with the socket itself fine; a socket that
/// goes on failing must not take a processor.
async fn rest(failures: u32, error: &io::Error) {
    if failures == PATIENCE {
        tracing::warn!(%error, "questions cannot be received; trying on");
    } else {
        tracing::debug!(%error, "receiving questions failed");
    }
    if failures < PATIENCE {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(REST).await;
    }
}

/// When a batch is answered.
#[derive(Clone, Copy)]
struct Time {
    now: Instant,
    moment: Moment,
}

/// Answers one datagram into `out`, or leaves it empty: nothing to say, or a look-up will say it.
fn answer<S: Datagrams>(
    door: &Arc<Door>,
    socket: &Arc<S>,
    slot: &Slot,
    time: Time,
    out: &mut Vec<u8>,
) {
    let Some(network) = door.ctx.networks.by_source(slot.source.ip().to_canonical()) else {
        return;
    };
    let clock = time.now.saturating_duration_since(door.started);
    if !network.leases.pace().question(&door.settings.paces, clock) {
        return;
    }
    let bytes = slot.buffer.get(..slot.length).unwrap_or_default();
    let question = match parse(bytes) {
        Parsed::Ask(question) => question,
        Parsed::Refuse(head, code, raw) => {
            door.answered(code);
            return reply::refuse(out, head, code, raw);
        }
        Parsed::Ignore => return,
    };
    #[cfg(test)]
    door.ctx.tasks.pass_tripwire("a DNS question");
    if let Some(answer) = recalled(door, &network, &question, (time.moment, time.now)) {
        return door.write(out, &question, &answer, Way::Udp);
    }
    let asker = Asker::new(door, &network, slot.source, Way::Udp);
    let permitted = match asker.at_once(&question) {
        Step::Say(answer) => return door.write(out, &question, &answer, Way::Udp),
        Step::LookUp(permitted) => permitted,
    };
    let Some(place) = network
        .leases
        .pace()
        .lookup(&door.settings.paces, door.clock())
    else {
        return door.write(out, &question, &asker.too_fast(&permitted), Way::Udp);
    };
    let (door, socket, network) = (door.clone(), socket.clone(), network.clone());
    let (raw, head, kind) = (question.raw.to_vec(), question.head, question.kind);
    let (source, asked) = (slot.source, slot.asked);
    let tasks = door.ctx.tasks.clone();
    tasks.spawn("dns look-up", async move {
        let _place = place;
        let asker = Asker::new(&door, &network, source, Way::Udp);
        let question = Question {
            head,
            raw: &raw,
            kind,
        };
        let answer = asker.look_up(&permitted).await;
        let mut bytes = Vec::with_capacity(128);
        door.write(&mut bytes, &question, &answer, Way::Udp);
        socket.send(&[Outgoing {
            to: source,
            from: asked,
            bytes,
        }]);
    });
}
