//! Buffers of sockets, above the machine's limit where the gateway may exceed it.
//!
//! Exceeding the limit takes CAP_NET_ADMIN over the whole machine. An ordinary user's gateway has it over its own
//! namespaces only and takes what `net.core.rmem_max` and `wmem_max` leave it: fewer packets and smaller changes fit at
//! once, and what does not fit is an error or a drop, never an opening.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};

/// Room for what arrives.
pub fn receive(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    match setsockopt(socket, sockopt::RcvBufForce, &bytes) {
        Err(Errno::EPERM) => setsockopt(socket, sockopt::RcvBuf, &bytes)?,
        result => result?,
    }
    Ok(())
}

/// Room for what is being sent.
pub fn send(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    match setsockopt(socket, sockopt::SndBufForce, &bytes) {
        Err(Errno::EPERM) => setsockopt(socket, sockopt::SndBuf, &bytes)?,
        result => result?,
    }
    Ok(())
}
