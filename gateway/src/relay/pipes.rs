//! Pipes that are lent while bytes move, so that an idle flow holds none.
//!
//! A pipe that may still hold bytes of one flow is closed, never lent again: bytes of two networks never meet. How many
//! a network may hold is its share of [`Ceilings`]; where it is used up, bytes are copied instead.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::limits::{Ceilings, Ledger, Taken};

/// Enough to keep a 10 Gbit/s stream busy between wake-ups; the kernel's own limit for unprivileged users allows it.
const CAPACITY: usize = 256 * 1024;
/// Pipes kept for the next flow.
const KEPT: usize = 64;

/// A pipe: read end, write end.
#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// Pipes that nobody uses now.
#[derive(Debug, Default)]
pub struct IdlePipes(Mutex<Vec<Pipe>>);

/// A lent pipe. Given back on drop when it is empty for certain, closed otherwise.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    pipe: Option<Pipe>,
    idle: &'a IdlePipes,
    /// Bytes inside.
    held: usize,
    _taken: Taken,
}

impl<'a> Lent<'a> {
    /// What one splice may move, and so the most that a flow holds outside its sockets: a pipe's places would take up to
    /// eight times as much, for the pages that a stream arrives in are up to 32 KiB each.
    pub(crate) const MOST: usize = CAPACITY;

    /// Lends a pipe if the network's share and the kernel allow it.
    pub(crate) fn take(ledger: &Ledger, ceilings: &'a Ceilings) -> Option<Self> {
        let taken = ledger.pipe(ceilings)?;
        let idle = &ceilings.idle_pipes;
        let kept = idle.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let pipe = kept.or_else(make)?;
        Some(Self {
            pipe: Some(pipe),
            idle,
            held: 0,
            _taken: taken,
        })
    }

    pub(crate) fn read_end(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref().map(|pipe| &pipe.read)
    }

    pub(crate) fn write_end(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref().map(|pipe| &pipe.write)
    }

    pub(crate) fn held(&self) -> usize {
        self.held
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        self.held += bytes;
    }

    pub(crate) fn remove(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut idle = self.idle.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.held == 0 && idle.len() < KEPT {
            idle.extend(self.pipe.take());
        }
    }
}

fn make() -> Option<Pipe> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
    // a smaller pipe is slower, not wrong
    let _ = fcntl_setpipe_size(&write, CAPACITY);
    Some(Pipe { read, write })
}
