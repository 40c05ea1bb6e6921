//! Closing what others sent, where it may take as long as it likes.
//!
//! The last close of a descriptor can wait: a TCP socket lingers over unsent bytes (SO_LINGER), a file of FUSE asks its
//! program. Whoever sends one decides for how long. So nothing that came over a socket is closed by a thread that serves:
//! each user has one thread that closes what that user sent, and waits for nobody else's. Before a close, lingering is
//! turned off, also for what waits inside a Unix socket that was sent. Refuses to own: what is kept and used.
//! Failure stance: a user whose closes all wait fills a bounded queue; beyond it the thread of the control socket that
//! received the next one waits. Doors run on other threads.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, Shutdown, sockopt};

use super::descriptor::receive_all;

/// Descriptors of one user that wait to be closed.
const MOST_WAITING: usize = 512;
/// A thread with nothing to close ends after this time.
const IDLE: Duration = Duration::from_secs(10);
/// Unix sockets inside of Unix sockets; what lies deeper is closed as it is.
const DEEPEST: usize = 8;
/// Read at once from a socket whose bytes nobody wants.
const SCRATCH: usize = 16 << 10;

/// The threads that close, by the user whose descriptors they are.
static THREADS: LazyLock<Mutex<HashMap<u32, SyncSender<OwnedFd>>>> = LazyLock::new(Mutex::default);

/// A descriptor that somebody sent; closed by a thread that may wait, unless it is kept.
#[derive(Debug)]
pub struct Offered {
    fd: Option<OwnedFd>,
    uid: u32,
}

impl Offered {
    /// Sent by a user.
    pub(super) fn by(uid: u32, fd: OwnedFd) -> Self {
        Self { fd: Some(fd), uid }
    }

    /// A second descriptor of the same thing: closing that one is never the last close.
    pub fn duplicate(&self) -> std::io::Result<OwnedFd> {
        match &self.fd {
            Some(fd) => fd.try_clone(),
            None => Err(std::io::ErrorKind::NotFound.into()),
        }
    }

    /// The descriptor itself, for whoever trusts the sender with its own thread.
    pub fn keep(mut self) -> Option<OwnedFd> {
        self.fd.take()
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            dispose(self.uid, fd);
        }
    }
}

/// Has a user's descriptor closed.
fn dispose(uid: u32, fd: OwnedFd) {
    let mut threads = threads();
    let sent = match threads.get(&uid) {
        Some(thread) => thread.try_send(fd),
        None => Err(TrySendError::Disconnected(fd)),
    };
    let Err(TrySendError::Disconnected(fd)) = sent else {
        // Full: closed here, once the lock is given back.
        drop(threads);
        return drop(sent);
    };
    let (sender, receiver) = sync_channel(MOST_WAITING);
    let closing = std::thread::Builder::new()
        .name("closing".to_owned())
        .spawn(move || close_all(uid, &receiver));
    if let Err(error) = closing {
        drop(threads);
        tracing::warn!(%error, "no thread to close a descriptor on");
        return;
    }
    // There is room for the first one.
    let first = sender.try_send(fd);
    threads.insert(uid, sender);
    drop(threads);
    drop(first);
}

fn threads() -> MutexGuard<'static, HashMap<u32, SyncSender<OwnedFd>>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes until nothing has come for a while.
fn close_all(uid: u32, waiting: &Receiver<OwnedFd>) {
    loop {
        match waiting.recv_timeout(IDLE) {
            Ok(fd) => close(fd, 0),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                // Under the lock nothing new can come: what is not here now goes to a new thread.
                let mut threads = threads();
                let Ok(fd) = waiting.try_recv() else {
                    threads.remove(&uid);
                    return;
                };
                drop(threads);
                close(fd, 0);
            }
        }
    }
}

/// Closes one, without waiting where waiting can be turned off.
fn close(fd: OwnedFd, depth: usize) {
    // No socket: there is nothing to turn off.
    let Ok(domain) = sockopt::socket_domain(&fd) else {
        return drop(fd);
    };
    // A socket that cannot linger refuses this, which is as good.
    let _ = sockopt::set_socket_linger(&fd, None);
    if domain == AddressFamily::UNIX && depth < DEEPEST {
        // After this nothing more can be put in.
        let _ = rustix::net::shutdown(&fd, Shutdown::Read);
        let mut scratch = vec![0; SCRATCH];
        while let Ok((bytes, inner)) = receive_all(fd.as_fd(), &mut scratch) {
            if (bytes, inner.len()) == (0, 0) {
                break;
            }
            for one in inner {
                close(one, depth + 1);
            }
        }
    }
    drop(fd);
}
