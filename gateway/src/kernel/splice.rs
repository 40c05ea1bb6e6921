//! Bytes from one socket to another without copying them through user space: pipes, and what a splice may return.
//!
//! Owns: pipes (lent while bytes move, so that an idle flow holds only its two sockets) and one splice each way.
//! Refuses to own: the loop over a flow, half-close, counting against budgets (relay).
//!
//! `EAGAIN` of splice is ambiguous: an empty socket and a full pipe look alike. So the two halves are kept apart:
//! [`Pipe::fill`] is only called on an empty pipe, where it can only mean the socket; [`Pipe::drain`] only on a pipe that
//! holds bytes, where it can only mean the far socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// Bytes that a pipe holds: what `fs.pipe-max-size` allows everybody by default.
pub const CAPACITY: usize = 1 << 20;

/// A pipe between two sockets.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
    capacity: usize,
}

/// What a fill found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// So many bytes are in the pipe now.
    Bytes(usize),
    /// The sender has closed its half.
    End,
}

impl Pipe {
    /// A pipe of the largest size that we may have.
    pub fn open() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Per-user pipe limits may refuse a large pipe; a small one works, more slowly.
        let capacity = fcntl_setpipe_size(&write, CAPACITY).unwrap_or(1 << 16);
        Ok(Self {
            read,
            write,
            held: 0,
            capacity,
        })
    }

    /// Bytes that are in it.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Moves what the socket has into the pipe, at most `limit` bytes. `WouldBlock` means that the socket is empty.
    ///
    /// # Errors
    /// `InvalidInput` on a pipe that still holds bytes: there an empty socket could not be told from a full pipe.
    pub fn fill(&mut self, from: &impl AsFd, limit: usize) -> io::Result<Filled> {
        if self.held != 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let limit = limit.min(self.capacity);
        match splice(
            from,
            None,
            &self.write,
            None,
            limit,
            SpliceFlags::NONBLOCK | SpliceFlags::MOVE,
        )? {
            0 => Ok(Filled::End),
            bytes => {
                self.held = bytes;
                Ok(Filled::Bytes(bytes))
            }
        }
    }

    /// Moves what the pipe holds into the socket; returns how much. `WouldBlock` means that the socket takes no more.
    ///
    /// `more` says that further bytes follow at once, so that the last segment may wait for them.
    pub fn drain(&mut self, to: &impl AsFd, more: More) -> io::Result<usize> {
        if self.held == 0 {
            return Ok(0);
        }
        let flags = match more {
            More::Follows => SpliceFlags::NONBLOCK | SpliceFlags::MOVE | SpliceFlags::MORE,
            More::Nothing => SpliceFlags::NONBLOCK | SpliceFlags::MOVE,
        };
        let bytes = splice(&self.read, None, to, None, self.held, flags)?;
        self.held = self.held.saturating_sub(bytes);
        Ok(bytes)
    }
}

/// Whether more bytes follow those being sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum More {
    /// At once.
    Follows,
    /// Not that we know.
    Nothing,
}

/// Pipes that wait for the next flow with bytes to move.
#[derive(Debug)]
pub struct PipePool {
    idle: Mutex<Vec<Pipe>>,
    keep: usize,
}

impl PipePool {
    /// Keeps at most so many idle pipes.
    pub fn new(keep: usize) -> Self {
        Self {
            idle: Mutex::new(Vec::new()),
            keep,
        }
    }

    /// Lends an empty pipe.
    pub fn lend(&self) -> io::Result<Pipe> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        idle.map_or_else(Pipe::open, Ok)
    }

    /// Takes a pipe back. One that still holds bytes is closed: they belong to a flow that is over and must never reach
    /// another.
    pub fn give_back(&self, pipe: Pipe) {
        if pipe.held == 0 {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < self.keep {
                idle.push(pipe);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        far.set_nonblocking(true).unwrap();
        (near, far)
    }

    /// Retries while the kernel is still carrying bytes over loopback.
    fn settled<T>(mut act: impl FnMut() -> io::Result<T>) -> T {
        let start = std::time::Instant::now();
        loop {
            match act() {
                Err(e)
                    if e.kind() == io::ErrorKind::WouldBlock && start.elapsed().as_secs() < 5 =>
                {
                    std::thread::yield_now();
                }
                result => return result.unwrap(),
            }
        }
    }

    #[test]
    fn an_empty_socket_and_a_full_one_are_told_apart() {
        let (mut client, from) = pair();
        let (mut server, to) = pair();
        let mut pipe = Pipe::open().unwrap();
        assert_eq!(
            pipe.fill(&from, CAPACITY).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        client.write_all(b"hello").unwrap();
        assert_eq!(settled(|| pipe.fill(&from, CAPACITY)), Filled::Bytes(5));
        assert_eq!(
            pipe.fill(&from, CAPACITY).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(pipe.drain(&to, More::Nothing).unwrap(), 5);
        assert_eq!(pipe.held(), 0);
        let mut bytes = [0; 5];
        server.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(settled(|| pipe.fill(&from, CAPACITY)), Filled::End);
    }

    #[test]
    fn bytes_of_one_flow_never_reach_another() {
        let (mut client, from) = pair();
        let pool = PipePool::new(4);
        let mut pipe = pool.lend().unwrap();
        client.write_all(b"secret").unwrap();
        assert_eq!(settled(|| pipe.fill(&from, CAPACITY)), Filled::Bytes(6));
        pool.give_back(pipe);
        assert_eq!(pool.lend().unwrap().held(), 0);
        let clean = pool.lend().unwrap();
        pool.give_back(clean);
        assert_eq!(pool.idle.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_fill_takes_no_more_than_its_limit() {
        let (mut client, from) = pair();
        let mut pipe = Pipe::open().unwrap();
        client.write_all(&[7; 100]).unwrap();
        assert_eq!(settled(|| pipe.fill(&from, 10)), Filled::Bytes(10));
    }
}
