//! Socket addresses and control messages as the kernel writes and reads them: octets in, octets out, no pointer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Octets of the largest socket address here.
pub(super) const NAME: usize = size_of::<libc::sockaddr_in6>();
/// Room for the control messages of either direction.
pub(super) const CONTROL: usize = 64;
/// Octets before the data of a control message, and what its parts are aligned to (cmsg(3)).
const HEADER: usize = size_of::<libc::cmsghdr>();
const WORD: usize = size_of::<usize>();
/// Room of the control message about cutting.
pub(super) const SEGMENT: usize = (HEADER + 2).next_multiple_of(WORD);

/// Octets that the kernel reads or writes as C structs.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Octets<const N: usize>(pub(super) [u8; N]);

/// The socket address inside the control message about the original destination.
pub(super) fn destination(control: &[u8]) -> Option<&[u8]> {
    let mut rest = control;
    loop {
        let length = usize::from_ne_bytes(*rest.first_chunk()?);
        let level = i32::from_ne_bytes(*rest.get(WORD..)?.first_chunk()?);
        let kind = i32::from_ne_bytes(*rest.get(WORD + 4..)?.first_chunk()?);
        let data = rest.get(HEADER..length)?;
        if matches!(
            (level, kind),
            (libc::SOL_IP, libc::IP_ORIGDSTADDR) | (libc::SOL_IPV6, libc::IPV6_ORIGDSTADDR)
        ) {
            return Some(data);
        }
        rest = rest.get(length.next_multiple_of(WORD)..)?;
    }
}

/// `sockaddr_in` or `sockaddr_in6`.
pub(super) fn read_name(octets: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*octets.first_chunk()?));
    let port = u16::from_be_bytes(*octets.get(2..)?.first_chunk()?);
    match family {
        libc::AF_INET => {
            let address: [u8; 4] = *octets.get(4..)?.first_chunk()?;
            Some((Ipv4Addr::from(address), port).into())
        }
        libc::AF_INET6 => {
            let address: [u8; 16] = *octets.get(8..)?.first_chunk()?;
            let scope = u32::from_ne_bytes(*octets.get(24..)?.first_chunk()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(address), port, 0, scope).into())
        }
        _ => None,
    }
}

/// Writes pieces one behind the other; returns where they end.
fn write<const N: usize>(into: &mut Octets<N>, mut at: usize, pieces: &[&[u8]]) -> usize {
    for piece in pieces {
        // the callers' pieces fit: both kinds of name, both kinds of packet information and a length
        if let Some(place) = into.0.get_mut(at..at + piece.len()) {
            place.copy_from_slice(piece);
        }
        at += piece.len();
    }
    at
}

/// The first field of a socket address.
fn family(number: i32) -> [u8; 2] {
    // families are small numbers
    u16::try_from(number).unwrap_or_default().to_ne_bytes()
}

pub(super) fn write_name(into: &mut Octets<NAME>, to: SocketAddr) -> usize {
    let port = to.port().to_be_bytes();
    match to {
        SocketAddr::V4(to) => {
            let family = family(libc::AF_INET);
            write(into, 0, &[&family, &port, &to.ip().octets(), &[0; 8]])
        }
        SocketAddr::V6(to) => {
            let family = family(libc::AF_INET6);
            let scope = to.scope_id().to_ne_bytes();
            let pieces: [&[u8]; 5] = [&family, &port, &[0; 4], &to.ip().octets(), &scope];
            write(into, 0, &pieces)
        }
    }
}

/// The header of a control message with so much data.
fn control(data: usize, level: i32, kind: i32) -> [u8; HEADER] {
    let mut head = [0; HEADER];
    let length = (HEADER + data).to_ne_bytes();
    let fields = length.into_iter().chain(level.to_ne_bytes());
    let fields = fields.chain(kind.to_ne_bytes());
    head.iter_mut()
        .zip(fields)
        .for_each(|(to, octet)| *to = octet);
    head
}

/// Packet information (ip(7), ipv6(7)): the source address, no interface.
pub(super) fn write_source(into: &mut Octets<CONTROL>, from: IpAddr) -> usize {
    let end = match from {
        IpAddr::V4(from) => {
            let head = control(12, libc::SOL_IP, libc::IP_PKTINFO);
            write(into, 0, &[&head, &[0; 4], &from.octets(), &[0; 4]])
        }
        IpAddr::V6(from) => {
            let head = control(20, libc::SOL_IPV6, libc::IPV6_PKTINFO);
            write(into, 0, &[&head, &from.octets(), &[0; 4]])
        }
    };
    end.next_multiple_of(WORD)
}

/// How long the pieces are that the kernel cuts.
pub(super) fn write_segment(into: &mut Octets<CONTROL>, at: usize, length: usize) -> usize {
    let head = control(2, libc::SOL_UDP, libc::UDP_SEGMENT);
    // no reply is longer than a datagram
    let length = u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes();
    write(into, at, &[&head, &length]);
    at + SEGMENT
}
