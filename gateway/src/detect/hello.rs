//! The TLS ClientHello, read by structure across records and segments (RFC 8446 4.1.2 and 5.1, RFC 6066 3).
//!
//! Owns nothing but the bytes of one hello. Every legal hello up to 64 KiB is read, large post-quantum key shares and
//! hellos cut into one-byte records included. Anything that two servers could read differently (two names, a doubled
//! extension, bytes after the end, an empty record in the middle) is malformed. The ECH extension is not looked at:
//! browsers send a decoy, so the outer name decides. A second hello after HelloRetryRequest is not seen: it goes to the
//! same server.

use std::collections::HashSet;

use netpolicy::name::Name;

use super::wire::Wire;

/// A hello longer than this is refused; real ones stay under 20 KiB.
const MOST_HANDSHAKE: usize = 64 * 1024;
/// Records may be small, but a hello of the longest kind in one-byte records is nothing but an attack.
const MOST_RAW: usize = 128 * 1024;
/// RFC 8446 5.1: a plaintext record carries at most this.
const MOST_RECORD: usize = 1 << 14;
/// Record header: type, version, length.
const HEADER: usize = 5;
/// ALPN offers that are kept for the record.
const MOST_ALPN: usize = 8;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;

/// A well-formed ClientHello, as far as decisions and the record need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The one server name.
    pub name: Option<Name>,
    /// The first protocol offers, lossy text.
    pub alpn: Vec<String>,
}

/// What the bytes so far are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// A prefix of a hello: more bytes decide.
    Need,
    /// A hello.
    Hello(Hello),
    /// Not TLS at all.
    NotTls,
    /// TLS that is wrong, ambiguous or too long. Says what, for the log.
    Malformed(&'static str),
}

/// Reads a hello that arrives in pieces; each byte is looked at a constant number of times.
#[derive(Debug, Default)]
pub struct HelloReader {
    at: usize,
    handshake: Vec<u8>,
}

impl HelloReader {
    /// Looks at everything received so far (`raw` only grows between calls).
    pub fn advance(&mut self, raw: &[u8]) -> Progress {
        if let Some(early) = first_bytes(raw) {
            return early;
        }
        loop {
            let Some(rest) = raw.get(self.at..) else {
                return Progress::Malformed("bytes went backwards");
            };
            match record(rest) {
                Record::Need if raw.len() > MOST_RAW => {
                    return Progress::Malformed("too many bytes");
                }
                Record::Need => return Progress::Need,
                Record::Malformed(why) => return Progress::Malformed(why),
                Record::Fragment(fragment) => {
                    self.at += HEADER + fragment.len();
                    self.handshake.extend_from_slice(fragment);
                }
            }
            if self.at > MOST_RAW {
                return Progress::Malformed("too many bytes");
            }
            match message(&self.handshake) {
                Message::Need => {}
                Message::Malformed(why) => return Progress::Malformed(why),
                Message::Body(body) => {
                    return parse(body).map_or_else(Progress::Malformed, Progress::Hello);
                }
            }
        }
    }
}

/// Tells TLS from the rest as early as the bytes allow.
fn first_bytes(raw: &[u8]) -> Option<Progress> {
    match raw {
        [] | [HANDSHAKE] => Some(Progress::Need),
        [HANDSHAKE, 3, ..] => None,
        // an SSLv2 hello among them: it carries no name, and no rule that wants TLS takes it for one
        _ => Some(Progress::NotTls),
    }
}

