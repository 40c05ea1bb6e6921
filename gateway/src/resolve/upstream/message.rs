//! Queries built from nothing, replies read with suspicion.
//!
//! A query holds an id of our own, one question in lower case and an OPT record, nothing else. A reply counts only if
//! its id and question are the query's (RFC 5452); everything that reading depends on is checked here, so that the
//! rest works on believed data.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder, NameEncoding};

/// What we can take in one datagram: no fragments on any usual path (DNS flag day 2020).
const DATAGRAM: u16 = 1232;

/// One record as it goes into a reply: names inside are written out, so it fits behind any question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wire {
    /// Type code.
    pub kind: u16,
    /// Record data.
    pub data: Box<[u8]>,
}

impl Wire {
    /// From a record; `None` when its data cannot be written.
    pub fn new(data: &RData) -> Option<Self> {
        let mut bytes = Vec::with_capacity(64);
        let mut encoder = BinEncoder::new(&mut bytes);
        encoder.set_name_encoding(NameEncoding::Uncompressed);
        data.emit(&mut encoder).ok()?;
        u16::try_from(bytes.len()).is_ok().then(|| Self {
            kind: data.record_type().into(),
            data: bytes.into(),
        })
    }

    /// The address of an A or AAAA record.
    pub fn address(&self) -> Option<IpAddr> {
        match RecordType::from(self.kind) {
            RecordType::A => <[u8; 4]>::try_from(&*self.data)
                .ok()
                .map(|b| Ipv4Addr::from(b).into()),
            RecordType::AAAA => <[u8; 16]>::try_from(&*self.data)
                .ok()
                .map(|b| Ipv6Addr::from(b).into()),
            _ => None,
        }
    }
}

/// A query in flight.
#[derive(Clone, Debug)]
pub struct Sent {
    id: u16,
    question: Query,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// A reply that answers the query.
#[derive(Debug)]
pub struct Reply {
    /// Response code.
    pub code: ResponseCode,
    /// Cut off; ask again over TCP.
    pub truncated: bool,
    /// Answer section, class IN only.
    pub answers: Vec<Record>,
    /// Seconds for which "does not exist" holds: the SOA's own word (RFC 2308), if there is one.
    pub negative: Option<u32>,
}

/// Why bytes from a server are not the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotIt {
    /// Another id, another question, not a reply: somebody else's or a forgery. Keep waiting.
    Foreign,
    /// The right id and question, but not a message.
    Malformed,
}

impl Sent {
    /// A fresh query.
    pub fn new(name: &Name, kind: RecordType) -> Result<Self, std::io::Error> {
        let mut id = [0; 2];
        getrandom::fill(&mut id).map_err(|e| std::io::Error::other(e.to_string()))?;
        let id = u16::from_ne_bytes(id);
        let question = Query::query(name.to_lowercase(), kind);
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(question.clone());
        let mut edns = Edns::new();
        edns.set_max_payload(DATAGRAM);
        message.set_edns(edns);
        let bytes = message.to_vec().map_err(std::io::Error::other)?;
        Ok(Self {
            id,
            question,
            bytes,
        })
    }

    /// Reads what came back.
    pub fn read(&self, bytes: &[u8]) -> Result<Reply, NotIt> {
        if bytes.get(..2) != Some(&self.id.to_be_bytes()) {
            return Err(NotIt::Foreign);
        }
        let message = Message::from_vec(bytes).map_err(|_| NotIt::Malformed)?;
        let same = |asked: &Query| {
            asked.name == self.question.name
                && asked.query_type == self.question.query_type
                && asked.query_class == DNSClass::IN
        };
        let ours = message.metadata.message_type == MessageType::Response
            && message.metadata.op_code == OpCode::Query
            && matches!(message.queries.as_slice(), [question] if same(question));
        if !ours {
            return Err(NotIt::Foreign);
        }
        Ok(Reply {
            code: message.metadata.response_code,
            truncated: message.metadata.truncation,
            negative: message.authorities.iter().find_map(negative_ttl),
            answers: message
                .answers
                .into_iter()
                .filter(|r| r.dns_class == DNSClass::IN)
                .collect(),
        })
    }
}

fn negative_ttl(record: &Record) -> Option<u32> {
    let RData::SOA(soa) = &record.data else {
        return None;
    };
    Some(sane_ttl(record.ttl).min(sane_ttl(soa.minimum)))
}

/// RFC 2181 section 8: a TTL with its highest bit set is zero.
pub fn sane_ttl(ttl: u32) -> u32 {
    if ttl > i32::MAX.unsigned_abs() {
        0
    } else {
        ttl
    }
}
