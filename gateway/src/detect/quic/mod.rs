//! The server name in QUIC: Initial packets are readable by whoever sees them (RFC 9001 5.2), so their hello is judged.
//!
//! One [`Inspector`] looks at every datagram that a session sends, not only at its first: another Initial on the same
//! ports is another connection, with another name. It reads versions 1 and 2. Versions that cannot be read pass by the
//! lease alone: a known gap. Memory and work are bounded; every byte sequence gives an answer.
//!
//! | datagram | what is seen |
//! |---|---|
//! | an Initial whose hello is complete | the hello; [`Inspector::released`] has the pieces before it |
//! | an Initial with a part of it | more is needed, and the datagram is kept here, with its handshake |
//! | an Initial that servers drop, or that cannot be read | drop |
//! | a malformed Initial, two hellos in one | malformed |
//! | other packets of QUIC | the middle of a connection |
//! | a version that cannot be read | pass |
//! | anything else | not QUIC |
//!
//! What is judged here must be what the server reads. It reads all pieces of a hello or none: they share version, token
//! and fixed bit, no packet number comes twice, and what a server must drop goes no further (short datagrams, RFC 9000
//! 14.1; short ids, 7.2). A piece leaves only with its whole hello, and [`Known`] keeps a handshake in one session.

mod crypto;
mod known;
mod packet;

use std::collections::BTreeSet;

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::{Side, quic};

use self::crypto::Handshake;
use self::known::Claim;
pub use self::known::{Claims, Known};
use self::packet::{Initial, Manner, Packet, Version};
use super::hello::{Hello, Progress};

/// Handshakes of one session that are remembered; a client with more of them at once repeats its hello.
pub const CONNECTIONS: usize = 8;
/// Datagrams with a piece of one hello that are kept until it is complete.
const PIECES: usize = 16;
/// RFC 9000 14.1: a server drops Initials of shorter datagrams.
const LEAST_DATAGRAM: usize = 1200;
/// RFC 9000 7.2: a server drops a first Initial with a shorter id.
const LEAST_ID: usize = 8;
/// Packet numbers of one handshake; clients need a handful.
const MOST_NUMBERS: usize = 1024;
/// RFC 9000 17.2: bits that are zero under the protection.
const RESERVED: u8 = 0x0c;
/// RFC 9001 5.4.2: the sample begins four bytes behind the packet number's first.
const SAMPLE_AT: usize = 4;

/// What a datagram is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look {
    /// A version of QUIC that cannot be read.
    Pass,
    /// Of a connection that exists: no server takes it without an Initial that was judged.
    Middle,
    /// A hello, complete.
    Hello(Hello),
    /// Part of a hello; it is kept.
    Need,
    /// What a server would drop, or could read and we cannot.
    Drop(&'static str),
    /// An Initial that is wrong or ambiguous.
    Malformed(&'static str),
    /// Not QUIC.
    NotQuic,
}

impl Look {
    fn rank(&self) -> u8 {
        match self {
            Self::Middle => 0,
            Self::Pass => 1,
            Self::NotQuic => 2,
            Self::Need => 3,
            Self::Drop(_) => 4,
            Self::Hello(_) => 5,
            Self::Malformed(_) => 6,
        }
    }

    /// What two packets of one datagram are together: the one that asks for more care.
    fn and(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Hello(_), Self::Hello(_)) => Self::Malformed("two hellos in one datagram"),
            // it is told only once, so it may not be lost with its neighbour
            (Self::Hello(_), Self::Drop(_)) | (Self::Drop(_), Self::Hello(_)) => {
                Self::Malformed("a hello beside what cannot be read")
            }
            _ if other.rank() > self.rank() => other,
            _ => self,
        }
    }
}

/// Reads the hellos of one session.
pub struct Inspector {
    claims: Claims,
    connections: Vec<Connection>,
    released: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Inspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspector")
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}