enum Record<'a> {
    Need,
    Fragment(&'a [u8]),
    Malformed(&'static str),
}

fn record(bytes: &[u8]) -> Record<'_> {
    if let Some(kind) = bytes.first()
        && *kind != HANDSHAKE
    {
        return Record::Malformed("another record inside the hello");
    }
    if let Some(major) = bytes.get(1)
        && *major != 3
    {
        return Record::Malformed("a record version that is not 3.x");
    }
    let Some(&[_, _, _, high, low]) = bytes.first_chunk::<HEADER>() else {
        return Record::Need;
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length == 0 {
        return Record::Malformed("an empty record");
    }
    if length > MOST_RECORD {
        return Record::Malformed("a record that is too long");
    }
    bytes
        .get(HEADER..HEADER + length)
        .map_or(Record::Need, Record::Fragment)
}

/// Reads a hello that stands without records, as QUIC carries it.
pub(super) fn read_message(handshake: &[u8]) -> Progress {
    match message(handshake) {
        Message::Need => Progress::Need,
        Message::Malformed(why) => Progress::Malformed(why),
        Message::Body(body) => parse(body).map_or_else(Progress::Malformed, Progress::Hello),
    }
}

enum Message<'a> {
    Need,
    Body(&'a [u8]),
    Malformed(&'static str),
}

fn message(handshake: &[u8]) -> Message<'_> {
    if let Some(kind) = handshake.first()
        && *kind != CLIENT_HELLO
    {
        return Message::Malformed("a handshake that does not begin with a ClientHello");
    }
    let Some(&[_, a, b, c]) = handshake.first_chunk::<4>() else {
        return Message::Need;
    };
    let length = (usize::from(a) << 16) | (usize::from(b) << 8) | usize::from(c);
    if length > MOST_HANDSHAKE {
        return Message::Malformed("a hello that is too long");
    }
    let body = handshake.get(4..).unwrap_or_default();
    match body.len().cmp(&length) {
        std::cmp::Ordering::Less => Message::Need,
        std::cmp::Ordering::Equal => Message::Body(body),
        std::cmp::Ordering::Greater => Message::Malformed("bytes after the hello in its record"),
    }
}

fn parse(body: &[u8]) -> Result<Hello, &'static str> {
    let mut wire = Wire::new(body);
    let version = wire.u16().ok_or("no version")?;
    if version >> 8 != 3 {
        return Err("a hello version that is not 3.x");
    }
    wire.take(32).ok_or("no random")?;
    let session = wire.vector8().ok_or("no session id")?;
    let suites = wire.vector16().ok_or("no cipher suites")?;
    let compressions = wire.vector8().ok_or("no compression methods")?;
    if session.rest().len() > 32
        || suites.is_empty()
        || suites.rest().len() % 2 != 0
        || compressions.is_empty()
    {
        return Err("a field of the wrong length");
    }
    let mut hello = Hello {
        name: None,
        alpn: Vec::new(),
    };
    if wire.is_empty() {
        return Ok(hello);
    }
    let mut extensions = wire.vector16().ok_or("extensions that do not fit")?;
    if !wire.is_empty() {
        return Err("bytes after the extensions");
    }
    let mut seen = HashSet::new();
    while !extensions.is_empty() {
        let kind = extensions.u16().ok_or("an extension that does not fit")?;
        let value = extensions
            .vector16()
            .ok_or("an extension that does not fit")?;
        if !seen.insert(kind) {
            return Err("an extension that occurs twice");
        }
        match kind {
            SERVER_NAME => hello.name = Some(server_name(value)?),
            ALPN => hello.alpn = alpn(value)?,
            _ => {}
        }
    }
    Ok(hello)
}

/// RFC 6066 allows a list; one host name is the only list every server reads the same way.
fn server_name(mut value: Wire<'_>) -> Result<Name, &'static str> {
    let mut list = value
        .vector16()
        .ok_or("a server name list that does not fit")?;
    let kind = list.u8().ok_or("an empty server name list")?;
    let name = list.vector16().ok_or("a server name that does not fit")?;
    if kind != 0 {
        return Err("a server name of an unknown kind");
    }
    if !list.is_empty() || !value.is_empty() {
        return Err("more than one server name");
    }
    host_name(name.rest()).ok_or("a server name that is no host name")
}

/// Addresses in any spelling are no host names (RFC 6066 3): a last label that a resolver would read as a number.
pub(super) fn host_name(bytes: &[u8]) -> Option<Name> {
    let name = Name::parse_ascii(bytes).ok()?;
    let last = name.labels().next_back()?;
    let hex = last
        .strip_prefix("0x")
        .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let number = hex || last.bytes().all(|b| b.is_ascii_digit());
    (!number).then_some(name)
}

fn alpn(mut value: Wire<'_>) -> Result<Vec<String>, &'static str> {
    let mut list = value
        .vector16()
        .ok_or("a protocol list that does not fit")?;
    if list.is_empty() || !value.is_empty() {
        return Err("a protocol list of the wrong length");
    }
    let mut offers = Vec::new();
    while !list.is_empty() {
        let offer = list.vector8().ok_or("a protocol that does not fit")?;
        if offer.is_empty() {
            return Err("an empty protocol");
        }
        if offers.len() < MOST_ALPN {
            offers.push(String::from_utf8_lossy(offer.rest()).into_owned());
        }
    }
    Ok(offers)
}
