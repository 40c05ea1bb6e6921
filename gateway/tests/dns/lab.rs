//! A door on loopback, networks whose sandboxes are loopback addresses, policies by hand.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use gateway::limits::{Ledger, Used};
use gateway::listen::dns::{Batch, Datagrams, DnsHandles, DnsSettings, Outgoing, serve_dns};
use gateway::network::flows::FlowTable;
use gateway::network::{Live, Network, Networks};
use gateway::record::{Entry, Journal, JournalConfig, Line, Reader};
use gateway::resolve::leases::Paces;
use gateway::resolve::{LeasePools, Leases, Resolver, Upstreams};
use gateway::tasks::Tasks;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{Name as WireName, RData, RecordType};
use netpolicy::addr::AddressBook;
use netpolicy::decide::{LayerKind, OwnListeners, Snapshot};
use netpolicy::ids::Generation;
use netpolicy::name::Name;
use netpolicy::policy::Policy;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;

use crate::upstream::Upstream;

pub use crate::policies::*;

pub const SERVICE_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub const SERVICE_V6: Ipv6Addr = Ipv6Addr::new(0xfd53, 0x616c, 0x6c79, 0, 0, 0, 0, 1);

pub struct Lab {
    pub networks: Arc<Networks>,
    pub seal: watch::Sender<bool>,
    pub door: SocketAddr,
    pub tasks: Tasks,
    handles: DnsHandles,
    settings: DnsSettings,
    dir: tempfile::TempDir,
}

/// Loopback in the place of the gateway's transparent socket: the address asked is its own.
struct Plain(UdpSocket, SocketAddr);

impl Datagrams for Plain {
    async fn receive(&self, batch: &mut Batch) -> io::Result<()> {
        loop {
            self.0.readable().await?;
            let mut count = 0;
            for slot in batch.slots() {
                match self.0.try_recv_from(&mut slot.buffer) {
                    Ok((length, source)) => {
                        (slot.length, slot.source, slot.asked) = (length, source, self.1);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
                count += 1;
            }
            if count > 0 {
                batch.filled(count);
                return Ok(());
            }
        }
    }

    fn send(&self, replies: &[Outgoing]) {
        for reply in replies {
            assert_eq!(
                reply.from, self.1,
                "a reply leaves from the address that was asked"
            );
            let _ = self.0.try_send_to(&reply.bytes, reply.to);
        }
    }
}

pub fn pools() -> LeasePools {
    LeasePools {
        v4: "198.19.0.0/16".parse().unwrap(),
        v6: "fd53:616c:6c79:1::/64".parse().unwrap(),
        key: [7; 16],
    }
}

impl Lab {
    /// A door over this server and one network, the sandbox 127.0.0.2.
    pub async fn new(upstream: &Upstream, policy: Policy) -> Self {
        let lab = Self::paced(&[upstream.address], Paces::default()).await;
        lab.attach(2, policy);
        lab
    }

    pub async fn paced(servers: &[SocketAddr], paces: Paces) -> Self {
        let resolver = Resolver::new(Upstreams {
            default: servers.to_vec(),
            domains: Vec::new(),
        });
        Self::over(Arc::new(resolver), paces).await
    }

    pub async fn over(resolver: Arc<Resolver>, paces: Paces) -> Self {
        let (networks, tasks) = (Arc::new(Networks::default()), Tasks::default());
        let (seal, open) = watch::channel(true);
        let dir = tempfile::tempdir().unwrap();
        let handles = DnsHandles {
            networks: networks.clone(),
            resolver,
            journal: journal(dir.path()),
            tasks: tasks.clone(),
            open,
            connections: 1024,
        };
        let settings = DnsSettings {
            service_v4: SERVICE_V4,
            service_v6: SERVICE_V6,
            paces,
        };
        let (socket, listener) = loop {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            if let Ok(listener) = std::net::TcpListener::bind(socket.local_addr().unwrap()) {
                break (socket, listener);
            }
        };
        let door = socket.local_addr().unwrap();
        let plain = Plain(socket, door);
        serve_dns(handles.clone(), settings, vec![plain], vec![listener]).unwrap();
        Self {
            networks,
            seal,
            door,
            tasks,
            handles,
            settings,
            dir,
        }
    }

    /// Answers on one more socket.
    pub fn serve(&self, socket: impl Datagrams) {
        serve_dns(
            self.handles.clone(),
            self.settings,
            vec![socket],
            Vec::new(),
        )
        .unwrap();
    }

    /// Everything recorded so far.
    pub fn entries(&self) -> Vec<Entry> {
        let mut reader = Reader::open(&JournalConfig::under(self.dir.path()).dir, 0).unwrap();
        std::iter::from_fn(|| reader.next_line().unwrap())
            .map(|line| serde_json::from_str::<Line>(&line).unwrap().entry)
            .collect()
    }

    pub fn leases_path(&self, last: u8) -> PathBuf {
        self.dir.path().join(format!("leases-{last}"))
    }

    /// Attaches the sandbox 127.0.0.`last`.
    pub fn attach(&self, last: u8, policy: Policy) -> Arc<Network> {
        let limits = policy.limits.clone();
        let network = Arc::new(Network {
            id: format!("n{last}").parse().unwrap(),
            run: None,
            workspace: "w".to_owned(),
            v4: Ipv4Addr::new(127, 0, 0, last),
            v6: Ipv6Addr::new(0xfd53, 0x616c, 0x6c79, 2, 0, 0, 0, last.into()),
            link: format!("l{last}"),
            via: gateway::control::api::Via::Link,
            owner: 0,
            scope: gateway::resolve::upstream::Scope::fresh(),
            broker: None,
            member: None,
            live: ArcSwap::from_pointee(live(policy)),
            leases: Leases::open(&self.leases_path(last), pools(), "w").unwrap(),
            ledger: Ledger::new(&limits, Used::default()),
            flows: FlowTable::default(),
            connections: gateway::network::ended::EndedConnections::default(),
            recent: gateway::network::recent::Recent::default(),
            adopted: std::sync::OnceLock::new(),
            ended: tokio_util::sync::CancellationToken::new(),
        });
        self.networks.insert(&network);
        network
    }

    pub fn network(&self, last: u8) -> Arc<Network> {
        self.networks
            .by_source(IpAddr::from([127, 0, 0, last]))
            .unwrap()
    }

    /// Asks as the sandbox 127.0.0.2, with EDNS.
    pub async fn ask(&self, name: &str, kind: RecordType) -> Message {
        self.ask_as(2, name, kind).await
    }

    pub async fn ask_as(&self, last: u8, name: &str, kind: RecordType) -> Message {
        let bytes = self
            .ask_octets(last, &query(name, kind).to_vec().unwrap())
            .await;
        Message::from_vec(&bytes.expect("a reply")).unwrap()
    }

    /// Sends octets as a datagram and waits a moment for the reply.
    pub async fn ask_octets(&self, last: u8, bytes: &[u8]) -> Option<Vec<u8>> {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, last), 0))
            .await
            .unwrap();
        socket.connect(self.door).await.unwrap();
        socket.send(bytes).await.unwrap();
        let mut buffer = vec![0; 65536];
        let length = tokio::time::timeout(Duration::from_secs(10), socket.recv(&mut buffer))
            .await
            .ok()?
            .ok()?;
        buffer.truncate(length);
        Some(buffer)
    }

    pub async fn stream(&self, last: u8) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket
            .bind(SocketAddr::from(([127, 0, 0, last], 0)))
            .unwrap();
        socket.connect(self.door).await.unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.tasks.stopping().cancel();
    }
}

