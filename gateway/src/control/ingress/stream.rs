//! An open way in: its bytes counted, paced and passed on, its end recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use netpolicy::reason::Reason;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::subject;
use crate::context::{Context, now_ms};
use crate::limits::FlowSlot;
use crate::network::Network;
use crate::network::flows::{Flow, FlowGuard};
use crate::record::entry::{Close, Entry};

/// Bytes moved at once in each direction.
const BUFFER: usize = 32 << 10;
/// A way in on which no byte ever moved is ended after this time, as a way out is.
const SILENT: Duration = Duration::from_mins(10);

/// An open way in.
pub(super) struct WayIn {
    pub(super) ctx: Context,
    pub(super) network: Arc<Network>,
    pub(super) guard: FlowGuard,
    pub(super) slot: FlowSlot,
}

impl WayIn {
    /// Moves bytes until either side, a limit or the gateway ends it; writes the end down.
    pub(super) async fn relay(self, inside: TcpStream, upgrade: OnUpgrade) {
        let flow = self.guard.flow.clone();
        let end = tokio::select! {
            biased;
            () = flow.cut.cancelled() => flow.cause().unwrap_or(Reason::RunEnded).code(),
            () = self.network.ended.cancelled() => Reason::RunEnded.code(),
            end = self.converse(inside, upgrade) => end,
        };
        self.close(&flow, end);
        drop(self.slot);
    }

    async fn converse(&self, mut inside: TcpStream, upgrade: OnUpgrade) -> &'static str {
        let Ok(outside) = upgrade.await.map(TokioIo::<Upgraded>::new) else {
            return "reset";
        };
        let (mut from_outside, mut to_outside) = tokio::io::split(outside);
        let (mut from_inside, mut to_inside) = inside.split();
        let flow = &self.guard.flow;
        let ledger = &self.network.ledger;
        let up = copy(&mut from_inside, &mut to_outside, &flow.up, |bytes| {
            ledger.upload(bytes).map(|()| ledger.pace_up(bytes))
        });
        let down = copy(&mut from_outside, &mut to_inside, &flow.down, |bytes| {
            ledger.download(bytes).map(|()| ledger.pace_down(bytes))
        });
        let moved = async { tokio::try_join!(up, down) };
        let moved = tokio::select! {
            moved = moved => moved,
            () = silence([&flow.up, &flow.down], SILENT) => return "idle",
        };
        match moved {
            Ok(_) => "client_closed",
            Err(Stop::Broken) => "reset",
            Err(Stop::Budget(reason)) => reason.code(),
        }
    }

    fn close(&self, flow: &Flow, end: &str) {
        let live = self.network.live.load();
        let close = Close {
            datagrams: None,
            flow: flow.id,
            subject: subject(&self.network, flow.source, flow.destination),
            sni: None,
            alpn: Vec::new(),
            http: None,
            up: flow.up.load(Ordering::Relaxed),
            down: flow.down.load(Ordering::Relaxed),
            duration_ms: u64::try_from(now_ms() - flow.opened_ms).unwrap_or(0),
            end: end.to_owned(),
        };
        if let Err(error) = self.ctx.journal.append(Entry::Close(Box::new(close))) {
            tracing::warn!(sandbox.id = %self.network.id, %error, generation = live.generation.0, "the end of a way in was not recorded");
        }
    }
}

enum Stop {
    Broken,
    Budget(Reason),
}

/// Ends after this time if no byte moved, else never.
async fn silence(moved: [&AtomicU64; 2], limit: Duration) {
    tokio::time::sleep(limit).await;
    if moved.iter().any(|bytes| bytes.load(Ordering::Relaxed) > 0) {
        std::future::pending::<()>().await;
    }
}

/// One direction: counted before it is passed on, at the network's pace, its end passed on as an end.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    moved: &AtomicU64,
    spend: impl Fn(u64) -> Result<Duration, Reason>,
) -> Result<(), Stop> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await.map_err(|_| Stop::Broken)?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            return to.shutdown().await.map_err(|_| Stop::Broken);
        };
        let pause = spend(count as u64).map_err(Stop::Budget)?;
        moved.fetch_add(count as u64, Ordering::Relaxed);
        to.write_all(bytes).await.map_err(|_| Stop::Broken)?;
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_way_in_without_a_byte_ends_after_its_limit_and_one_with_a_byte_does_not() {
        assert_eq!(SILENT, crate::relay::Waits::default().silent);
        let (none, one) = (AtomicU64::new(0), AtomicU64::new(1));
        let (limit, began) = (Duration::from_millis(20), tokio::time::Instant::now());
        silence([&none, &none], limit).await;
        assert!(began.elapsed() >= limit);
        let spoken = tokio::time::timeout(limit * 5, silence([&none, &one], limit)).await;
        assert!(spoken.is_err());
    }
}