/// A handshake, known by the connection id that its keys come from.
struct Connection {
    /// Keys of both versions: a server may change the version while the client's id stays.
    keys: [Option<quic::DirectionalKeys>; 2],
    /// Packet numbers that were opened: servers drop what comes twice.
    numbers: BTreeSet<u64>,
    /// How its packets are written, until its hello is read.
    manner: Option<Manner>,
    handshake: Handshake,
    /// Datagrams with pieces of its hello.
    pieces: Vec<Vec<u8>>,
    claim: Claim,
}

/// An Initial that was decrypted.
struct Opened {
    number: u64,
    /// Whether the bits are zero that must be.
    is_sound: bool,
    frames: Vec<u8>,
}

impl Connection {
    fn new(id: &[u8], claim: Claim) -> Self {
        Self {
            keys: keys_of(id),
            numbers: BTreeSet::new(),
            manner: None,
            handshake: Handshake::default(),
            pieces: Vec::new(),
            claim,
        }
    }

    /// The packet, if these keys open it.
    fn open(&self, initial: &Initial<'_>) -> Option<Opened> {
        let highest = self.numbers.last().copied().unwrap_or_default();
        open(&self.keys, initial, highest)
    }

    /// Takes a packet in.
    fn take(&mut self, initial: &Initial<'_>, opened: &Opened) -> Look {
        if !opened.is_sound {
            return Look::Malformed("reserved bits that are set");
        }
        if !self.numbers.insert(opened.number) {
            return Look::Drop("a packet number twice");
        }
        if self.numbers.len() > MOST_NUMBERS {
            return Look::Malformed("a handshake without end");
        }
        let was_read = self.handshake.is_read();
        let manner = initial.manner();
        if !was_read && *self.manner.get_or_insert_with(|| manner.clone()) != manner {
            return Look::Malformed("a hello written in two manners");
        }
        match self.handshake.frames(&opened.frames) {
            Progress::Hello(hello) => Look::Hello(hello),
            Progress::Malformed(why) => Look::Malformed(why),
            Progress::Need if was_read => Look::Middle,
            Progress::Need => Look::Need,
            Progress::NotTls => Look::Malformed("a handshake that is no TLS"),
        }
    }
}

fn keys_of(id: &[u8]) -> [Option<quic::DirectionalKeys>; 2] {
    let keys = |version| Some(suite()?.keys(id, Side::Server, version).remote);
    [quic::Version::V1, quic::Version::V2].map(keys)
}

fn open(
    keys: &[Option<quic::DirectionalKeys>; 2],
    initial: &Initial<'_>,
    highest: u64,
) -> Option<Opened> {
    let [one, two] = keys;
    let keys = match initial.version {
        Version::One => one,
        Version::Two => two,
    };
    unprotect(keys.as_ref()?, initial, highest)
}

fn suite() -> Option<quic::Suite> {
    TLS13_AES_128_GCM_SHA256.tls13()?.quic_suite()
}

impl Inspector {
    /// For one session.
    pub fn new(claims: Claims) -> Self {
        Self {
            claims,
            connections: Vec::new(),
            released: Vec::new(),
        }
    }

    /// Whether any hello was read.
    pub fn has_connections(&self) -> bool {
        self.connections.iter().any(|c| c.handshake.is_read())
    }

    /// Whether pieces of a hello are held back that is not complete.
    pub fn is_waiting(&self) -> bool {
        self.connections.iter().any(|c| !c.pieces.is_empty())
    }

    /// The earlier datagrams of the hello that was read last, in order, now that it is permitted: they go first.
    pub fn released(&mut self) -> Vec<Vec<u8>> {
        if let Some(connection) = self.connections.last_mut() {
            connection.claim.keep();
        }
        std::mem::take(&mut self.released)
    }