fn journal(dir: &std::path::Path) -> Arc<Journal> {
    Arc::new(Journal::open(JournalConfig::under(dir)).unwrap())
}

pub fn live(policy: Policy) -> Live {
    let (names, explain) = (policy.names, policy.explain);
    let layers = vec![(LayerKind::Job, Arc::new(policy))];
    let gateway = ["198.18.0.0/16", "198.19.0.0/16", "fd53:616c:6c79::/48"]
        .map(|net| net.parse().unwrap())
        .to_vec();
    let book = AddressBook {
        gateway,
        ..AddressBook::default()
    };
    Live {
        snapshot: Arc::new(Snapshot::new(
            layers,
            Arc::new(book),
            Arc::new(OwnListeners::default()),
        )),
        generation: Generation(1),
        names,
        explain,
    }
}

pub fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    let labels = name.split('.').filter(|l| !l.is_empty()).map(str::as_bytes);
    let mut name = WireName::from_labels(labels).unwrap();
    name.set_fqdn(true);
    message.add_query(Query::query(name, kind));
    let mut edns = Edns::new();
    edns.set_max_payload(1232);
    message.set_edns(edns);
    message
}

pub fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// What a test reads from a reply.
pub trait Read {
    fn code(&self) -> ResponseCode;
    fn addresses(&self) -> Vec<IpAddr>;
    fn explanation(&self) -> Option<(u16, String)>;
    fn is_nodata(&self) -> bool;
}

impl Read for Message {
    fn code(&self) -> ResponseCode {
        self.metadata.response_code
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.answers
            .iter()
            .filter_map(|r| r.data.ip_addr())
            .collect()
    }

    fn explanation(&self) -> Option<(u16, String)> {
        let option = self.edns.as_ref()?.option(EdnsCode::Unknown(15))?;
        let EdnsOption::Unknown(_, data) = option else {
            return None;
        };
        let (code, text) = data.split_at(2);
        Some((
            u16::from_be_bytes(code.try_into().unwrap()),
            String::from_utf8(text.to_vec()).unwrap(),
        ))
    }

    fn is_nodata(&self) -> bool {
        self.code() == ResponseCode::NoError && self.answers.is_empty() && has_short_soa(self)
    }
}

pub fn has_short_soa(message: &Message) -> bool {
    matches!(message.authorities.as_slice(), [record] if matches!(&record.data, RData::SOA(soa) if soa.minimum <= 5))
}

/// Denied: NXDOMAIN, nothing in it, the reason as an Extended DNS Error, an SOA minimum of one second.
#[track_caller]
pub fn assert_denied(reply: &Message, reason: &str) {
    assert_eq!(reply.code(), ResponseCode::NXDomain, "{reply:?}");
    assert!(reply.answers.is_empty());
    assert!(has_short_soa(reply));
    let (_, text) = reply.explanation().expect("an Extended DNS Error");
    assert_eq!(text.split(';').next(), Some(reason));
}
