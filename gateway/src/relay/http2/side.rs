//! One end of a flow as h2 wants it: what was read ahead, then the socket; every byte that comes in is counted.

use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::relay::lane::{End, Lane, Way};

/// A socket of a flow. Bytes read from it count as going `way`, and wait for their bandwidth.
#[derive(Debug)]
pub(super) struct Side<'a> {
    stream: &'a TcpStream,
    ahead: Vec<u8>,
    way: Way,
    lane: Lane<'a>,
    pause: Option<Pin<Box<Sleep>>>,
    /// Where a budget that is used up leaves its word: h2 only sees that reading failed.
    over: &'a OnceLock<End>,
}

impl<'a> Side<'a> {
    pub(super) fn new(
        stream: &'a TcpStream,
        ahead: Vec<u8>,
        way: Way,
        (lane, over): (Lane<'a>, &'a OnceLock<End>),
    ) -> Self {
        Self {
            stream,
            ahead,
            way,
            lane,
            pause: None,
            over,
        }
    }

    fn count(&mut self, bytes: usize) -> io::Result<()> {
        match self.lane.count(self.way, bytes) {
            Ok(pause) => {
                self.pause = (!pause.is_zero()).then(|| Box::pin(sleep(pause)));
                Ok(())
            }
            Err(end) => {
                // the first word stays
                let _ = self.over.set(end);
                Err(io::Error::other("the flow is over"))
            }
        }
    }
}

impl AsyncRead for Side<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        if !self.ahead.is_empty() {
            let here = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(self.ahead.get(..here).unwrap_or_default());
            self.ahead.drain(..here);
            return Poll::Ready(self.count(here));
        }
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(read);
                    return Poll::Ready(self.count(read));
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Side<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_write(bytes) {
                Err(error) if is_passing(&error) => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(self.stream).shutdown(std::net::Shutdown::Write))
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
