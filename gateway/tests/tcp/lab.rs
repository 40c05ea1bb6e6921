//! Namespaces, doors, origins and sandboxes of one test.

use std::collections::HashMap;
use std::fs::File;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;

use arc_swap::ArcSwap;
use gateway::context::Context;
use gateway::limits::{Ceilings, Ledger, Used};
use gateway::network::flows::FlowTable;
use gateway::network::{Live, Network, Networks};
use gateway::record::{Entry, Journal, JournalConfig, Line, Reader};
use gateway::resolve::{LeasePools, Leases, Resolver, Upstreams};
use gateway::tasks::Tasks;
use gateway::uplink::Dialer;
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use netpolicy::addr::AddressBook;
use netpolicy::decide::{LayerKind, OwnListeners, Snapshot};
use netpolicy::ids::Generation;
use netpolicy::name::Name;
use nix::sched::{CloneFlags, setns, unshare};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;

pub use crate::talk::*;

/// The origin of `ok.net` and of every other name that is not listed elsewhere.
pub const ORIGIN: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
/// Nothing listens here.
pub const CLOSED: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 99);
/// Nobody answers from here.
pub const SILENT: Ipv4Addr = Ipv4Addr::new(93, 184, 217, 1);
/// The sandbox.
pub const SANDBOX: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// The other sandbox.
pub const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

pub struct Lab {
    pub ctx: Context,
    pub network: Arc<Network>,
    pub other: Arc<Network>,
    pub seal: watch::Sender<bool>,
    inside: File,
    dir: tempfile::TempDir,
}

