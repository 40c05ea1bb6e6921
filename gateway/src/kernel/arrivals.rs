//! What the UDP door gets: batches of datagrams, each with its sender, the address that it was sent to and its hop count.
//!
//! Owns the reading of control messages. A datagram that was cut, or whose addresses are not told, is left out.
//!
//! JUSTIFICATION for unsafe: an address that the kernel wrote has to be called one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use socket2::{SockAddr, SockAddrStorage};

use super::sessions::{BATCH, CONTROL, each_control, empty_heads, no_parts, receive_many};

/// The longest that crosses a sandbox's link whole (fragments are dropped), with room for larger links.
const ARRIVAL: usize = 9216;

/// One datagram as the door got it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival<'a> {
    /// The sandbox.
    pub from: SocketAddr,
    /// The address and port that it was sent to.
    pub to: SocketAddr,
    /// Its time to live; a router would not pass 1 on.
    pub hops: u8,
    /// What it says.
    pub bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    from: SocketAddr,
    to: SocketAddr,
    hops: u8,
    slot: usize,
    length: usize,
}

/// Room for what a door gets at once.
#[derive(Debug)]
pub struct Arrivals {
    bytes: Vec<u8>,
    seen: Vec<Seen>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            bytes: vec![0; BATCH * ARRIVAL],
            seen: Vec::with_capacity(BATCH),
        }
    }
}

impl Arrivals {
    /// Reads what a door has, at most a batch. One that was cut or has no address is left out.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.seen.clear();
        let mut parts = no_parts();
        let mut heads = empty_heads();
        let mut controls = [[0_u64; CONTROL / 8]; BATCH];
        let mut names: [_; BATCH] = std::array::from_fn(|_| SockAddrStorage::zeroed());
        let slots = self.bytes.chunks_exact_mut(ARRIVAL);
        let rooms = slots.zip(&mut parts).zip(&mut controls).zip(&mut names);
        for ((((slot, part), control), name), head) in rooms.zip(&mut heads) {
            part.iov_base = slot.as_mut_ptr().cast();
            part.iov_len = slot.len();
            head.msg_hdr.msg_iov = part;
            head.msg_hdr.msg_iovlen = 1;
            head.msg_hdr.msg_control = control.as_mut_ptr().cast();
            head.msg_hdr.msg_controllen = CONTROL;
            head.msg_hdr.msg_namelen = name.size_of();
            head.msg_hdr.msg_name = (&raw mut *name).cast();
        }
        let count = receive_many(socket, &mut heads)?;
        for (slot, (head, name)) in heads.iter().zip(names).take(count).enumerate() {
            // SAFETY: the kernel wrote an address of this length.
            let from = unsafe { SockAddr::new(name, head.msg_hdr.msg_namelen) };
            let whole = head.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0;
            let (to, hops) = destination(&head.msg_hdr);
            if let (true, Some(from), Some(to)) = (whole, from.as_socket(), to) {
                let length = head.msg_len as usize;
                self.seen.push(Seen {
                    from,
                    to,
                    hops,
                    slot,
                    length,
                });
            }
        }
        Ok(())
    }

    /// What was read, oldest first.
    pub fn all(&self) -> impl Iterator<Item = Arrival<'_>> {
        self.seen.iter().map(|seen| {
            let begin = seen.slot * ARRIVAL;
            Arrival {
                from: seen.from,
                to: seen.to,
                hops: seen.hops,
                bytes: self
                    .bytes
                    .get(begin..begin + seen.length)
                    .unwrap_or_default(),
            }
        })
    }
}

fn destination(head: &libc::msghdr) -> (Option<SocketAddr>, u8) {
    let (mut to, mut hops) = (None, 0);
    each_control(head, |level, kind, data| match (level, kind) {
        (libc::SOL_IP, libc::IP_ORIGDSTADDR) => to = address4(data),
        (libc::SOL_IPV6, libc::IPV6_ORIGDSTADDR) => to = address6(data),
        (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) => {
            let value = data.first_chunk::<4>().map(|b| i32::from_ne_bytes(*b));
            hops = value.and_then(|v| u8::try_from(v).ok()).unwrap_or(0);
        }
        _ => {}
    });
    (to, hops)
}

/// `struct sockaddr_in`: family, port, address.
fn address4(data: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*data.get(2..4)?.first_chunk()?);
    let octets: [u8; 4] = *data.get(4..8)?.first_chunk()?;
    Some((IpAddr::V4(Ipv4Addr::from(octets)), port).into())
}

/// `struct sockaddr_in6`: family, port, flow, address.
fn address6(data: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*data.get(2..4)?.first_chunk()?);
    let octets: [u8; 16] = *data.get(8..24)?.first_chunk()?;
    Some((IpAddr::V6(Ipv6Addr::from(octets)), port).into())
}
