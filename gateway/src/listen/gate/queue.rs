//! The kernel's queue of first SYNs, as the gate reads it.

use std::collections::VecDeque;
use std::io;

use netpolicy::ruleset::FlowMark;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::state::Verdict;
use super::{Queued, Syn, SynQueue};
use crate::kernel::queue::{self, Held, Queue};

/// Datagrams read before their verdicts are sent: one flood must not keep the first of them waiting.
const MOST_AT_ONCE: usize = 64;

impl SynQueue for AsyncFd<Queue> {
    async fn receive(&self, scratch: &mut Vec<u8>, into: &mut VecDeque<Queued>) -> io::Result<()> {
        loop {
            let mut ready = self.ready(Interest::READABLE).await?;
            while into.len() < MOST_AT_ONCE {
                match self
                    .get_ref()
                    .receive(scratch, |syn| into.push_back(queued(syn)))
                {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready.clear_ready();
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            if !into.is_empty() {
                return Ok(());
            }
        }
    }

    fn judge(&self, packet: u32, verdict: Verdict) -> io::Result<()> {
        self.get_ref().decide(Held::numbered(packet), mark(verdict))
    }
}

fn queued(syn: queue::Syn) -> Queued {
    Queued::Syn(Syn {
        packet: syn.held.number(),
        source: syn.from,
        destination: syn.to,
        isn: syn.isn,
    })
}

fn mark(verdict: Verdict) -> queue::Verdict {
    match verdict {
        Verdict::Accept => queue::Verdict::Mark(FlowMark::Deliver),
        Verdict::Reset => queue::Verdict::Mark(FlowMark::Reset),
        Verdict::HostUnreachable => queue::Verdict::Mark(FlowMark::HostUnreachable),
        Verdict::NetUnreachable => queue::Verdict::Mark(FlowMark::NoRoute),
        Verdict::Prohibited => queue::Verdict::Mark(FlowMark::Prohibited),
        Verdict::Drop => queue::Verdict::Drop,
    }
}
