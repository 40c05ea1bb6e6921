//! A scripted authoritative server on loopback, UDP and TCP, that keeps every query.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// What the server says to one query.
#[derive(Clone, Default)]
pub struct Say {
    pub answers: Vec<Record>,
    pub authorities: Vec<Record>,
    pub additionals: Vec<Record>,
    pub code: Option<ResponseCode>,
    /// Over UDP only: cut off, with nothing in it.
    pub truncated: bool,
    /// Do not answer.
    pub silent: bool,
    /// Changes the reply's octets on their way out.
    pub spoil: Option<fn(Vec<u8>) -> Vec<u8>>,
    /// Send these octets before the true reply.
    pub first: Option<fn(Vec<u8>) -> Vec<u8>>,
}

/// A query as it arrived.
#[derive(Clone, Debug)]
pub struct Heard {
    pub name: String,
    pub kind: RecordType,
    pub bytes: Vec<u8>,
    pub from: SocketAddr,
    pub tcp: bool,
}

type Script = Box<dyn Fn(&str, RecordType, usize) -> Say + Send + Sync>;

#[derive(Clone)]
pub struct Upstream {
    pub address: SocketAddr,
    log: Arc<Mutex<Vec<Heard>>>,
    script: Arc<Script>,
}

impl Upstream {
    /// Starts a server; `script` gets name, type and how often that pair was asked before.
    pub fn start(script: impl Fn(&str, RecordType, usize) -> Say + Send + Sync + 'static) -> Self {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
                break (udp, tcp);
            }
        };
        let upstream = Self {
            address: udp.local_addr().unwrap(),
            log: Arc::default(),
            script: Arc::new(Box::new(script)),
        };
        let server = upstream.clone();
        std::thread::spawn(move || server.serve_udp(&udp));
        let server = upstream.clone();
        std::thread::spawn(move || server.serve_tcp(&tcp));
        upstream
    }

    /// Starts a server with fixed records; names without any are NXDOMAIN.
    pub fn zone(records: Vec<Record>) -> Self {
        Self::start(move |name, kind, _| Say::from_zone(&records, name, kind))
    }

    pub fn log(&self) -> Vec<Heard> {
        self.log.lock().unwrap().clone()
    }

    pub fn asked_for(&self, name: &str) -> usize {
        self.log().iter().filter(|heard| heard.name == name).count()
    }

    fn serve_udp(&self, socket: &UdpSocket) {
        let mut buffer = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            for reply in self.reply(&buffer[..length], from, false) {
                let _ = socket.send_to(&reply, from);
            }
        }
    }

    fn serve_tcp(&self, listener: &TcpListener) {
        while let Ok((mut stream, from)) = listener.accept() {
            let mut length = [0; 2];
            if stream.read_exact(&mut length).is_err() {
                continue;
            }
            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
            if stream.read_exact(&mut query).is_err() {
                continue;
            }
            for reply in self.reply(&query, from, true) {
                let _ = stream.write_all(&u16::try_from(reply.len()).unwrap().to_be_bytes());
                let _ = stream.write_all(&reply);
            }
        }
    }

    fn reply(&self, bytes: &[u8], from: SocketAddr, tcp: bool) -> Vec<Vec<u8>> {
        let query = Message::from_vec(bytes).expect("the gateway sends well-formed queries");
        let asked = query
            .queries
            .first()
            .expect("the gateway sends one question")
            .clone();
        let name = asked.name.to_ascii().trim_end_matches('.').to_owned();
        let nth = {
            let mut log = self.log.lock().unwrap();
            let nth = log
                .iter()
                .filter(|h| h.name == name && h.kind == asked.query_type)
                .count();
            log.push(Heard {
                name: name.clone(),
                kind: asked.query_type,
                bytes: bytes.to_vec(),
                from,
                tcp,
            });
            nth
        };
        let say = (self.script)(&name, asked.query_type, nth);
        if say.silent {
            return Vec::new();
        }
        let mut message = Message::new(query.metadata.id, MessageType::Response, OpCode::Query);
        message.metadata.recursion_available = true;
        message.metadata.authentic_data = true;
        message.metadata.response_code = say.code.unwrap_or(ResponseCode::NoError);
        message.add_query(asked);
        if say.truncated && !tcp {
            message.metadata.truncation = true;
        } else {
            message.add_answers(say.answers);
            message.add_authorities(say.authorities);
            message.add_additionals(say.additionals);
        }
        let bytes = message.to_vec().unwrap();
        let mut replies: Vec<Vec<u8>> = say
            .first
            .map(|forge| forge(bytes.clone()))
            .into_iter()
            .collect();
        replies.push(
            say.spoil
                .map_or_else(|| bytes.clone(), |spoil| spoil(bytes.clone())),
        );
        replies
    }
}

impl Say {
    pub fn records(answers: Vec<Record>) -> Self {
        Self {
            answers,
            ..Self::default()
        }
    }

    pub fn code(code: ResponseCode) -> Self {
        Self {
            code: Some(code),
            ..Self::default()
        }
    }

    pub fn silence() -> Self {
        Self {
            silent: true,
            ..Self::default()
        }
    }

    pub fn nothing() -> Self {
        Self {
            authorities: vec![soa(300)],
            ..Self::default()
        }
    }

    pub fn from_zone(records: &[Record], name: &str, kind: RecordType) -> Self {
        let name = Name::from_ascii(format!("{name}.")).unwrap();
        let mut answers = Vec::new();
        let mut at = name;
        loop {
            let here: Vec<&Record> = records.iter().filter(|r| r.name == at).collect();
            let found: Vec<Record> = here
                .iter()
                .filter(|r| r.record_type() == kind)
                .map(|r| (*r).clone())
                .collect();
            if !found.is_empty() {
                answers.extend(found);
                return Self::records(answers);
            }
            let alias = here.iter().find_map(|r| {
                if let RData::CNAME(c) = &r.data {
                    Some((*r, &c.0))
                } else {
                    None
                }
            });
            match alias {
                Some((record, target)) if answers.len() < 40 => {
                    answers.push(record.clone());
                    at = target.clone();
                }
                Some(_) => return Self::records(answers),
                None if here.is_empty() => {
                    let code = Some(ResponseCode::NXDomain);
                    return Self {
                        answers,
                        authorities: vec![soa(300)],
                        code,
                        ..Self::default()
                    };
                }
                None => {
                    return Self {
                        answers,
                        ..Self::nothing()
                    };
                }
            }
        }
    }
}

pub fn soa(minimum: u32) -> Record {
    let root = Name::root();
    Record::from_rdata(
        root.clone(),
        300,
        RData::SOA(SOA::new(root.clone(), root, 1, 2, 3, 4, minimum)),
    )
}

pub fn record(owner: &str, ttl: u32, data: RData) -> Record {
    Record::from_rdata(Name::from_ascii(format!("{owner}.")).unwrap(), ttl, data)
}

/// An A or AAAA record with a TTL of five minutes.
pub fn host(owner: &str, address: &str) -> Record {
    timed(owner, address, 300)
}

pub fn timed(owner: &str, address: &str, ttl: u32) -> Record {
    let data = match address.parse::<Ipv4Addr>() {
        Ok(v4) => RData::A(A(v4)),
        Err(_) => RData::AAAA(AAAA(address.parse::<Ipv6Addr>().unwrap())),
    };
    record(owner, ttl, data)
}

pub fn alias(owner: &str, target: &str) -> Record {
    record(
        owner,
        300,
        RData::CNAME(CNAME(Name::from_ascii(format!("{target}.")).unwrap())),
    )
}
