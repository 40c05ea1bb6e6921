//! Packet capture of one network, on request: what its link carries, as pcapng.
//!
//! The gateway itself taps the outer end of the link in its own namespace, so nothing has to be let in, no other network
//! is seen and the sandbox cannot tell. Owns the stream: [`filter`] chooses frames, [`pcapng`] writes them. Bounded: few
//! captures at a time, the kernel's buffer for each; a reader that is too slow misses frames, and the file says how many.

mod filter;
pub mod pcapng;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use hyper::body::Frame;
use tokio::io::unix::AsyncFd;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::kernel::{KernelError, Ns, Statistics, Tap, watch};
use crate::network::Network;
pub use filter::{Filter, FilterError};
use pcapng::{Packet, Section};

/// Captures at a time: each may hold some megabytes of the kernel's memory.
pub const MOST: usize = 4;
/// Longest frame: a segmented one of a virtual link has up to 64 KiB and its headers.
const LONGEST: usize = 1 << 17;
/// Bytes handed on at once.
const CHUNK: usize = 1 << 16;
/// How often counts are written while they change.
const COUNT: Duration = Duration::from_secs(1);

/// What to capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Which frames.
    pub filter: Filter,
    /// After so many of them it ends.
    pub count: Option<u64>,
    /// After so long it ends.
    pub limit: Option<Duration>,
}

/// A running capture.
pub struct Capture {
    tap: AsyncFd<Tap>,
    network: Arc<Network>,
    wanted: Wanted,
    stopping: CancellationToken,
    end: Option<Instant>,
    ticks: tokio::time::Interval,
    section: Section,
    left: Option<u64>,
    counted: Statistics,
    generation: u64,
    begun: bool,
    over: bool,
    finished: bool,
    buffer: Vec<u8>,
    _place: OwnedSemaphorePermit,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The link cannot be tapped.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The runtime cannot wait for it.
    #[error("waiting for frames")]
    Wait(#[source] io::Error),
}

/// Opens the tap. Blocks for milliseconds.
pub fn tap(ns: &Ns, network: &Network) -> Result<Tap, CaptureError> {
    Ok(Tap::open(ns, &network.link)?)
}

impl Capture {
    /// Begins. Needs the runtime's context.
    pub fn begin(
        tap: Tap,
        network: Arc<Network>,
        wanted: Wanted,
        stopping: CancellationToken,
        place: OwnedSemaphorePermit,
    ) -> Result<Self, CaptureError> {
        let mut ticks = interval(COUNT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let live = network.live.load();
        let generation = live.generation.0;
        let run = network
            .run
            .as_deref()
            .map_or(String::new(), |run| format!(" of run {run}"));
        let section = Section {
            link: network.link.clone(),
            description: format!("network {}{run}", network.id),
            comment: format!("policy {} generation {generation}", live.snapshot.hash()),
            filter: wanted.filter.to_string(),
        };
        Ok(Self {
            tap: watch(tap).map_err(CaptureError::Wait)?,
            stopping,
            end: wanted.limit.map(|limit| Instant::now() + limit),
            ticks,
            section,
            left: wanted.count,
            counted: Statistics::default(),
            generation,
            begun: false,
            over: false,
            finished: false,
            buffer: vec![0; LONGEST],
            wanted,
            network,
            _place: place,
        })
    }

    /// The file, as it comes.
    pub fn stream(self) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
        stream::unfold(self, |mut capture| async move {
            let chunk = capture.next().await?;
            Some((Ok(Frame::data(chunk)), capture))
        })
    }

    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.begun, true) {
            return Some(pcapng::begin(&self.section).into());
        }
        while !self.over {
            let end = self.end;
            let until = async move {
                match end {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            let ended = self.network.ended.clone();
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => self.over = true,
                () = ended.cancelled() => self.over = true,
                () = until => self.over = true,
                _ = self.ticks.tick() => {
                    if let Some(counts) = self.count() {
                        return Some(counts);
                    }
                }
                chunk = frames(&self.tap, &mut self.buffer, &self.wanted.filter, &mut self.left) => {
                    match chunk {
                        Ok(mut chunk) => {
                            self.over = self.left == Some(0);
                            self.note_change(&mut chunk);
                            if !chunk.is_empty() {
                                return Some(chunk.into());
                            }
                        }
                        // The link went: its network is being detached.
                        Err(error) => {
                            tracing::debug!(%error, "a capture ended");
                            self.over = true;
                        }
                    }
                }
            }
        }
        self.farewell()
    }

    /// The counts, if they changed.
    fn count(&mut self) -> Option<Bytes> {
        let now = self.tap.get_mut().statistics().ok()?;
        (now != std::mem::replace(&mut self.counted, now)).then(|| written(now))
    }

    /// The counts, as the last word.
    fn farewell(&mut self) -> Option<Bytes> {
        if std::mem::replace(&mut self.finished, true) {
            return None;
        }
        // A link that is gone counts no more; what it had counted stays true.
        let now = self.tap.get_mut().statistics().unwrap_or(self.counted);
        Some(written(now))
    }

    /// A replaced policy is written down where it began to decide.
    fn note_change(&mut self, chunk: &mut Vec<u8>) {
        let live = self.network.live.load();
        if live.generation.0 != self.generation {
            self.generation = live.generation.0;
            let text = format!(
                "policy {} generation {}",
                live.snapshot.hash(),
                self.generation
            );
            chunk.extend(pcapng::remark(&text, crate::context::now_ms()));
        }
    }
}

fn written(counts: Statistics) -> Bytes {
    let at = crate::context::now_ms();
    pcapng::statistics(counts.received, counts.dropped, at).into()
}

/// Frames until the chunk is full or none waits.
async fn frames(
    tap: &AsyncFd<Tap>,
    buffer: &mut [u8],
    filter: &Filter,
    left: &mut Option<u64>,
) -> io::Result<Vec<u8>> {
    let mut chunk = Vec::new();
    let mut ready = tap.readable().await?;
    while chunk.len() < CHUNK && *left != Some(0) {
        match tap.get_ref().receive(buffer) {
            Ok(seen) => {
                let bytes = buffer.get(..seen.captured).unwrap_or_default();
                if filter.takes(bytes) {
                    *left = left.map(|left| left - 1);
                    pcapng::packet(&mut chunk, &Packet { seen, bytes });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready.clear_ready();
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(chunk)
}
