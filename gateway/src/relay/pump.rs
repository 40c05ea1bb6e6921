//! Moves one direction of a flow until its end.
//!
//! Small pieces take one read and one write through a scratch buffer that belongs to the thread; a read that fills it
//! means bulk, and bulk is spliced until the sender pauses. Bytes are counted before they are forwarded, so a budget is
//! never exceeded by what was passed on.

use std::cell::RefCell;
use std::io::{self, Read};
use std::time::Duration;

use rustix::pipe::{SpliceFlags, splice};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::lane::{End, Lane, Way};
use super::pipes::Lent;

/// How long a pipe is kept for a sender that pauses: a stream has pauses of microseconds all the time, and giving the pipe
/// back for each means a copied piece first when it goes on.
const LULL: Duration = Duration::from_millis(10);
/// One read of a small piece; larger ones are bulk.
const SCRATCH: usize = 16 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8; SCRATCH]>> = RefCell::new(Box::new([0; SCRATCH]));
}

/// Why a direction stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// The sender is done; the receiver has not been told yet.
    Finished,
    /// Reading failed: whoever sends is dead.
    ReadFailed,
    /// Writing failed: whoever receives is dead, but may have sent something before.
    WriteFailed,
    /// A budget or a decision ended the flow.
    End(End),
}

impl From<End> for Stop {
    fn from(end: End) -> Self {
        Self::End(end)
    }
}

/// Moves everything from one socket to the other.
pub(super) async fn pump(from: &TcpStream, to: &TcpStream, way: Way, lane: &Lane<'_>) -> Stop {
    loop {
        match piece(from, to, way, lane).await {
            Ok(Moved::Some) => {}
            Ok(Moved::Bulk) => {
                if let Err(stop) = bulk(from, to, way, lane).await {
                    return stop;
                }
            }
            Ok(Moved::End) => return Stop::Finished,
            Err(stop) => return stop,
        }
    }
}

/// Passes a FIN on.
pub(super) fn finish(to: &TcpStream) -> Stop {
    match SockRef::from(to).shutdown(std::net::Shutdown::Write) {
        // the other side may be gone already: then its own direction says so
        Ok(()) => Stop::Finished,
        Err(_) => Stop::WriteFailed,
    }
}

/// Closing this socket from now on sends a reset.
pub(crate) fn reset(stream: &TcpStream) {
    if let Err(error) = SockRef::from(stream).set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "a socket is closed without a reset");
    }
}

/// Writes everything.
pub(crate) async fn send(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads once. A read that leaves room has emptied the socket, so its readiness is given back at once, as tokio's own
/// `poll_read` does: the next wait costs no read that finds nothing. What arrives meanwhile is told anew, and that a
/// stream has ended is never forgotten.
pub(super) fn read_some(from: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut short = None;
    let read = from.try_io(Interest::READABLE, || {
        let read = (&*SockRef::from(from)).read(buffer)?;
        if read > 0 && read < buffer.len() {
            short = Some(read);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(read)
    });
    short.map_or(read, Ok)
}

/// Reads once, at most `most` bytes, and appends them: a small reading takes no room beforehand.
pub(super) fn read_onto(from: &TcpStream, bytes: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    BUFFER.with_borrow_mut(|buffer| {
        let most = most.min(buffer.len());
        let scratch = buffer.get_mut(..most).unwrap_or_default();
        let read = read_some(from, scratch)?;
        bytes.extend_from_slice(scratch.get(..read).unwrap_or_default());
        Ok(read)
    })
}

/// Nothing moved, and nothing is wrong.
fn is_not_yet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

enum Moved {
    Some,
    Bulk,
    End,
}

async fn piece(from: &TcpStream, to: &TcpStream, way: Way, lane: &Lane<'_>) -> Result<Moved, Stop> {
    from.readable().await.map_err(|_| Stop::ReadFailed)?;
    // no await while the thread's buffer is borrowed
    let read = BUFFER.with_borrow_mut(|buffer| {
        let read = match read_some(from, buffer.as_mut_slice()) {
            Ok(read) => read,
            Err(error) if is_not_yet(&error) => return Ok(None),
            Err(_) => return Err(Stop::ReadFailed),
        };
        if read == 0 {
            return Ok(Some((0, Duration::ZERO, Vec::new())));
        }
        let pause = lane.count(way, read)?;
        let bytes = buffer.get(..read).unwrap_or_default();
        let written = match to.try_write(bytes) {
            Ok(written) => written,
            Err(error) if is_not_yet(&error) => 0,
            Err(_) => return Err(Stop::WriteFailed),
        };
        Ok(Some((
            read,
            pause,
            bytes.get(written..).unwrap_or_default().to_vec(),
        )))
    })?;
    let Some((read, pause, rest)) = read else {
        return Ok(Moved::Some);
    };
    send(to, &rest).await.map_err(|_| Stop::WriteFailed)?;
    wait(pause).await;
    Ok(match read {
        0 => Moved::End,
        SCRATCH => Moved::Bulk,
        _ => Moved::Some,
    })
}

pub(super) async fn wait(pause: Duration) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

/// Splices until the sender pauses for longer than [`LULL`].
async fn bulk(from: &TcpStream, to: &TcpStream, way: Way, lane: &Lane<'_>) -> Result<(), Stop> {
    let Some(mut lent) = Lent::take(&lane.network.ledger, &lane.ctx.ceilings) else {
        return Ok(());
    };
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    loop {
        let Some(write_end) = lent.write_end() else {
            return Ok(());
        };
        let read = from.try_io(Interest::READABLE, || {
            splice(from, None, write_end, None, Lent::MOST, flags).map_err(io::Error::from)
        });
        let read = match read {
            // the end: the small path meets it again
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if is_not_yet(&error) => match timeout(LULL, from.readable()).await {
                Ok(Ok(())) => continue,
                Ok(Err(_)) => return Err(Stop::ReadFailed),
                Err(_) => return Ok(()),
            },
            Err(_) => return Err(Stop::ReadFailed),
        };
        lent.add(read);
        let pause = lane.count(way, read)?;
        while lent.held() > 0 {
            let held = lent.held();
            let Some(read_end) = lent.read_end() else {
                return Ok(());
            };
            let moved = to
                .async_io(Interest::WRITABLE, || {
                    splice(read_end, None, to, None, held, flags).map_err(io::Error::from)
                })
                .await
                .map_err(|_| Stop::WriteFailed)?;
            lent.remove(moved);
        }
        wait(pause).await;
    }
}
