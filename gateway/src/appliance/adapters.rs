//! The kernel's sockets as the doors want them: readiness from the runtime, batches, numbers for held packets.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use netpolicy::ruleset::FlowMark;
use tokio::io::unix::AsyncFd;

use crate::kernel::datagrams::{DatagramDoor, MOST, Reply};
use crate::kernel::icmp::{Errors, Trouble};
use crate::kernel::icmp_syn::Refused;
use crate::kernel::queue::{self, Room};
use crate::kernel::{Held, Queue, Verdict, watch};
use crate::listen::dns::{Batch, Datagrams, Outgoing};
use crate::listen::gate::state::Verdict as Judged;
use crate::listen::gate::{Queued, Syn, SynQueue};

/// The queue of first SYNs.
#[derive(Debug)]
pub struct SynReader {
    queue: AsyncFd<Queue>,
    room: Mutex<Room>,
    errors: Arc<Errors>,
}

impl SynReader {
    /// Needs the runtime's context.
    pub fn new(queue: Queue, errors: Arc<Errors>) -> io::Result<Self> {
        Ok(Self {
            queue: watch(queue)?,
            room: Mutex::default(),
            errors,
        })
    }

    /// A SYN that had to end here, as at any router: told so and dropped, and nothing is dialled for it.
    fn expire(&self, syn: &queue::Syn) {
        let ended = Refused {
            from: syn.from,
            to: syn.to,
            isn: syn.isn,
        };
        self.errors.refuse(ended, Trouble::TimeExceeded);
        if let Err(error) = self.queue.get_ref().decide(syn.held, Verdict::Drop) {
            tracing::trace!(%error, "a SYN without a hop left stays held until the queue drops it");
        }
    }
}

impl SynQueue for SynReader {
    async fn receive(&self, into: &mut VecDeque<Queued>) -> io::Result<()> {
        loop {
            let mut ready = self.queue.readable().await?;
            let outcome = {
                let mut room = self
                    .room
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                self.queue.get_ref().receive(&mut room, |syn| {
                    if syn.hops <= 1 {
                        return self.expire(&syn);
                    }
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
                Err(error) => return Err(error),
                Ok(more) => {
                    if !more {
                        // empty when it was read: what comes from now on is told anew
                        ready.clear_ready();
                    }
                    return Ok(());
                }
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
            let mut questions = [None; MOST];
            let buffers = batch.slots().iter_mut().map(|slot| &mut *slot.buffer);
            match self.door.get_ref().receive_many(buffers, &mut questions) {
                Ok(received) => {
                    for (slot, question) in batch.slots().iter_mut().zip(questions).take(received) {
                        // a question that does not fit is none, and none has no octets
                        slot.length = 0;
                        if let Some(question) = question.filter(|q| !q.truncated) {
                            (slot.length, slot.source, slot.asked) =
                                (question.length, question.from, question.to);
                        }
                    }
                    batch.filled(received);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&self, replies: &[Outgoing]) {
        let replies = replies.iter().map(|reply| Reply {
            from: reply.from.ip(),
            to: reply.to,
            bytes: &reply.bytes,
        });
        let lost = self.door.get_ref().send_many(replies);
        if lost > 0 {
            tracing::trace!(lost, "answers were lost");
        }
    }
}
