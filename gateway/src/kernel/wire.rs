//! Netlink attributes, written and read with bounds checked; shared by read-back, monitor and queue.
//!
//! Owns no socket option and no meaning of an attribute. What arrives is the kernel's, but is parsed as if it were not.

use std::io;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

/// Without the nested and byte-order flags.
const TYPE_MASK: u16 = 0x3fff;
/// `struct nlmsghdr` and `struct nfgenmsg`.
pub(super) const HEADER: usize = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;

/// Builds one netfilter message.
#[derive(Debug)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// `kind` is subsystem and message, `resource` the queue number or 0.
    pub(super) fn new(kind: u16, flags: u16, family: u8, resource: u16) -> Self {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend([0; 4]);
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend([family, 0]);
        bytes.extend(resource.to_be_bytes());
        Self { bytes }
    }

    /// Adds an attribute.
    pub(super) fn attr(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    /// Adds a NUL-terminated string.
    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attr(kind, &bytes)
    }

    /// The finished bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len())
            .unwrap_or(u32::MAX)
            .to_ne_bytes();
        for (to, from) in self.bytes.iter_mut().zip(length) {
            *to = from;
        }
        self.bytes
    }
}

/// One attribute: type and value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attr<'a> {
    pub(super) kind: u16,
    pub(super) value: &'a [u8],
}

impl<'a> Attr<'a> {
    pub(super) fn nested(self) -> Attrs<'a> {
        Attrs(self.value)
    }

    pub(super) fn be32(self) -> Option<u32> {
        self.value.try_into().ok().map(u32::from_be_bytes)
    }

    pub(super) fn be64(self) -> Option<u64> {
        self.value.try_into().ok().map(u64::from_be_bytes)
    }

    pub(super) fn be16(self) -> Option<u16> {
        self.value.try_into().ok().map(u16::from_be_bytes)
    }

    pub(super) fn byte(self) -> Option<u8> {
        self.value.first().copied()
    }

    pub(super) fn text(self) -> Option<&'a str> {
        let end = self
            .value
            .iter()
            .position(|b| *b == 0)
            .unwrap_or(self.value.len());
        self.value
            .get(..end)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
    }
}

/// A run of attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attrs<'a>(pub(super) &'a [u8]);

impl<'a> Attrs<'a> {
    /// The first attribute of a type.
    pub(super) fn find(self, kind: u16) -> Option<Attr<'a>> {
        self.iter().find(|attr| attr.kind == kind)
    }

    /// All of them; ends at the first whose length does not fit.
    pub(super) fn iter(self) -> impl Iterator<Item = Attr<'a>> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let [l0, l1, k0, k1] = *rest.first_chunk::<4>()?;
            let length = usize::from(u16::from_ne_bytes([l0, l1]));
            let value = rest.get(4..length)?;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
            Some(Attr {
                kind: u16::from_ne_bytes([k0, k1]) & TYPE_MASK,
                value,
            })
        })
    }
}

/// One received message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) port: u32,
    /// After `struct nlmsghdr`.
    pub(super) body: &'a [u8],
}

impl<'a> Received<'a> {
    /// Attributes after `struct nfgenmsg`.
    pub(super) fn attrs(self) -> Attrs<'a> {
        Attrs(self.body.get(HEADER - 16..).unwrap_or(&[]))
    }

    /// The family in `struct nfgenmsg`.
    pub(super) fn family(self) -> Option<u8> {
        self.body.first().copied()
    }

    /// Errno of an error message; 0 is an acknowledgement.
    pub(super) fn error(self) -> Option<i32> {
        (self.kind == NLMSG_ERROR).then(|| {
            let code = self
                .body
                .first_chunk::<4>()
                .map_or(-libc::EPROTO, |bytes| i32::from_ne_bytes(*bytes));
            -code
        })
    }
}

/// The messages of one datagram.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let (head, _) = bytes.split_first_chunk::<16>()?;
        let [l0, l1, l2, l3, k0, k1, f0, f1, _, _, _, _, p0, p1, p2, p3] = *head;
        let length = usize::try_from(u32::from_ne_bytes([l0, l1, l2, l3])).ok()?;
        let body = bytes.get(16..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Received {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            port: u32::from_ne_bytes([p0, p1, p2, p3]),
            body,
        })
    })
}

/// Opens a netfilter socket in the namespace of the calling thread.
pub(super) fn netfilter_socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    Ok(socket)
}

/// How often a dump that the kernel says was torn by a concurrent change is asked for again.
const DUMP_ATTEMPTS: usize = 8;

/// Asks for a dump and hands every message to `each`; starts anew when the kernel says that the dump was torn.
pub(super) fn dump<T>(
    socket: &Socket,
    request: impl Fn(u16) -> Message,
    each: impl Fn(Received<'_>) -> io::Result<Option<T>>,
) -> io::Result<Vec<T>> {
    for _ in 0..DUMP_ATTEMPTS {
        if let Some(found) = dump_once(socket, request(NLM_F_DUMP), &each)? {
            return Ok(found);
        }
    }
    Err(io::Error::from_raw_os_error(libc::EINTR))
}

/// `None`: torn.
fn dump_once<T>(
    socket: &Socket,
    request: Message,
    each: &impl Fn(Received<'_>) -> io::Result<Option<T>>,
) -> io::Result<Option<Vec<T>>> {
    socket.send_to(&request.finish(), &SocketAddr::new(0, 0), 0)?;
    let mut found = Vec::new();
    let mut torn = false;
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        for message in messages(&bytes) {
            torn |= message.flags & NLM_F_DUMP_INTR != 0;
            match (message.kind, message.error()) {
                (NLMSG_DONE, _) => return Ok((!torn).then_some(found)),
                (_, Some(errno)) => return Err(io::Error::from_raw_os_error(errno)),
                _ => found.extend(each(message)?),
            }
        }
    }
}
