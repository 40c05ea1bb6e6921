//! Readiness of the kernel part's own sockets on the runtime.
//!
//! JUSTIFICATION for unsafe: tokio cannot know that a type keeps its descriptor; for the types here we do.

use std::io;
use std::os::fd::AsRawFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::datagrams::DatagramDoor;
use super::echo::{EchoDoor, Pinger};
use super::monitor::Subscription;
use super::packets::Tap;
use super::queue::Queue;
use super::xt::lock::LockWatch;

/// Types that own one descriptor from construction to drop and always report that one.
pub trait Steady: AsRawFd + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for Queue {}
impl sealed::Sealed for Subscription {}
impl sealed::Sealed for DatagramDoor {}
impl sealed::Sealed for Tap {}
impl sealed::Sealed for EchoDoor {}
impl sealed::Sealed for Pinger {}
impl sealed::Sealed for LockWatch {}
impl Steady for LockWatch {}
impl Steady for EchoDoor {}
impl Steady for Pinger {}
impl Steady for Queue {}
impl Steady for Subscription {}
impl Steady for DatagramDoor {}
impl Steady for Tap {}

/// Registers for reading, in the context of the calling task's runtime.
///
/// After `readable().await` read until `WouldBlock`, then `clear_ready`.
pub fn watch<T: Steady>(socket: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: the trait is sealed; its types own their descriptor and neither replace nor close it before they drop.
    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }.map_err(Into::into)
}

/// The same for reading and for the errors that the kernel queues.
pub fn watch_errors<T: Steady>(socket: T) -> io::Result<AsyncFd<T>> {
    let interest = Interest::READABLE.add(Interest::ERROR);
    // SAFETY: as above.
    unsafe { AsyncFd::register_with_interest(socket, interest) }.map_err(Into::into)
}
