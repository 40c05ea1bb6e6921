//! Datagrams in batches, each with the address it was sent to, answered from there: recvmmsg(2) and sendmmsg(2).
//!
//! One system call for many datagrams is most of what makes the DNS door as fast as a name server. Every answer has a
//! source address of its own (`IP_PKTINFO`), every question its destination (`IP_ORIGDSTADDR`, read from the packet's own
//! header). Failure stance: a datagram without its addresses is no question; what cannot be sent at once is lost.
//!
//! JUSTIFICATION for unsafe: the wrappers in the crates in use give all datagrams of a batch one control message.

mod wire;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::null_mut;

use super::cutting::are_cut;
use wire::{
    CONTROL, NAME, Octets, SEGMENT, destination, read_name, write_name, write_segment, write_source,
};

/// Datagrams of one system call at most.
pub const MOST: usize = 32;

/// A datagram together with where it was sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// Bytes in the buffer. A longer datagram was cut: see `truncated`.
    pub length: usize,
    /// Whether the datagram did not fit.
    pub truncated: bool,
    /// The sandbox.
    pub from: SocketAddr,
    /// The address and port it was sent to: the source of the answer.
    pub to: SocketAddr,
}

/// One datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// Source address; the source port is the socket's.
    pub from: IpAddr,
    /// The sandbox.
    pub to: SocketAddr,
    /// What is said.
    pub bytes: &'a [u8],
}

/// A UDP socket that receives what was sent to any address, and answers from there.
#[derive(Debug)]
pub struct DatagramDoor {
    socket: UdpSocket,
}

/// What one system call is told: headers, and what they point to.
struct Call {
    heads: [libc::mmsghdr; MOST],
    parts: [libc::iovec; MOST],
    names: [Octets<NAME>; MOST],
    controls: [Octets<CONTROL>; MOST],
}

impl Call {
    const EMPTY: Self = Self {
        heads: [libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_name: null_mut(),
                msg_namelen: 0,
                msg_iov: null_mut(),
                msg_iovlen: 0,
                msg_control: null_mut(),
                msg_controllen: 0,
                msg_flags: 0,
            },
            msg_len: 0,
        }; MOST],
        parts: [libc::iovec {
            iov_base: null_mut(),
            iov_len: 0,
        }; MOST],
        names: [Octets([0; NAME]); MOST],
        controls: [Octets([0; CONTROL]); MOST],
    };
}

/// Points a header at its parts, and at so much of name and control data.
fn point(
    head: &mut libc::mmsghdr,
    parts: &mut [libc::iovec],
    (name, name_length): (&mut Octets<NAME>, usize),
    (control, control_length): (&mut Octets<CONTROL>, usize),
) {
    head.msg_hdr.msg_name = (&raw mut name.0).cast();
    // never more than `NAME`
    head.msg_hdr.msg_namelen = libc::socklen_t::try_from(name_length).unwrap_or_default();
    head.msg_hdr.msg_iov = parts.as_mut_ptr();
    head.msg_hdr.msg_iovlen = parts.len();
    head.msg_hdr.msg_control = (&raw mut control.0).cast();
    head.msg_hdr.msg_controllen = control_length;
}

impl DatagramDoor {
    /// Around a transparent socket that reports original destinations.
    pub(super) fn new(socket: UdpSocket) -> Self {
        Self { socket }
    }

