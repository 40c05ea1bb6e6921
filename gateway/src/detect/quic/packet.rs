//! The packets of one datagram, as far as their headers are readable without keys (RFC 9000 17.2, RFC 9369 3.2).

use crate::detect::wire::Wire;

/// RFC 9000 17.2: connection ids of the known versions are at most this long.
const MOST_ID: usize = 20;
/// QUIC version 1.
const V1: u32 = 1;
/// QUIC version 2 (RFC 9369).
const V2: u32 = 0x6b33_43cf;

/// The versions whose Initial packets can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    One,
    Two,
}

impl Version {
    fn of(number: u32) -> Option<Self> {
        match number {
            V1 => Some(Self::One),
            V2 => Some(Self::Two),
            _ => None,
        }
    }

    /// The two type bits of an Initial.
    fn initial(self) -> u8 {
        match self {
            Self::One => 0,
            Self::Two => 1,
        }
    }

    /// The two type bits of a Retry, which has no length.
    fn retry(self) -> u8 {
        match self {
            Self::One => 3,
            Self::Two => 0,
        }
    }
}

/// An Initial packet: what keys and unprotection need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Initial<'a> {
    pub version: Version,
    /// The bit that RFC 9287 lets clients clear.
    pub fixed: bool,
    pub destination: &'a [u8],
    pub token: &'a [u8],
    /// The whole packet, header first.
    pub bytes: &'a [u8],
    /// Where the packet number begins.
    pub number_at: usize,
}

impl<'a> Initial<'a> {
    /// What all Initials of one datagram have in common.
    pub fn key(&self) -> (Version, &'a [u8]) {
        (self.version, self.destination)
    }

    /// What makes a server read a packet or drop it: all pieces of one hello share it, so it reads all or none.
    pub fn manner(&self) -> Manner {
        (self.version, self.fixed, self.token.into())
    }
}

/// Version, fixed bit and token of an Initial.
pub(super) type Manner = (Version, bool, Box<[u8]>);

/// What stands at the beginning of a datagram's rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Packet<'a> {
    /// An Initial of a known version, and what follows it.
    Initial(Initial<'a>, &'a [u8]),
    /// Another packet with a long header of a known version, and what follows it.
    Other(&'a [u8]),
    /// A short header: the rest of the datagram belongs to a connection that exists.
    Short,
    /// A long header of a version that cannot be read, which takes the rest of the datagram.
    UnknownVersion,
    /// Not QUIC, or not from a client.
    NotQuic,
}

/// Reads the next packet; `rest` is not empty.
pub(super) fn next(rest: &[u8]) -> Packet<'_> {
    let Some(first) = rest.first().copied() else {
        return Packet::NotQuic;
    };
    let fixed = first & 0x40 != 0;
    if first & 0x80 == 0 {
        return if fixed {
            Packet::Short
        } else {
            Packet::NotQuic
        };
    }
    let number = rest.get(1..5).and_then(|b| b.first_chunk::<4>());
    let Some(number) = number.map(|b| u32::from_be_bytes(*b)) else {
        return Packet::NotQuic;
    };
    match Version::of(number) {
        // version negotiation is said by servers only
        None if number == 0 => Packet::NotQuic,
        None => Packet::UnknownVersion,
        Some(version) => known(rest, version, first).unwrap_or(Packet::NotQuic),
    }
}

fn known(rest: &[u8], version: Version, first: u8) -> Option<Packet<'_>> {
    let kind = (first >> 4) & 3;
    if kind == version.retry() {
        return None;
    }
    let mut wire = Wire::new(rest.get(5..)?);
    let destination = wire.vector8()?.rest();
    let source = wire.vector8()?.rest();
    if destination.len() > MOST_ID || source.len() > MOST_ID {
        return None;
    }
    let is_initial = kind == version.initial();
    let mut token = &[][..];
    if is_initial {
        let length = varint(&mut wire)?;
        token = wire.take(length)?;
    }
    let length = varint(&mut wire)?;
    let number_at = rest.len() - wire.rest().len();
    wire.take(length)?;
    let following = wire.rest();
    if !is_initial {
        return Some(Packet::Other(following));
    }
    let initial = Initial {
        version,
        fixed: first & 0x40 != 0,
        destination,
        token,
        bytes: rest.get(..rest.len() - following.len())?,
        number_at,
    };
    Some(Packet::Initial(initial, following))
}

/// A variable-length integer (RFC 9000 16) that fits the address space of a datagram.
pub(super) fn varint(wire: &mut Wire<'_>) -> Option<usize> {
    let first = wire.u8()?;
    let mut value = u64::from(first & 0x3f);
    for byte in wire.take((1 << (first >> 6)) - 1)? {
        value = (value << 8) | u64::from(*byte);
    }
    usize::try_from(value).ok()
}
