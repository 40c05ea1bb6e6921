//! Streams over Unix sockets that carry one descriptor with their first byte (SCM_RIGHTS).
//!
//! Only the first read offers the kernel room for descriptors; whatever is attached to later bytes is closed by the
//! kernel itself. More than one descriptor is kept apart as an error, all of them closed at once, so that a peer can
//! neither fill our descriptor table nor have us guess which one it meant.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

/// Room for this many, so that a second one is seen rather than cut off.
const ROOM: usize = 4;

/// What came with the first byte.
#[derive(Debug, Default)]
pub enum Received {
    /// No descriptor.
    #[default]
    Nothing,
    /// Exactly one.
    One(OwnedFd),
    /// More than one; all were closed.
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
    first_read: Option<Descriptor>,
    outgoing: Option<OwnedFd>,
}

impl Carrier {
    /// Server side: the first read accepts a descriptor.
    pub fn receiving(stream: UnixStream) -> (Self, Descriptor) {
        let descriptor = Descriptor::default();
        (
            Self {
                stream,
                first_read: Some(descriptor.clone()),
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
            outgoing: descriptor,
        }
    }
}

/// One non-blocking read that accepts descriptors.
fn receive(stream: &UnixStream, into: &mut [u8]) -> io::Result<(usize, Received)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(into)];
    let message = recvmsg(
        stream.as_fd(),
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
    let cut_off = message.flags.contains(ReturnFlags::CTRUNC);
    let received = match (all.pop(), all.is_empty() && !cut_off) {
        (None, true) => Received::Nothing,
        (Some(one), true) => Received::One(one),
        _ => Received::TooMany,
    };
    Ok((message.bytes, received))
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
        let Some(slot) = this.first_read.clone() else {
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        };
        loop {
            ready!(this.stream.poll_read_ready(cx))?;
            let room = buf.initialize_unfilled();
            match this
                .stream
                .try_io(Interest::READABLE, || receive(&this.stream, room))
            {
                Ok((bytes, received)) => {
                    slot.put(received);
                    this.first_read = None;
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
