//! The server name in QUIC: Initial packets are readable by whoever sees them (RFC 9001 5.2), so their hello is judged.
//!
//! One [`Inspector`] looks at every datagram that a session sends, not only at its first: another Initial on the same
//! ports is another connection, with another name. It reads versions 1 and 2. What belongs to a connection that exists
//! (short headers, Handshake, 0-RTT) passes: without an Initial that passed, no server takes it. Versions that cannot be
//! read pass by the lease alone: a known gap. Memory and work are bounded; every byte sequence gives an answer.
//!
//! | datagram | what is seen |
//! |---|---|
//! | an Initial whose hello is complete | the hello |
//! | an Initial with a part of it | more is needed; up to [`CONNECTIONS`] handshakes at once |
//! | an Initial that no key opens | [`Look::Sealed`] |
//! | a malformed Initial, two hellos in one | malformed |
//! | other packets of QUIC | pass |
//! | anything else | not QUIC |

mod crypto;
mod packet;

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::{Side, quic};

use self::crypto::Handshake;
use self::packet::{Initial, Packet, Version};
use super::hello::{Hello, Progress};

/// Handshakes of one session that are remembered; a client with more of them at once repeats its hello.
pub const CONNECTIONS: usize = 8;
/// RFC 9001 5.4.2: the sample begins four bytes behind the packet number's first.
const SAMPLE_AT: usize = 4;

/// What a datagram is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look {
    /// Nothing to judge.
    Pass,
    /// A hello, complete.
    Hello(Hello),
    /// Part of a hello: hold the datagram back.
    Need,
    /// An Initial that cannot be read.
    Sealed,
    /// An Initial that is wrong or ambiguous.
    Malformed(&'static str),
    /// Not QUIC.
    NotQuic,
}

impl Look {
    fn rank(&self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::NotQuic => 1,
            Self::Sealed => 2,
            Self::Need => 3,
            // never hidden: what is not told now is not told again
            Self::Hello(_) => 4,
            Self::Malformed(_) => 5,
        }
    }

    /// What two packets of one datagram are together: the one that asks for more care.
    fn and(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Hello(_), Self::Hello(_)) => Self::Malformed("two hellos in one datagram"),
            _ if other.rank() > self.rank() => other,
            _ => self,
        }
    }
}

/// Reads the hellos of one session.
#[derive(Default)]
pub struct Inspector {
    connections: Vec<Connection>,
}

impl std::fmt::Debug for Inspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspector")
            .field("connections", &self.connections.len())
            .finish()
    }
}

/// A handshake, known by the connection id that its keys come from.
struct Connection {
    /// Keys of both versions: a server may change the version while the client's id stays.
    keys: [Option<quic::DirectionalKeys>; 2],
    /// The highest packet number that was opened.
    highest: u64,
    handshake: Handshake,
}

impl Connection {
    fn new(id: &[u8]) -> Self {
        let keys = |version| Some(suite()?.keys(id, Side::Server, version).remote);
        Self {
            keys: [quic::Version::V1, quic::Version::V2].map(keys),
            highest: 0,
            handshake: Handshake::default(),
        }
    }

    /// The frames of a packet, if these keys open it.
    fn open(&mut self, initial: &Initial<'_>) -> Option<Vec<u8>> {
        let [one, two] = &self.keys;
        let keys = match initial.version {
            Version::One => one,
            Version::Two => two,
        };
        let (number, frames) = unprotect(keys.as_ref()?, initial, self.highest)?;
        self.highest = self.highest.max(number);
        Some(frames)
    }
}

fn suite() -> Option<quic::Suite> {
    TLS13_AES_128_GCM_SHA256.tls13()?.quic_suite()
}

impl Inspector {
    /// Whether any handshake was opened.
    pub fn has_connections(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Looks at a datagram from the client.
    pub fn look(&mut self, datagram: &[u8]) -> Look {
        let mut rest = datagram;
        let mut seen = None;
        let mut one = None;
        loop {
            let (look, following) = match packet::next(rest) {
                // RFC 9000 12.2: the packets of one datagram are of one connection
                Packet::Initial(initial, _)
                    if one.is_some_and(|before| before != initial.key()) =>
                {
                    return Look::Malformed("two handshakes in one datagram");
                }
                Packet::Short | Packet::UnknownVersion => (Look::Pass, &[][..]),
                Packet::Other(following) => (Look::Pass, following),
                Packet::Initial(initial, following) => {
                    one = Some(initial.key());
                    (self.initial(&initial), following)
                }
                // padding behind the packets of a datagram is no packet
                Packet::NotQuic if seen.is_some() => (Look::Pass, &[][..]),
                Packet::NotQuic => (Look::NotQuic, &[][..]),
            };
            let both = match seen {
                None => look,
                Some(before) => Look::and(before, look),
            };
            if following.is_empty() || matches!(both, Look::Malformed(_)) {
                return both;
            }
            (rest, seen) = (following, Some(both));
        }
    }

    fn initial(&mut self, initial: &Initial<'_>) -> Look {
        let known = self.connections.iter_mut().find_map(|connection| {
            let payload = connection.open(initial)?;
            Some(connection.frames(&payload))
        });
        if let Some(look) = known {
            return look;
        }
        let mut connection = Connection::new(initial.destination);
        let Some(payload) = connection.open(initial) else {
            return Look::Sealed;
        };
        let look = connection.frames(&payload);
        if self.connections.len() == CONNECTIONS {
            self.connections.remove(0);
        }
        self.connections.push(connection);
        look
    }
}

impl Connection {
    fn frames(&mut self, payload: &[u8]) -> Look {
        let was_read = self.handshake.is_read();
        match self.handshake.frames(payload) {
            Progress::Hello(hello) => Look::Hello(hello),
            Progress::Malformed(why) => Look::Malformed(why),
            Progress::Need if was_read => Look::Pass,
            Progress::Need => Look::Need,
            Progress::NotTls => Look::Malformed("a handshake that is no TLS"),
        }
    }
}

/// Removes header protection and decrypts (RFC 9001 5.4 and 5.3). The packet itself is not changed.
fn unprotect(
    keys: &quic::DirectionalKeys,
    initial: &Initial<'_>,
    highest: u64,
) -> Option<(u64, Vec<u8>)> {
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
    let opened = keys.packet.decrypt_in_place(number, header, payload).ok()?;
    Some((number, opened.to_vec()))
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
