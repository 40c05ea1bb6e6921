//! Runs of datagrams are cut before they reach a sandbox's link, not behind it.
//!
//! A run that is sent as one (`UDP_SEGMENT`) crosses a veth pair in one piece and is cut by the receiving kernel. A sandbox
//! with a network stack of its own (gVisor) reads the piece off the link and takes it for one datagram. So the outer end
//! says that it cannot cut (`tx-udp-segmentation` of ethtool(8)), and the gateway's kernel cuts as the last act before the
//! link: the run passes stack and rules once, and what the sandbox reads are datagrams.
//! Owns: that setting of outer links, and whether every one of them has it. Refuses to own: what is sent in runs.
//! Failure stance: where a link cannot be set, nothing is sent to any sandbox in runs from then on.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

use super::wire::{self, Message};

/// `GENL_ID_CTRL` and its `CTRL_CMD_GETFAMILY` (linux/genetlink.h).
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
/// `ETHTOOL_MSG_FEATURES_SET` (linux/ethtool_netlink.h).
const SET_FEATURES: u8 = 12;
const NLM_F_ACK: u16 = 4;
/// `NLA_F_NESTED`
const NESTED: u16 = 0x8000;
/// `ETHTOOL_FLAG_OMIT_REPLY`: the acknowledgement says enough.
const OMIT_REPLY: u32 = 2;

/// Whether some link could not be set since this process began.
static UNCUT: AtomicBool = AtomicBool::new(false);

/// Whether what is sent to sandboxes in runs reaches all of them as datagrams.
pub fn are_cut() -> bool {
    !UNCUT.load(Ordering::Relaxed)
}

/// Sets links of one namespace.
#[derive(Debug)]
pub(super) struct Cutter {
    socket: Mutex<Socket>,
    /// What the kernel calls the ethtool family.
    family: u16,
}

impl Cutter {
    /// For the namespace of the calling thread.
    pub(super) fn here() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        let question = Message::new(CONTROL, 0, GET_FAMILY, 0).text(2, "ethtool");
        let answer = exchange(&socket, question)?;
        let family = wire::messages(&answer)
            .find_map(|message| message.attrs().find(1))
            .and_then(|attr| attr.value.try_into().ok())
            .map(u16::from_ne_bytes)
            .ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            socket: Mutex::new(socket),
            family,
        })
    }

    /// Has runs cut before they reach this link.
    pub(super) fn cut_before(&self, index: u32) -> io::Result<()> {
        let header = [
            attr(1, &index.to_ne_bytes()),
            attr(3, &OMIT_REPLY.to_ne_bytes()),
        ]
        .concat();
        // named and without a value: off; what is not named stays
        let bit = attr(2, b"tx-udp-segmentation\0");
        let bits = attr(NESTED | 3, &attr(NESTED | 1, &bit));
        let request = Message::new(self.family, NLM_F_ACK, SET_FEATURES, 0)
            .attr(NESTED | 1, &header)
            .attr(NESTED | 3, &bits);
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        exchange(&socket, request).map(drop)
    }
}

/// Sets a link, or remembers that one is not set.
pub(super) fn cut_before(cutter: Option<&Cutter>, index: u32) {
    let cut = match cutter {
        Some(cutter) => cutter.cut_before(index),
        None => Err(io::ErrorKind::Unsupported.into()),
    };
    // a link that went meanwhile carries nothing: whoever takes theirs away must not slow down everybody else's
    if let Err(error) = cut
        && error.raw_os_error() != Some(libc::ENODEV)
        && !UNCUT.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(%error, "datagrams go to sandboxes one by one: their links cannot be told to have runs cut");
    }
}

/// One attribute as octets.
fn attr(kind: u16, value: &[u8]) -> Vec<u8> {
    // the octets of a message that has only this attribute, behind its header
    Message::new(0, 0, 0, 0)
        .attr(kind, value)
        .finish()
        .split_off(wire::HEADER)
}

/// Sends a request and waits for its answer, which is queued when the send returns; an error in it is the error.
fn exchange(socket: &Socket, request: Message) -> io::Result<Vec<u8>> {
    socket.send_to(&request.finish(), &SocketAddr::new(0, 0), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let error = wire::messages(&answer).find_map(wire::Received::error);
    match error {
        Some(errno) if errno != 0 => Err(io::Error::from_raw_os_error(errno)),
        _ => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_has_gone_slows_nobody_down() {
        let cutter = Cutter::here().unwrap();
        let gone = cutter.cut_before(i32::MAX.unsigned_abs()).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENODEV));
        cut_before(Some(&cutter), i32::MAX.unsigned_abs());
        assert!(are_cut());
    }
}
