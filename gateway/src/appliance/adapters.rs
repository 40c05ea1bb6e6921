//! The kernel's sockets as the doors want them: readiness from the runtime, batches, numbers for held packets.

use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;

use netpolicy::ruleset::FlowMark;
use tokio::io::unix::AsyncFd;

use crate::kernel::sockets::{DatagramDoor, Question};
use crate::kernel::{Held, Queue, Verdict, watch};
use crate::listen::dns::{Batch, Datagrams, Outgoing};
use crate::listen::gate::state::Verdict as Judged;
use crate::listen::gate::{Queued, Syn, SynQueue};

/// The queue of first SYNs.
#[derive(Debug)]
pub struct SynReader {
    queue: AsyncFd<Queue>,
    buffer: Mutex<Vec<u8>>,
}

impl SynReader {
    /// Needs the runtime's context.
    pub fn new(queue: Queue) -> io::Result<Self> {
        Ok(Self {
            queue: watch(queue)?,
            buffer: Mutex::new(Vec::with_capacity(1 << 16)),
        })
    }
}

impl SynQueue for SynReader {
    async fn receive(&self, into: &mut VecDeque<Queued>) -> io::Result<()> {
        loop {
            let mut ready = self.queue.readable().await?;
            let outcome = {
                let mut buffer = self
                    .buffer
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                self.queue.get_ref().receive(&mut buffer, |syn| {
                    let (packet, isn) = (syn.held.number(), syn.isn);
                    into.push_back(Queued::Syn(Syn {
                        packet,
                        source: syn.from,
                        destination: syn.to,
                        isn,
                    }));
                })
            };
            match outcome {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                outcome => return outcome,
            }
        }
    }

    fn judge(&self, packet: u32, verdict: Judged) -> io::Result<()> {
        let verdict = match verdict {
            Judged::Accept => Verdict::Mark(FlowMark::Deliver),
            Judged::Reset => Verdict::Mark(FlowMark::Reset),
            Judged::HostUnreachable => Verdict::Mark(FlowMark::HostUnreachable),
            Judged::NetUnreachable => Verdict::Mark(FlowMark::NoRoute),
            Judged::Prohibited => Verdict::Mark(FlowMark::Prohibited),
            Judged::Drop => Verdict::Drop,
        };
        self.queue.get_ref().decide(Held::numbered(packet), verdict)
    }
}

/// A DNS socket that answers from the address that was asked.
#[derive(Debug)]
pub struct DnsSocket {
    door: AsyncFd<DatagramDoor>,
}

impl DnsSocket {
    /// Needs the runtime's context.
    pub fn new(door: DatagramDoor) -> io::Result<Self> {
        Ok(Self { door: watch(door)? })
    }
}

impl Datagrams for DnsSocket {
    async fn receive(&self, batch: &mut Batch) -> io::Result<()> {
        loop {
            let mut ready = self.door.readable().await?;
            let mut used = 0;
            let mut emptied = false;
            for slot in batch.slots() {
                match self.door.get_ref().receive(&mut slot.buffer) {
                    // A question that does not fit is none; the next one goes into the same place.
                    Ok(question) if question.truncated => break,
                    Ok(question) => {
                        (slot.length, slot.source, slot.asked) =
                            (question.length, question.from, question.to);
                        used += 1;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        emptied = true;
                        break;
                    }
                    Err(error) if used == 0 => return Err(error),
                    Err(_) => break,
                }
            }
            if emptied {
                ready.clear_ready();
            }
            if used > 0 {
                batch.filled(used);
                return Ok(());
            }
        }
    }

    fn send(&self, replies: &[Outgoing]) {
        for reply in replies {
            let question = Question {
                length: 0,
                truncated: false,
                from: reply.to,
                to: reply.from,
            };
            if let Err(error) = self.door.get_ref().answer(&question, &reply.bytes) {
                tracing::trace!(%error, "an answer was lost");
            }
        }
    }
}