/// Runs a test in its own namespaces, under this policy.
pub fn run<F: Future<Output = ()>>(
    policy: &'static str,
    test: impl FnOnce(Lab) -> F + Send + 'static,
) {
    let thread = std::thread::spawn(move || {
        let inside = namespace(&[
            "link set lo up",
            "route add local 0.0.0.0/1 dev lo",
            "route add local 128.0.0.0/1 dev lo",
            "-6 addr add fd53:616c:6c79:2::2/128 dev lo nodad",
            "-6 route add local ::/0 dev lo",
        ]);
        drop(namespace(&[
            "link set lo up",
            "addr add 192.0.2.1/32 dev lo",
            "route add local 93.184.216.0/24 dev lo src 192.0.2.1",
            "route add local 10.0.0.0/8 dev lo src 192.0.2.1",
            "-6 addr add 2001:db8::1/128 dev lo nodad",
            "-6 route add local 2606:2800:220:1::/64 dev lo src 2001:db8::1",
            // packets leave here without asking for a neighbour, and nobody answers at the other end
            "link add silent type veth peer name nobody",
            "link set silent arp off up",
            "link set nobody up",
            "route add 93.184.217.0/24 dev silent src 192.0.2.1",
        ]));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let lab = Lab::new(policy, inside).await;
            let tasks = lab.ctx.tasks.clone();
            test(lab).await;
            tasks.shut_down().await;
        });
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Puts this thread into a new namespace and sets it up.
fn namespace(steps: &[&str]) -> File {
    unshare(CloneFlags::CLONE_NEWNET)
        .expect("these tests need the right to make network namespaces");
    for step in steps {
        let status = Command::new("ip").args(step.split(' ')).status().unwrap();
        assert!(status.success(), "ip {step}");
    }
    File::open("/proc/thread-self/ns/net").unwrap()
}

pub fn pools() -> LeasePools {
    LeasePools {
        v4: "198.19.0.0/16".parse().unwrap(),
        v6: "fd53:616c:6c79:1::/64".parse().unwrap(),
        key: [7; 16],
    }
}

pub fn live(policy: &str, generation: u64) -> Live {
    let policy = netpolicy::document::parse("test.yaml", policy, None).unwrap();
    let (names, explain) = (policy.names, policy.explain);
    let gateway = ["198.18.0.0/16", "198.19.0.0/16", "fd53:616c:6c79::/48"]
        .map(|net| net.parse().unwrap())
        .to_vec();
    let book = AddressBook {
        gateway,
        ..AddressBook::default()
    };
    let layers = vec![(LayerKind::Job, Arc::new(policy))];
    let snapshot = Snapshot::new(layers, Arc::new(book), Arc::new(OwnListeners::default()));
    Live {
        snapshot: Arc::new(snapshot),
        generation: Generation(generation),
        names,
        explain,
    }
}

impl Lab {
    async fn new(policy: &str, inside: File) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (seal, open) = watch::channel(true);
        let dns = dns().await;
        let ctx = Context {
            networks: Arc::new(Networks::default()),
            resolver: Arc::new(Resolver::new(Upstreams {
                default: vec![dns],
                domains: Vec::new(),
            })),
            dialer: Arc::new(Dialer::new(gateway::uplink::here::leads_here)),
            journal: Arc::new(Journal::open(JournalConfig::under(dir.path())).unwrap()),
            ceilings: Arc::new(Ceilings::from_descriptors(10_000)),
            tasks: Tasks::default(),
            open,
        };
        let network = attach(&ctx, dir.path(), policy, SANDBOX);
        let other = attach(&ctx, dir.path(), policy, OTHER);
        Self {
            ctx,
            network,
            other,
            seal,
            inside,
            dir,
        }
    }

    /// A listener of the gateway's namespace.
    pub fn inside_listener(&self, port: u16) -> std::net::TcpListener {
        self.inside(move || std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap())
    }

    /// The same door for IPv6.
    pub fn door_v6(&self, port: u16) {
        let listener = self.inside(move || {
            let socket =
                socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
            socket.set_only_v6(true).unwrap();
            socket
                .bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())
                .unwrap();
            socket.listen(128).unwrap();
            std::net::TcpListener::from(socket)
        });
        gateway::listen::serve_tcp(&self.ctx, listener, None);
    }

    /// The transparent door on a port, without a gate.
    pub fn door(&self, port: u16) {
        gateway::listen::serve_tcp(&self.ctx, self.inside_listener(port), None);
    }

    fn inside<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        let inside = self.inside.try_clone().unwrap();
        let thread = std::thread::spawn(move || {
            setns(&inside, CloneFlags::CLONE_NEWNET).unwrap();
            act()
        });
        thread.join().unwrap()
    }

    /// The lease of a name, as DNS would have handed it out.
    pub fn lease(&self, name: &str) -> IpAddr {
        self.network
            .leases
            .lease(&Name::parse(name).unwrap())
            .unwrap()
            .0
            .into()
    }

    /// A connection of the sandbox.
    pub fn connect(&self, to: impl Into<IpAddr>, port: u16) -> TcpStream {
        self.connect_as(SANDBOX, to, port)
    }

    pub fn connect_as(&self, from: Ipv4Addr, to: impl Into<IpAddr>, port: u16) -> TcpStream {
        self.connect_with((from, 0).into(), SocketAddr::new(to.into(), port))
    }

    /// With this source port.
    pub fn connect_from(&self, from: u16, to: impl Into<IpAddr>, port: u16) -> TcpStream {
        self.connect_with((SANDBOX, from).into(), SocketAddr::new(to.into(), port))
    }

    pub fn connect_with(&self, from: SocketAddr, to: SocketAddr) -> TcpStream {
        let stream = self.inside(move || {
            let socket = socket2::Socket::new(
                socket2::Domain::for_address(to),
                socket2::Type::STREAM,
                None,
            )
            .unwrap();
            socket.bind(&from.into()).unwrap();
            socket.connect(&to.into()).unwrap();
            socket.set_nonblocking(true).unwrap();
            std::net::TcpStream::from(socket)
        });
        TcpStream::from_std(stream).unwrap()
    }

    /// A listener of the outside.
    pub async fn origin(&self, port: u16) -> TcpListener {
        TcpListener::bind((ORIGIN, port)).await.unwrap()
    }

    /// Replaces the sandbox's policy, as control does.
    pub fn replace(&self, policy: &str) {
        let generation = self.network.live.load().generation.0 + 1;
        self.network.live.store(Arc::new(live(policy, generation)));
    }

    /// Waits until so many flows are registered.
    pub async fn flows(&self, count: usize) {
        eventually(|| (self.network.flows.all().len() == count).then_some(())).await;
    }

    /// Everything recorded so far.
    pub fn entries(&self) -> Vec<Entry> {
        let mut reader = Reader::open(&JournalConfig::under(self.dir.path()).dir, 0).unwrap();
        std::iter::from_fn(|| reader.next_line().unwrap())
            .map(|line| serde_json::from_str::<Line>(&line).unwrap().entry)
            .collect()
    }

    /// Waits for the close records of so many flows and gives their ends.
    pub async fn ends(&self, count: usize) -> Vec<String> {
        let ends = || {
            let entries = self.entries().into_iter();
            entries
                .filter_map(|entry| {
                    if let Entry::Close(close) = entry {
                        Some(close.end)
                    } else {
                        None
                    }
                })
                .collect::<Vec<_>>()
        };
        eventually(|| (ends().len() >= count).then(ends)).await
    }

    /// Reasons of the denials recorded so far.
    pub fn denials(&self) -> Vec<String> {
        let entries = self.entries().into_iter();
        entries
            .filter_map(|entry| {
                if let Entry::Denial(denied) = entry {
                    Some(denied.reason.to_string())
                } else {
                    None
                }
            })
            .collect()
    }
}