    /// Receives into as many buffers as there are datagrams, [`MOST`] at most; `WouldBlock` when there is none. Returns
    /// how many were filled; one without its addresses (which the kernel always gives) is `None`.
    pub fn receive_many<'a>(
        &self,
        buffers: impl Iterator<Item = &'a mut [u8]>,
        into: &mut [Option<Question>; MOST],
    ) -> io::Result<usize> {
        let mut call = Call::EMPTY;
        let mut count = 0;
        let ends = call.names.iter_mut().zip(&mut call.controls);
        let rows = call.heads.iter_mut().zip(&mut call.parts).zip(ends);
        for (((head, part), (name, control)), buffer) in rows.zip(buffers) {
            part.iov_base = buffer.as_mut_ptr().cast();
            part.iov_len = buffer.len();
            let part = std::slice::from_mut(part);
            point(head, part, (name, NAME), (control, CONTROL));
            count += 1;
        }
        // SAFETY: the first `count` headers point to buffers that the caller lends for this call and to names and
        // control data of `call`, which lives in this frame and does not move; all lengths are true.
        let received = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                call.heads.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
                null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let ends = call.names.iter().zip(&call.controls);
        let rows = call.heads.iter().zip(ends).zip(into).take(received);
        for ((head, (name, control)), place) in rows {
            *place = question(head, &name.0, &control.0);
        }
        Ok(received)
    }

    /// Sends every reply that can be sent at once; returns how many were lost.
    ///
    /// Neighbours with the same ends and length go down the stack as one piece, which the kernel cuts up again (udp(7),
    /// `UDP_SEGMENT`): the way through stack and rules is most of the cost of a small datagram.
    pub fn send_many<'a>(&self, replies: impl Iterator<Item = Reply<'a>>) -> usize {
        let mut replies = replies.peekable();
        let mut lost = 0;
        while replies.peek().is_some() {
            let mut call = Call::EMPTY;
            let mut parts = call.parts.as_mut_slice();
            let ends = call.names.iter_mut().zip(&mut call.controls);
            let mut count = 0;
            for (head, (name, control)) in call.heads.iter_mut().zip(ends) {
                let Some(run) = fill(parts, &mut replies) else {
                    break;
                };
                let (own, rest) = std::mem::take(&mut parts).split_at_mut(run.count);
                parts = rest;
                let name_length = write_name(name, run.first.to);
                let mut control_length = write_source(control, run.first.from);
                if run.count > 1 {
                    control_length = write_segment(control, control_length, run.first.bytes.len());
                }
                point(head, own, (name, name_length), (control, control_length));
                count += 1;
            }
            lost += self.send(call.heads.get_mut(..count).unwrap_or_default());
        }
        lost
    }

    /// Headers in order; one that the kernel refuses is left out.
    fn send(&self, mut heads: &mut [libc::mmsghdr]) -> usize {
        let mut lost = 0;
        while let Some(first) = heads.first() {
            let first = first.msg_hdr;
            let count = libc::c_uint::try_from(heads.len()).unwrap_or_default();
            // SAFETY: every header points to parts, name and control data that its caller keeps for this call, with
            // their true lengths; the kernel writes nothing but `msg_len` of these headers.
            let sent = unsafe {
                libc::sendmmsg(
                    self.socket.as_raw_fd(),
                    heads.as_mut_ptr(),
                    count,
                    libc::MSG_DONTWAIT,
                )
            };
            let done = match usize::try_from(sent) {
                Ok(done) if done > 0 => done,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => {
                    return lost
                        + heads
                            .iter()
                            .map(|head| head.msg_hdr.msg_iovlen)
                            .sum::<usize>();
                }
                // a link that cannot cut up pieces, or one reply that is refused
                _ if first.msg_iovlen > 1 => {
                    lost += self.send_apart(&first);
                    1
                }
                _ => {
                    lost += 1;
                    1
                }
            };
            heads = heads.get_mut(done..).unwrap_or_default();
        }
        lost
    }

    /// The replies of one piece, each by itself.
    fn send_apart(&self, piece: &libc::msghdr) -> usize {
        let mut lost = 0;
        for index in 0..piece.msg_iovlen {
            let single = libc::msghdr {
                // its parts lie one behind the other
                msg_iov: piece.msg_iov.wrapping_add(index),
                msg_iovlen: 1,
                msg_controllen: piece.msg_controllen.saturating_sub(SEGMENT),
                ..*piece
            };
            // SAFETY: as for the piece, of whose parts this is one; the control message about cutting stands last.
            let sent = unsafe {
                libc::sendmsg(
                    self.socket.as_raw_fd(),
                    &raw const single,
                    libc::MSG_DONTWAIT,
                )
            };
            lost += usize::from(sent < 0);
        }
        lost
    }
}

/// Replies that go down the stack together.
struct Run<'a> {
    first: Reply<'a>,
    count: usize,
}

/// Takes the next run of replies that may be one piece: the same ends, equal lengths, only the last one shorter.
fn fill<'a>(
    parts: &mut [libc::iovec],
    replies: &mut std::iter::Peekable<impl Iterator<Item = Reply<'a>>>,
) -> Option<Run<'a>> {
    let runs = are_cut();
    let mut parts = parts.iter_mut();
    let mut part = parts.next()?;
    let first = replies.next()?;
    let mut last = first;
    let mut count = 0;
    loop {
        // the kernel only reads it
        part.iov_base = last.bytes.as_ptr().cast_mut().cast();
        part.iov_len = last.bytes.len();
        count += 1;
        let room = parts.next();
        let fits = |next: &Reply<'_>| {
            runs && (next.to, next.from) == (first.to, first.from)
                && last.bytes.len() == first.bytes.len()
                && (1..=first.bytes.len()).contains(&next.bytes.len())
        };
        let next = room.and_then(|room| Some((room, replies.next_if(fits)?)));
        let Some((room, next)) = next else {
            return Some(Run { first, count });
        };
        (part, last) = (room, next);
    }
}

impl AsRawFd for DatagramDoor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn question(head: &libc::mmsghdr, name: &[u8], control: &[u8]) -> Option<Question> {
    let named = usize::try_from(head.msg_hdr.msg_namelen).ok()?;
    let from = read_name(name.get(..named)?)?;
    let to = read_name(destination(control.get(..head.msg_hdr.msg_controllen)?)?)?;
    Some(Question {
        length: usize::try_from(head.msg_len).ok()?,
        truncated: head.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        from,
        to,
    })
}