    /// Looks at a datagram from the client.
    pub fn look(&mut self, datagram: &[u8]) -> Look {
        let mut rest = datagram;
        let mut seen = None;
        let mut one = None;
        let both = loop {
            let (look, following) = match packet::next(rest) {
                Packet::Initial(..) if datagram.len() < LEAST_DATAGRAM => {
                    return Look::Drop("an Initial in a short datagram");
                }
                // RFC 9000 12.2: the packets of one datagram are of one connection
                Packet::Initial(initial, _)
                    if one.is_some_and(|before| before != initial.key()) =>
                {
                    return Look::Malformed("two handshakes in one datagram");
                }
                Packet::Short => (Look::Middle, &[][..]),
                Packet::UnknownVersion => (Look::Pass, &[][..]),
                Packet::Other(following) => (Look::Middle, following),
                Packet::Initial(initial, following) => {
                    one = Some(initial.key());
                    (self.initial(&initial), following)
                }
                // padding behind the packets of a datagram is no packet
                Packet::NotQuic if seen.is_some() => (Look::Middle, &[][..]),
                Packet::NotQuic => (Look::NotQuic, &[][..]),
            };
            let both = match seen {
                None => look,
                Some(before) => Look::and(before, look),
            };
            if following.is_empty() || matches!(both, Look::Malformed(_)) {
                break both;
            }
            (rest, seen) = (following, Some(both));
        };
        if one.is_some() {
            self.keep_or_release(&both, datagram);
        }
        both
    }

    /// A piece stays with its handshake; a hello brings them all.
    fn keep_or_release(&mut self, look: &Look, datagram: &[u8]) {
        let Some(connection) = self.connections.last_mut() else {
            return;
        };
        match look {
            Look::Need if connection.pieces.len() < PIECES => {
                connection.pieces.push(datagram.to_vec());
            }
            Look::Hello(_) => {
                self.released = std::mem::take(&mut connection.pieces);
            }
            _ => {}
        }
    }

    /// Reads one Initial. Its handshake is the last of the list afterwards.
    fn initial(&mut self, initial: &Initial<'_>) -> Look {
        let mut known = self.connections.iter().enumerate();
        let opened = known.find_map(|(at, connection)| Some((at, connection.open(initial)?)));
        if let Some((at, opened)) = opened {
            let connection = self.connections.remove(at);
            self.connections.push(connection);
            return match self.connections.last_mut() {
                Some(connection) => connection.take(initial, &opened),
                None => Look::Drop("no handshake"),
            };
        }
        if initial.destination.len() < LEAST_ID {
            return Look::Drop("a short connection id");
        }
        let Some(opened) = open(&keys_of(initial.destination), initial, 0) else {
            return Look::Drop("an Initial that no key opens");
        };
        let Some(claim) = self.claims.claim(initial.destination) else {
            return Look::Drop("a handshake of another session");
        };
        if self.connections.len() == CONNECTIONS {
            // with its pieces; its id stays taken, so it does not come back
            self.connections.remove(0).claim.keep();
        }
        let mut connection = Connection::new(initial.destination, claim);
        let look = connection.take(initial, &opened);
        self.connections.push(connection);
        look
    }
}

/// Removes header protection and decrypts (RFC 9001 5.4 and 5.3). The packet itself is not changed.
fn unprotect(keys: &quic::DirectionalKeys, initial: &Initial<'_>, highest: u64) -> Option<Opened> {
    let mut copy = initial.bytes.to_vec();
    let (head, tail) = copy.split_at_mut_checked(initial.number_at)?;
    let length = keys.header.sample_len();
    let sample: Vec<u8> = tail.get(SAMPLE_AT..SAMPLE_AT + length)?.to_vec();
    let (first, number) = (head.first_mut()?, tail.get_mut(..4)?);
    keys.header.decrypt_in_place(&sample, first, number).ok()?;
    let digits = usize::from(*first & 3) + 1;
    let cut = number.get(..digits)?;
    let cut = cut.iter().fold(0, |n, b| (n << 8) | u64::from(*b));
    let number = packet_number(highest, cut, digits);
    let (header, payload) = copy.split_at_mut_checked(initial.number_at + digits)?;
    let is_sound = header.first()? & RESERVED == 0;
    let opened = keys.packet.decrypt_in_place(number, header, payload).ok()?;
    Some(Opened {
        number,
        is_sound,
        frames: opened.to_vec(),
    })
}

/// The whole number from its last bytes (RFC 9000 A.3).
fn packet_number(highest: u64, cut: u64, digits: usize) -> u64 {
    let window = 1_u64 << (8 * digits);
    let expected = highest + 1;
    let candidate = (expected & !(window - 1)) | cut;
    if candidate + window / 2 <= expected {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}