fn attach(ctx: &Context, dir: &std::path::Path, policy: &str, v4: Ipv4Addr) -> Arc<Network> {
    let live = live(policy, 1);
    let last = v4.octets()[3];
    let network = Arc::new(Network {
        id: format!("n{last}").parse().unwrap(),
        run: None,
        workspace: "w".to_owned(),
        v4,
        v6: Ipv6Addr::new(0xfd53, 0x616c, 0x6c79, 2, 0, 0, 0, last.into()),
        link: format!("l{last}"),
        via: gateway::control::api::Via::Link,
        owner: 0,
        scope: gateway::resolve::upstream::Scope::fresh(),
        broker: None,
        member: None,
        leases: Leases::open(&dir.join(format!("leases{last}")), pools(), "w").unwrap(),
        ledger: Ledger::new(&live.snapshot.limits(), Used::default()),
        live: ArcSwap::from_pointee(live),
        flows: FlowTable::default(),
        connections: gateway::network::ended::EndedConnections::default(),
        recent: gateway::network::recent::Recent::default(),
        adopted: std::sync::OnceLock::new(),
        ended: tokio_util::sync::CancellationToken::new(),
    });
    ctx.networks.insert(&network);
    network
}

/// A resolver of the outside: fixed addresses by name, A only.
async fn dns() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let known: HashMap<&str, Vec<Ipv4Addr>> = HashMap::from([
        ("ok.net.", vec![ORIGIN]),
        ("evil.net.", vec![ORIGIN]),
        ("api.ok.net.", vec![ORIGIN]),
        ("closed.net.", vec![CLOSED]),
        ("first-is-silent.net.", vec![SILENT, ORIGIN]),
        ("first-is-closed.net.", vec![CLOSED, ORIGIN]),
        ("private.net.", vec![Ipv4Addr::new(10, 0, 0, 5)]),
        (
            "partly-private.net.",
            vec![ORIGIN, Ipv4Addr::new(10, 0, 0, 5)],
        ),
    ]);
    #[expect(
        clippy::disallowed_methods,
        reason = "a server of the test, which ends with its runtime"
    )]
    drop(tokio::spawn(async move {
        let mut buffer = [0; 2048];
        loop {
            let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
                return;
            };
            let Ok(mut message) = Message::from_vec(&buffer[..length]) else {
                continue;
            };
            message.metadata.message_type = MessageType::Response;
            let query = message.queries[0].clone();
            match known.get(query.name().to_lowercase().to_string().as_str()) {
                Some(addresses) if query.query_type() == RecordType::A => {
                    for address in addresses {
                        message.add_answer(Record::from_rdata(
                            query.name().clone(),
                            60,
                            RData::A(A(*address)),
                        ));
                    }
                }
                Some(_) => {}
                None => message.metadata.response_code = ResponseCode::NXDomain,
            }
            let _ = socket.send_to(&message.to_vec().unwrap(), from).await;
        }
    }));
    address
}
