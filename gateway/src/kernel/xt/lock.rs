//! Hears of foreign changes to the tables of iptables, which no kernel tells of: its programs all take one lock first.
//!
//! Owns: a watch on that lock. A gateway's own programs do not take it (see `programs`), so whoever did was another. Which
//! namespace it was about cannot be heard: a notice is a reason to look. Who works without the lock, or with another view
//! of `/run`, is not heard and found by the next look.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};

/// `XT_LOCK_NAME` of iptables.
const LOCK: &str = "/run/xtables.lock";

/// The watch; for readiness see [`watch`](crate::kernel::watch).
#[derive(Debug)]
pub struct LockWatch(OwnedFd);

impl AsRawFd for LockWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl LockWatch {
    /// Makes the lock as the programs would, and watches it.
    pub fn open() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        drop(rustix::fs::open(LOCK, flags, Mode::RUSR | Mode::WUSR)?);
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // A program lets go of it when it is done.
        let done = WatchFlags::CLOSE_NOWRITE | WatchFlags::CLOSE_WRITE;
        inotify::add_watch(&watch, LOCK, done)?;
        Ok(Self(watch))
    }

    /// Whether anybody was done since the last time. Lost notices count as one.
    pub fn drain(&self) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut notices = inotify::Reader::new(&self.0, &mut buffer);
        let mut any = false;
        loop {
            match notices.next() {
                Ok(_) => any = true,
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(any),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
