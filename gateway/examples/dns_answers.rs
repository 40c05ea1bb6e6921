//! Answers a second of the DNS door, on cached names: `cargo run --release --example dns_answers [socket]`.
//!
//! Without an argument datagrams come from memory: what is measured is the door alone (parse, decide, judge, lease,
//! write), on one thread. With `socket` the door serves loopback for ten seconds on the printed address, for a load
//! generator that asks for `n0.ok.net` to `n99.ok.net` as 127.0.0.1.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement, run by hand"
)]

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use gateway::limits::{Ledger, Used};
use gateway::listen::dns::{Batch, Datagrams, DnsHandles, DnsSettings, Outgoing, serve_dns};
use gateway::network::flows::FlowTable;
use gateway::network::{Live, Network, Networks};
use gateway::record::{Journal, JournalConfig};
use gateway::resolve::leases::Paces;
use gateway::resolve::{LeasePools, Leases, Resolver, Upstreams};
use gateway::tasks::Tasks;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use netpolicy::addr::AddressBook;
use netpolicy::decide::{LayerKind, OwnListeners, Snapshot};
use netpolicy::ids::Generation;
use netpolicy::policy::NamesMode;
use tokio::net::UdpSocket;
use tokio::sync::watch;

/// Cached names.
const NAMES: usize = 100;
/// How long one measurement takes.
const FOR: Duration = Duration::from_secs(5);

/// Datagrams out of memory.
struct Memory {
    questions: Vec<Vec<u8>>,
    answered: Arc<AtomicU64>,
}

impl Datagrams for Memory {
    async fn receive(&self, batch: &mut Batch) -> io::Result<()> {
        let count = batch.slots().len();
        for (slot, question) in batch.slots().iter_mut().zip(self.questions.iter().cycle()) {
            slot.buffer
                .get_mut(..question.len())
                .unwrap()
                .copy_from_slice(question);
            slot.length = question.len();
            slot.source = ([127, 0, 0, 1], 40000).into();
            slot.asked = ([198, 18, 0, 1], 53).into();
        }
        batch.filled(count);
        tokio::task::yield_now().await;
        Ok(())
    }

    fn send(&self, replies: &[Outgoing]) {
        let good = replies
            .iter()
            .filter(|reply| reply.bytes.get(7) == Some(&1))
            .count();
        self.answered.fetch_add(good as u64, Ordering::Relaxed);
    }
}

/// A plain loopback socket.
struct Plain(UdpSocket, SocketAddr);

impl Datagrams for Plain {
    async fn receive(&self, batch: &mut Batch) -> io::Result<()> {
        loop {
            self.0.readable().await?;
            let mut count = 0;
            for slot in batch.slots() {
                let Ok((length, source)) = self.0.try_recv_from(&mut slot.buffer) else {
                    break;
                };
                (slot.length, slot.source, slot.asked) = (length, source, self.1);
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
            let _ = self.0.try_send_to(&reply.bytes, reply.to);
        }
    }
}

fn question(n: usize) -> Vec<u8> {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(
        Name::from_ascii(format!("n{n}.ok.net.")).unwrap(),
        RecordType::A,
    ));
    message.set_edns(Edns::new());
    message.to_vec().unwrap()
}

/// A server that knows every name; asked once for each.
async fn upstream(socket: UdpSocket) {
    let mut buffer = [0; 1500];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        let mut message = Message::from_vec(buffer.get(..length).unwrap()).unwrap();
        message.metadata.message_type = MessageType::Response;
        let asked = message.queries.first().unwrap().clone();
        if asked.query_type == RecordType::A {
            let data = RData::A(A::new(93, 184, 216, 34));
            message.add_answer(Record::from_rdata(asked.name, 300, data));
        }
        socket
            .send_to(&message.to_vec().unwrap(), from)
            .await
            .unwrap();
    }
}

fn network(dir: &std::path::Path) -> Arc<Network> {
    let text =
        "policy: bench\ndescription: measured\nnetwork: domains\nallow:\n  - host: \"*.ok.net\"\n";
    let policy = netpolicy::document::parse("bench.yaml", text, None).unwrap();
    let key = [1; 16];
    let pools = LeasePools {
        v4: "198.19.0.0/16".parse().unwrap(),
        v6: "fd00:0:0:1::/64".parse().unwrap(),
        key,
    };
    let limits = policy.limits.clone();
    let layers = vec![(LayerKind::Job, Arc::new(policy))];
    let snapshot = Snapshot::new(
        layers,
        Arc::new(AddressBook::default()),
        Arc::new(OwnListeners::default()),
    );
    Arc::new(Network {
        id: "n1".parse().unwrap(),
        run: None,
        workspace: "w".to_owned(),
        v4: Ipv4Addr::LOCALHOST,
        v6: Ipv6Addr::LOCALHOST,
        link: "l1".to_owned(),
        via: gateway::control::api::Via::Link,
        owner: 0,
        scope: gateway::resolve::upstream::Scope::fresh(),
        broker: None,
        member: None,
        live: ArcSwap::from_pointee(Live {
            snapshot: Arc::new(snapshot),
            generation: Generation(1),
            names: NamesMode::Leased,
            explain: true,
        }),
        leases: Leases::open(&dir.join("leases"), pools, "w").unwrap(),
        ledger: Ledger::new(&limits, Used::default()),
        flows: FlowTable::default(),
        connections: gateway::network::ended::EndedConnections::default(),
        recent: gateway::network::recent::Recent::default(),
        adopted: std::sync::OnceLock::new(),
        ended: tokio_util::sync::CancellationToken::new(),
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::default();
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let resolver = Resolver::new(Upstreams {
        default: vec![server.local_addr().unwrap()],
        domains: Vec::new(),
    });
    tasks.spawn("upstream", upstream(server));
    let networks = Arc::new(Networks::default());
    let own = network(dir.path());
    networks.insert(&own);
    for n in 0..NAMES {
        let name = netpolicy::name::Name::parse(&format!("n{n}.ok.net")).unwrap();
        resolver
            .addresses(&own.scope, &name, &|_| true)
            .await
            .unwrap();
    }
    let (_seal, open) = watch::channel(true);
    let handles = DnsHandles {
        networks,
        resolver: Arc::new(resolver),
        journal: Arc::new(Journal::open(JournalConfig::under(dir.path())).unwrap()),
        tasks: tasks.clone(),
        open,
        connections: 1024,
    };
    let settings = DnsSettings {
        service_v4: Ipv4Addr::new(198, 18, 0, 1),
        service_v6: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
        paces: Paces {
            questions: u32::MAX,
            ..Paces::default()
        },
    };
    if std::env::args().nth(1).as_deref() == Some("socket") {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        println!("{address}");
        serve_dns(handles, settings, vec![Plain(socket, address)], Vec::new()).unwrap();
        tokio::time::sleep(2 * FOR).await;
    } else {
        let answered = Arc::new(AtomicU64::new(0));
        let memory = Memory {
            questions: (0..NAMES).map(question).collect(),
            answered: answered.clone(),
        };
        let started = Instant::now();
        serve_dns(handles, settings, vec![memory], Vec::new()).unwrap();
        tokio::time::sleep(FOR).await;
        let answers = u128::from(answered.load(Ordering::Relaxed));
        println!(
            "{} answers a second",
            answers * 1000 / started.elapsed().as_millis()
        );
    }
    tasks.shut_down().await;
}
