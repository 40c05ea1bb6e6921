//! Authoritative DNS of the lab, which is also the gateway's only upstream resolver. Logs every query's raw bytes.

use std::collections::HashMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Origins;
use crate::dns::{Message, Record, code, kind, response, wire_name};
use crate::namespace::Namespace;
use crate::topology::DNS;

type Custom = Arc<dyn Fn(&[u8], u64) -> Option<Vec<u8>> + Send + Sync>;

/// How a name is answered.
#[derive(Clone)]
pub enum Reply {
    /// These records for a question of any type; those of other types are left out, aliases stay.
    Records(Vec<Record>),
    /// The n-th question gets the n-th list (the last one stays): rebinding.
    Turns(Vec<Vec<Record>>),
    /// An error code.
    Code(u8),
    /// Nothing is ever said.
    Silent,
    /// Bytes made by the test from the query and the count of earlier queries of this name.
    Custom(Custom),
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Records(records) => f.debug_tuple("Records").field(records).finish(),
            Self::Turns(turns) => f.debug_tuple("Turns").field(turns).finish(),
            Self::Code(code) => f.debug_tuple("Code").field(code).finish(),
            Self::Silent => f.write_str("Silent"),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

/// Zone data: name to reply, shared with the running server. A name that is absent does not exist.
#[derive(Clone, Debug, Default)]
pub struct Zone(Arc<Mutex<HashMap<String, (Reply, u64)>>>);

impl Zone {
    /// Sets the reply of a name.
    pub fn set(&self, name: &str, reply: Reply) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_ascii_lowercase(), (reply, 0));
    }

    /// A name with addresses of either family.
    pub fn addresses(&self, name: &str, addresses: &[&str]) {
        self.set(
            name,
            Reply::Records(addresses.iter().map(|a| address(name, a, 60)).collect()),
        );
    }

    /// A name whose n-th question gets the n-th list of addresses.
    pub fn turns(&self, name: &str, turns: &[&[&str]]) {
        let turn = |list: &&[&str]| list.iter().map(|a| address(name, a, 0)).collect();
        self.set(name, Reply::Turns(turns.iter().map(turn).collect()));
    }

    /// An alias and the addresses at its end.
    pub fn alias(&self, name: &str, target: &str, addresses: &[&str]) {
        let mut records = vec![Record {
            name: name.into(),
            kind: kind::CNAME,
            ttl: 60,
            data: wire_name(target),
        }];
        records.extend(addresses.iter().map(|a| address(target, a, 60)));
        self.set(name, Reply::Records(records));
    }

    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let message = Message::read(query)?;
        let (name, asked) = message.questions.first()?;
        let (reply, turn) = {
            let mut zone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(entry) = zone.get_mut(&name.to_ascii_lowercase()) else {
                return Some(response(query, u16::from(code::NXDOMAIN), &[]));
            };
            entry.1 += 1;
            (entry.0.clone(), entry.1 - 1)
        };
        let fitting = |records: &[Record]| {
            let fits = |r: &&Record| r.kind == *asked || r.kind == kind::CNAME;
            records.iter().filter(fits).cloned().collect::<Vec<_>>()
        };
        match reply {
            Reply::Records(records) => Some(response(query, 0, &fitting(&records))),
            Reply::Turns(turns) => {
                let at = usize::try_from(turn)
                    .unwrap_or(usize::MAX)
                    .min(turns.len().saturating_sub(1));
                Some(response(query, 0, &fitting(turns.get(at)?)))
            }
            Reply::Code(code) => Some(response(query, u16::from(code), &[])),
            Reply::Silent => None,
            Reply::Custom(make) => make(query, turn),
        }
    }
}

/// An address record.
pub fn address(name: &str, address: &str, ttl: u32) -> Record {
    match address.parse().unwrap_or_else(|e| panic!("{address}: {e}")) {
        IpAddr::V4(ip) => Record {
            name: name.into(),
            kind: kind::A,
            ttl,
            data: ip.octets().to_vec(),
        },
        IpAddr::V6(ip) => Record {
            name: name.into(),
            kind: kind::AAAA,
            ttl,
            data: ip.octets().to_vec(),
        },
    }
}

pub(super) fn start(origins: &Origins, internet: &Namespace) {
    // every address of the internet answers DNS: a query that leaks to 8.8.8.8 is answered, and logged
    let server: SocketAddr = (std::net::Ipv6Addr::UNSPECIFIED, 53).into();
    let listeners = internet.run(|| {
        let own = UdpSocket::bind((DNS, 53)).expect("DNS socket");
        let leaks: Vec<UdpSocket> = crate::topology::PUBLIC
            .iter()
            .filter_map(|a| UdpSocket::bind((a.parse::<IpAddr>().ok()?, server.port())).ok())
            .collect();
        std::iter::once(own).chain(leaks).collect::<Vec<_>>()
    });
    for socket in listeners {
        let origins = origins.clone();
        let _ = socket.set_read_timeout(Some(Duration::from_millis(100)));
        internet.spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !origins.stopped() {
                let Ok((length, peer)) = socket.recv_from(&mut buffer) else {
                    continue;
                };
                let query = &buffer[..length];
                origins.queries.push(query.to_vec());
                if let Some(reply) = origins.zone.answer(query) {
                    let _ = socket.send_to(&reply, peer);
                }
            }
        });
    }
    origins.serve(internet, 53, |origins, _, mut stream| {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let mut length = [0; 2];
        while stream.read_exact(&mut length).is_ok() {
            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
            if stream.read_exact(&mut query).is_err() {
                return;
            }
            origins.queries.push(query.clone());
            let Some(reply) = origins.zone.answer(&query) else {
                return;
            };
            let mut framed = u16::try_from(reply.len())
                .unwrap_or_default()
                .to_be_bytes()
                .to_vec();
            framed.extend_from_slice(&reply);
            if stream.write_all(&framed).is_err() {
                return;
            }
        }
    });
}
