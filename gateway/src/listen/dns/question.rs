//! One message from a sandbox, read strictly: a header, exactly one question, and whatever hickory can parse behind it.
//!
//! The question is walked here, because its octets are echoed as they came (the spelling is the client's own, DNS-15)
//! and its labels must stay labels: a pointer, a second question or a trailing octet is malformed. Additional records
//! are parsed for the OPT record and otherwise forgotten (DNS-11).

use hickory_proto::op::Message;
use hickory_proto::serialize::binary::{BinDecodable as _, BinDecoder};
use netpolicy::name::{Name, NameError};

/// Octets of a header.
const HEADER: usize = 12;
/// RFC 1035: octets of a name on the wire.
const LONGEST_NAME: usize = 255;

/// Response codes of this door (RFC 1035, 6891).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Code {
    /// Answered, perhaps with nothing.
    NoError = 0,
    /// Malformed.
    FormErr = 1,
    /// A permitted look-up failed.
    ServFail = 2,
    /// Does not exist, or is denied.
    NxDomain = 3,
    /// Another operation than a query.
    NotImp = 4,
    /// Zone transfers, other classes.
    Refused = 5,
    /// An EDNS version that nobody speaks.
    BadVers = 16,
}

/// What every reply echoes.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Message id.
    pub id: u16,
    /// Operation code, RD and CD, as they stood.
    flags: u16,
    /// Largest datagram that the client takes, if it sent an OPT record.
    pub edns: Option<u16>,
}

impl Head {
    /// Flags of the reply: QR and RA, the client's operation, RD and CD; never AA, never AD.
    pub fn reply_flags(&self) -> u16 {
        const QR_RA: u16 = 0x8080;
        const KEPT: u16 = 0x7910;
        QR_RA | (self.flags & KEPT)
    }
}

/// One well-formed question of class IN.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What the reply echoes.
    pub head: Head,
    /// The question section as it came.
    pub raw: &'a [u8],
    /// Type.
    pub kind: u16,
}

/// What a message is.
#[derive(Clone, Copy, Debug)]
pub enum Parsed<'a> {
    /// A question to answer.
    Ask(Question<'a>),
    /// To be refused; the question is echoed if there was one.
    Refuse(Head, Code, &'a [u8]),
    /// No reply at all: no header, or itself a reply (two servers could answer each other for ever).
    Ignore,
}

/// Reads a message.
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let (Some(id), Some(flags), Some(_)) = (word(0), word(2), word(10)) else {
        return Parsed::Ignore;
    };
    if flags & 0x8000 != 0 {
        return Parsed::Ignore;
    }
    let mut head = Head {
        id,
        flags,
        edns: None,
    };
    if flags & 0x7800 != 0 {
        return Parsed::Refuse(head, Code::NotImp, &[]);
    }
    let counts = [4, 6, 8].map(word);
    let Some(end) = question_end(bytes).filter(|_| counts == [Some(1), Some(0), Some(0)]) else {
        return Parsed::Refuse(head, Code::FormErr, &[]);
    };
    let raw = bytes.get(HEADER..end).unwrap_or_default();
    if word(10) != Some(0) || end != bytes.len() {
        match opt_of(bytes, end) {
            Ok(None) => {}
            Ok(Some((size, version))) => {
                head.edns = Some(size);
                if version != 0 {
                    return Parsed::Refuse(head, Code::BadVers, raw);
                }
            }
            Err(Malformed) => return Parsed::Refuse(head, Code::FormErr, raw),
        }
    }
    let (Some(kind), Some(class)) = (word(end - 4), word(end - 2)) else {
        return Parsed::Ignore;
    };
    match (kind, class) {
        // no type, OPT
        (0 | 41, _) => Parsed::Refuse(head, Code::FormErr, raw),
        // TKEY, TSIG, IXFR, AXFR, MAILB, MAILA
        (249..=254, _) => Parsed::Refuse(head, Code::Refused, raw),
        (_, 1) => Parsed::Ask(Question { head, raw, kind }),
        _ => Parsed::Refuse(head, Code::Refused, raw),
    }
}

/// Where the question ends: plain labels, the root, type and class.
fn question_end(bytes: &[u8]) -> Option<usize> {
    let mut at = HEADER;
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1 + length;
        if length > 63 || at - HEADER > LONGEST_NAME {
            return None;
        }
        if length == 0 {
            break;
        }
    }
    Some(at + 4).filter(|end| *end <= bytes.len())
}

struct Malformed;

/// The OPT record: most clients send exactly one, without options, which needs no parser.
fn opt_of(bytes: &[u8], end: usize) -> Result<Option<(u16, u8)>, Malformed> {
    match (bytes.get(10..12), bytes.get(end..)) {
        (Some([0, 1]), Some([0, 0, 41, high, low, _, version, _, _, 0, 0])) => {
            Ok(Some((u16::from_be_bytes([*high, *low]), *version)))
        }
        _ => additional(bytes),
    }
}

/// The OPT record behind the question: datagram size and version.
fn additional(bytes: &[u8]) -> Result<Option<(u16, u8)>, Malformed> {
    let mut decoder = BinDecoder::new(bytes);
    let message = Message::read(&mut decoder).map_err(|_| Malformed)?;
    if !decoder.is_empty() {
        return Err(Malformed);
    }
    Ok(message
        .edns
        .map(|edns| (edns.max_payload(), edns.version())))
}

impl<'a> Question<'a> {
    /// Labels, leftmost first, without the root.
    pub fn labels(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.raw;
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first().filter(|(length, _)| **length != 0)?;
            let (label, behind) = behind.split_at_checked(usize::from(*length))?;
            rest = behind;
            Some(label)
        })
    }

    /// The name, if it can name a host.
    pub fn name(&self) -> Result<Name, NameError> {
        Name::from_labels(self.labels())
    }

    /// Whether the root is asked for.
    pub fn is_root(&self) -> bool {
        self.raw.first() == Some(&0)
    }
}
