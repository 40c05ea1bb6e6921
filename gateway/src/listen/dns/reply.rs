//! Writes replies: header, the question as it came, records that all belong to it, an OPT record if the client sent one.
//!
//! Every owner is the question's own name (one pointer), aliases are not shown, and nothing is ever compressed inside
//! record data, so no reply depends on a compressor. A reply that does not fit is cut to header and question with TC.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use super::question::{Code, Head, Question};
use crate::resolve::Wire;

/// An OPT record without options (RFC 6891 6.1.2).
const OPT: usize = 11;
/// RFC 1035: a datagram without EDNS.
const PLAIN: usize = 512;
/// Fits every usual path in one packet; fragments are dropped by the gateway's own rules.
const LARGEST: usize = 1232;
/// A pointer to the name of the question, which always stands behind the header.
const QUESTION_NAME: [u8; 2] = [0xc0, 0x0c];
/// Octets of text in an Extended DNS Error.
const LONGEST_TEXT: usize = 200;

/// How the reply travels, which bounds its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// One datagram.
    Udp,
    /// A stream; only the length prefix bounds it.
    Tcp,
}

/// Records of a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// None.
    Nothing,
    /// One address.
    Address(IpAddr),
    /// As the resolver found them, or made here.
    Records(Arc<[Wire]>),
}

/// RFC 8914: a code and a text for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// Info code.
    pub code: u16,
    /// Extra text.
    pub text: Cow<'static, str>,
}

/// What is said to one question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Response code.
    pub code: Code,
    /// Answer section.
    pub body: Body,
    /// Seconds to believe it; without records it is the SOA's minimum.
    pub ttl: u32,
    /// Why, where the client can hear it.
    pub why: Option<Explanation>,
}

impl Answer {
    /// Nothing to show.
    pub fn empty(code: Code, ttl: u32) -> Self {
        Self {
            code,
            body: Body::Nothing,
            ttl,
            why: None,
        }
    }

    /// With an explanation.
    #[must_use]
    pub fn because(self, code: u16, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            why: Some(Explanation {
                code,
                text: text.into(),
            }),
            ..self
        }
    }

    /// One address.
    pub fn address(address: IpAddr, ttl: u32) -> Self {
        Self {
            code: Code::NoError,
            body: Body::Address(address),
            ttl,
            why: None,
        }
    }

    /// Records; none at all is NODATA.
    pub fn records(records: Arc<[Wire]>, ttl: u32) -> Self {
        Self {
            code: Code::NoError,
            body: Body::Records(records),
            ttl,
            why: None,
        }
    }
}

/// Writes a refusal: no records.
pub fn refuse(out: &mut Vec<u8>, head: Head, code: Code, question: &[u8]) {
    begin(out, head, code, question);
    opt(out, head, code, None);
}

/// Writes the answer to a question.
pub fn write(out: &mut Vec<u8>, question: &Question<'_>, answer: &Answer, way: Way) {
    let head = question.head;
    let limit = match (way, head.edns) {
        (Way::Tcp, _) => usize::from(u16::MAX),
        (Way::Udp, None) => PLAIN,
        (Way::Udp, Some(size)) => usize::from(size).clamp(PLAIN, LARGEST),
    };
    begin(out, head, answer.code, question.raw);
    let records = body(out, answer, limit);
    if records == 0 && matches!(answer.code, Code::NoError | Code::NxDomain) {
        soa(out, answer.ttl);
        put_count(out, 8, 1);
    }
    put_count(out, 6, records);
    opt(out, head, answer.code, answer.why.as_ref());
    if out.len() > limit {
        begin(out, head, answer.code, question.raw);
        let kept = addresses_within(out, answer, limit - OPT);
        put_count(out, 6, kept);
        opt(out, head, answer.code, None);
        if let Some(flags) = out.get_mut(2) {
            *flags |= 0x02;
        }
    }
}

fn begin(out: &mut Vec<u8>, head: Head, code: Code, question: &[u8]) {
    out.clear();
    out.extend_from_slice(&head.id.to_be_bytes());
    out.extend_from_slice(&(head.reply_flags() | (code as u16 & 0x0f)).to_be_bytes());
    out.extend_from_slice(&[0, u8::from(!question.is_empty()), 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(question);
}

fn put_count(out: &mut [u8], at: usize, count: u16) {
    if let Some(place) = out.get_mut(at..at + 2) {
        place.copy_from_slice(&count.to_be_bytes());
    }
}

/// Writes records until the limit is passed (the caller then cuts everything); says how many.
fn body(out: &mut Vec<u8>, answer: &Answer, limit: usize) -> u16 {
    match &answer.body {
        Body::Nothing => 0,
        Body::Address(IpAddr::V4(address)) => {
            record(out, 1, answer.ttl, &address.octets());
            1
        }
        Body::Address(IpAddr::V6(address)) => {
            record(out, 28, answer.ttl, &address.octets());
            1
        }
        Body::Records(records) => {
            let mut count = 0;
            for wire in records.iter() {
                record(out, wire.kind, answer.ttl, &wire.data);
                count += 1;
                if out.len() > limit {
                    break;
                }
            }
            count
        }
    }
}

/// Writes the addresses that fit: a resolver that never asks on a stream (musl before 1.2.4) takes what it is given, and
/// one that does throws them away.
fn addresses_within(out: &mut Vec<u8>, answer: &Answer, limit: usize) -> u16 {
    let Body::Records(records) = &answer.body else {
        return 0;
    };
    let mut count = 0;
    for wire in records.iter().filter(|wire| matches!(wire.kind, 1 | 28)) {
        let before = out.len();
        record(out, wire.kind, answer.ttl, &wire.data);
        if out.len() > limit {
            out.truncate(before);
            break;
        }
        count += 1;
    }
    count
}

fn record(out: &mut Vec<u8>, kind: u16, ttl: u32, data: &[u8]) {
    out.extend_from_slice(&QUESTION_NAME);
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&[0, 1]);
    out.extend_from_slice(&ttl.to_be_bytes());
    // record data comes from `Wire`, which is never longer
    out.extend_from_slice(&u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(data);
}

/// RFC 2308: how long "nothing" holds. The root stands for a zone that nobody needs to know.
fn soa(out: &mut Vec<u8>, minimum: u32) {
    let ttl = minimum.to_be_bytes();
    out.extend_from_slice(&[0, 0, 6, 0, 1]);
    out.extend_from_slice(&ttl);
    out.extend_from_slice(&[0, 22, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
    out.extend_from_slice(&ttl);
}

fn opt(out: &mut Vec<u8>, head: Head, code: Code, why: Option<&Explanation>) {
    if head.edns.is_none() {
        return;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "1232 fits sixteen bits; the code has twelve"
    )]
    let (size, high) = ((LARGEST as u16).to_be_bytes(), ((code as u16) >> 4) as u8);
    out.extend_from_slice(&[0, 0, 41]);
    out.extend_from_slice(&size);
    out.extend_from_slice(&[high, 0, 0, 0]);
    let text = why.map(|why| why.text.as_bytes()).unwrap_or_default();
    let text = text.get(..LONGEST_TEXT).unwrap_or(text);
    let octets = |n: usize| u16::try_from(n).unwrap_or_default().to_be_bytes();
    match why {
        None => out.extend_from_slice(&[0, 0]),
        Some(why) => {
            out.extend_from_slice(&octets(text.len() + 6));
            out.extend_from_slice(&[0, 15]);
            out.extend_from_slice(&octets(text.len() + 2));
            out.extend_from_slice(&why.code.to_be_bytes());
            out.extend_from_slice(text);
        }
    }
    put_count(out, 10, 1);
}
