//! Streams over Unix sockets that carry one descriptor with their first byte (SCM_RIGHTS).
//!
//! Only what came with the first read is handed on. Every read takes all descriptors that come along, because what is
//! left to the kernel is closed inside of the read, by the thread that reads, for as long as the sender likes; so is what
//! lies unread in a stream that ends. They all go to [`Offered`]. More than one at once is an error, so that nobody
//! guesses which one was meant. Kernels that can (6.16) are told to refuse what nobody awaits.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

use super::disposal::Offered;
use crate::kernel::sockets;

/// `SCM_MAX_FD`: more cannot be sent at once, so nothing is ever cut off.
const ROOM: usize = 253;
/// Read at once from a stream that has ended.
const SCRATCH: usize = 16 << 10;

/// What came with the first byte.
#[derive(Debug, Default)]
pub enum Received {
    /// No descriptor.
    #[default]
    Nothing,
    /// Exactly one.
    One(Offered),
    /// More than one; all are closed.
    TooMany,
}

/// Shared between the stream and whoever answers the request.
#[derive(Clone, Debug, Default)]
pub struct Descriptor(Arc<Mutex<Received>>);

impl Descriptor {
    /// Takes what came; later calls see nothing.
    pub fn take(&self) -> Received {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, received: Received) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = received;
    }
}

/// A stream whose first read may bring a descriptor and whose first write may take one along.
#[derive(Debug)]
pub struct Carrier {
    stream: UnixStream,
    /// Until the first read.
    first_read: Option<Descriptor>,
    /// Who may send descriptors, on the receiving side.
    sender: Option<u32>,
    outgoing: Option<OwnedFd>,
}

impl Carrier {
    /// Server side: the first read accepts a descriptor.
    pub fn receiving(stream: UnixStream) -> (Self, Descriptor) {
        let descriptor = Descriptor::default();
        // Whose they are decides only who waits when they are closed.
        let sender = stream.peer_cred().map_or(u32::MAX, |peer| peer.uid());
        (
            Self {
                stream,
                first_read: Some(descriptor.clone()),
                sender: Some(sender),
                outgoing: None,
            },
            descriptor,
        )
    }

    /// Client side: the first write takes the descriptor along.
    pub fn sending(stream: UnixStream, descriptor: Option<OwnedFd>) -> Self {
        Self {
            stream,
            first_read: None,
            sender: None,
            outgoing: descriptor,
        }
    }

    /// Has the kernel refuse descriptors from now on, where it can.
    pub fn refuse_descriptors(&self) {
        // An older kernel lets them come; then they are closed.
        if let Err(error) = sockets::refuse_descriptors(self.stream.as_fd()) {
            tracing::trace!(%error, "descriptors cannot be refused");
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let Some(sender) = self.sender else { return };
        // After this nothing more can be put in, and what lies there can still be taken out.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Read);
        let mut scratch = vec![0; SCRATCH];
        while let Ok((bytes, all)) = receive_all(self.stream.as_fd(), &mut scratch) {
            if (bytes, all.len()) == (0, 0) {
                return;
            }
            drop(offers(sender, all));
        }
    }
}

fn offers(sender: u32, all: Vec<OwnedFd>) -> Vec<Offered> {
    all.into_iter().map(|fd| Offered::by(sender, fd)).collect()
}

/// One non-blocking read of bytes with all descriptors that come along.
pub(super) fn receive_all(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(into)];
    let message = recvmsg(
        socket,
        &mut parts,
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )?;
    let mut all = Vec::new();
    for entry in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = entry {
            all.extend(descriptors);
        }
    }
    Ok((message.bytes, all))
}

/// What it means that these came with the first byte.
fn received(mut all: Vec<Offered>) -> Received {
    match (all.pop(), all.is_empty()) {
        (None, _) => Received::Nothing,
        (Some(one), true) => Received::One(one),
        (Some(_), false) => Received::TooMany,
    }
}

/// One non-blocking write that takes a descriptor along.
pub fn send(stream: &UnixStream, bytes: &[u8], descriptor: &OwnedFd) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let one = [descriptor.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&one)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(sendmsg(
        stream.as_fd(),
        &[IoSlice::new(bytes)],
        &mut control,
        flags,
    )?)
}

impl AsyncRead for Carrier {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(sender) = this.sender else {
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        };
        loop {
            ready!(this.stream.poll_read_ready(cx))?;
            let room = buf.initialize_unfilled();
            match this.stream.try_io(Interest::READABLE, || {
                receive_all(this.stream.as_fd(), room)
            }) {
                Ok((bytes, all)) => {
                    let offers = offers(sender, all);
                    if let Some(slot) = this.first_read.take() {
                        this.refuse_descriptors();
                        slot.put(received(offers));
                    }
                    buf.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        while let (Some(descriptor), false) = (&this.outgoing, bytes.is_empty()) {
            ready!(this.stream.poll_write_ready(cx))?;
            match this
                .stream
                .try_io(Interest::WRITABLE, || send(&this.stream, bytes, descriptor))
            {
                Ok(written) => {
                    this.outgoing = None;
                    return Poll::Ready(Ok(written));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Pin::new(&mut this.stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
