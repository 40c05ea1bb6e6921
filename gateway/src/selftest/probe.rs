//! A probe sandbox and what it tries; targets in the uplink namespace and what they saw.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netpolicy::decide::{Connect, Destination, Direction, Heard, Intent, decide_connect};
use netpolicy::policy::Protocol;
use socket2::{Domain, Socket, Type};

use crate::context::now;
use crate::control::{AttachRequest, PolicySource};
use crate::kernel::Ns;
use crate::network::registry::{ChangeError, Registry};
use crate::network::{Network, names};

/// What was seen: as promised, or not.
pub type Outcome = Result<String, String>;

/// "At once" for a denial: a veth and a verdict, on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(2);
/// A packet that was going to arrive has arrived by then.
const ARRIVES: Duration = Duration::from_millis(100);

/// An attached namespace of its own.
pub struct Sandbox {
    registry: Arc<Registry>,
    namespace: Ns,
    network: Arc<Network>,
    broker: (UnixListener, PathBuf),
}

impl Sandbox {
    /// Attaches a fresh namespace, with a broker that only listens.
    pub fn attach(registry: &Arc<Registry>, policy: &PolicySource) -> Result<Self, ChangeError> {
        let namespace = Ns::anonymous()?;
        let id = names::probe()?;
        let path = registry.run_dir().join(id.as_str());
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        let request = AttachRequest {
            id: Some(id),
            run: None,
            workspace: crate::control::api::default_workspace(),
            policy: policy.clone(),
            broker: Some(path.clone()),
            member: None,
            via: crate::control::api::Via::Link,
            labels: BTreeMap::from([("sallyport.role".to_owned(), "selftest".to_owned())]),
        };
        let descriptor = namespace.fd().try_clone_to_owned()?;
        let attached =
            registry.attach_probe(&request, descriptor, rustix::process::geteuid().as_raw());
        match attached {
            Ok(described) => Ok(Self {
                registry: registry.clone(),
                namespace,
                network: described.network,
                broker: (listener, path),
            }),
            Err(error) => {
                drop(std::fs::remove_file(&path));
                Err(error)
            }
        }
    }

    /// Takes it away again.
    pub fn detach(self) {
        if let Err(error) = self.registry.detach(&self.network.id, "detached") {
            tracing::error!(%error, "a probe sandbox could not be detached");
        }
        drop(std::fs::remove_file(&self.broker.1));
    }

    /// Its address.
    pub fn v4(&self) -> Ipv4Addr {
        self.network.v4
    }

    /// Runs inside.
    fn inside<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        self.namespace
            .run(move || Ok(act()))
            .map_err(|e| crate::control::problems::chain(&e))?
    }

    /// A connect that must be refused, and soon.
    pub fn is_refused(&self, to: SocketAddr) -> Outcome {
        let accepts_first = self.registry.accepts_first();
        self.inside(move || {
            let began = Instant::now();
            match TcpStream::connect_timeout(&to, AT_ONCE) {
                Ok(stream) if accepts_first && ends_at_once(&stream) => Ok(format!(
                    "accepted and reset after {} ms",
                    began.elapsed().as_millis()
                )),
                Ok(_) => Err(format!("{to} was reached")),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    Ok(format!("refused after {} ms", began.elapsed().as_millis()))
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(format!(
                    "{to} was not refused within {} ms",
                    AT_ONCE.as_millis()
                )),
                Err(error) => Ok(format!("{error}")),
            }
        })
    }

    /// A connect that must succeed and carry bytes.
    pub fn connects(&self, to: SocketAddr) -> Outcome {
        self.inside(move || {
            let mut stream = TcpStream::connect_timeout(&to, AT_ONCE)
                .map_err(|e| format!("connecting to {to}: {e}"))?;
            stream
                .write_all(b"selftest\n")
                .map_err(|e| format!("writing: {e}"))?;
            Ok(format!("{to} was reached"))
        })
    }

    /// What the policy says about a connect.
    pub fn permits(&self, to: SocketAddr) -> bool {
        let intent = Intent {
            direction: Direction::Egress,
            protocol: Protocol::Tcp,
            port: to.port(),
            to: Destination::Address {
                address: to.ip(),
                bound: Vec::new(),
                heard: Heard::NotYet,
            },
        };
        matches!(
            decide_connect(&self.network.live.load().snapshot, &intent, now()),
            Connect::Dial(_)
        )
    }

    /// The broker's port on the service address leads to our own socket.
    pub fn reaches_broker(&self, service: IpAddr) -> Outcome {
        let held = self.inside(move || {
            TcpStream::connect_timeout(&(service, 80).into(), AT_ONCE)
                .map_err(|e| format!("connecting to the broker: {e}"))
        })?;
        let due = Instant::now() + AT_ONCE;
        let (mut stream, _) =
            wait(due, || self.broker.0.accept()).ok_or("the broker got no connection")?;
        let mut line = Vec::new();
        let read = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(Some(AT_ONCE)))
            .and_then(|()| stream.read_to_end(&mut line));
        drop(held);
        let whose: crate::control::Handover = match read.map(|_| serde_json::from_slice(&line)) {
            Ok(Ok(whose)) => whose,
            _ => return Err("the broker got a connection without its owner".to_owned()),
        };
        if whose.network == self.network.id {
            Ok("the broker got it, with this network's name".to_owned())
        } else {
            Err("the broker got another network's name".to_owned())
        }
    }

    /// A question for a name that nothing permits.
    pub fn name_is_denied(&self, service: IpAddr, name: &str) -> Outcome {
        let mut question = vec![0x53, 0x50, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            question.push(u8::try_from(label.len()).unwrap_or(0));
            question.extend_from_slice(label.as_bytes());
        }
        question.extend_from_slice(&[0, 0, 1, 0, 1]);
        self.inside(move || {
            let act = || -> io::Result<(usize, [u8; 512])> {
                let socket = UdpSocket::bind(("0.0.0.0", 0))?;
                socket.set_read_timeout(Some(AT_ONCE))?;
                socket.connect((service, 53))?;
                socket.send(&question)?;
                let mut answer = [0; 512];
                Ok((socket.recv(&mut answer)?, answer))
            };
            let (length, answer) = act().map_err(|e| format!("asking: {e}"))?;
            // RFC 1035 4.1.1: the low four bits of the fourth octet are the code, 3 is NXDOMAIN.
            match answer.get(..length) {
                Some([0x53, 0x50, _, code, ..]) if code & 15 == 3 => Ok("NXDOMAIN".to_owned()),
                Some([_, _, _, code, ..]) => Err(format!("code {}", code & 15)),
                _ => Err("no answer".to_owned()),
            }
        })
    }

    /// A datagram that must not arrive.
    pub fn sends_datagram(&self, to: SocketAddr) -> Outcome {
        self.inside(move || {
            let sent = UdpSocket::bind(("0.0.0.0", 0)).and_then(|s| s.send_to(b"selftest", to));
            sent.map(|_| "sent".to_owned())
                .map_err(|e| format!("sending: {e}"))
        })
    }

    /// A datagram with another sandbox's address as source.
    pub fn forges(&self, source: Ipv4Addr, to: SocketAddr) -> Outcome {
        let SocketAddr::V4(to) = to else {
            return Err("no IPv4 target".to_owned());
        };
        let mut datagram = Vec::with_capacity(16);
        datagram.extend_from_slice(&40_000_u16.to_be_bytes());
        datagram.extend_from_slice(&to.port().to_be_bytes());
        // Length 16, no checksum (RFC 768).
        datagram.extend_from_slice(&[0, 16, 0, 0]);
        datagram.extend_from_slice(b"selftest");
        self.inside(move || raw(source, *to.ip(), 17, &datagram))
    }

    /// A packet of another protocol.
    pub fn sends_protocol(&self, protocol: u8, to: Ipv4Addr) -> Outcome {
        let source = self.v4();
        // For ICMP (1) this is a timestamp request with its checksum.
        self.inside(move || raw(source, to, protocol, &[13, 0, 0xf2, 0xff, 0, 0, 0, 0]))
    }
}

/// Sends an IPv4 packet with a header of our own (raw(7)); the kernel fills in length, identification and checksum.
fn raw(source: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Outcome {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend_from_slice(&source.octets());
    packet.extend_from_slice(&to.octets());
    packet.extend_from_slice(payload);
    let send = || {
        let socket = Socket::new(
            Domain::IPV4,
            Type::RAW,
            Some(socket2::Protocol::from(libc::IPPROTO_RAW)),
        )?;
        socket.send_to(&packet, &SocketAddrV4::new(to, 0).into())
    };
    send()
        .map(|_| "sent".to_owned())
        .map_err(|e| format!("sending a raw packet: {e}"))
}

/// Tries a non-blocking act until it works or the time is up.
fn wait<T>(due: Instant, mut act: impl FnMut() -> io::Result<T>) -> Option<T> {
    loop {
        match act() {
            Ok(done) => return Some(done),
            Err(_) if Instant::now() < due => std::thread::park_timeout(Duration::from_millis(1)),
            Err(_) => return None,
        }
    }
}

/// Listeners in the uplink namespace.
pub struct Target {
    address: IpAddr,
    tcp: TcpListener,
    udp: UdpSocket,
}

impl Target {
    /// On free ports of an address of the machine.
    pub fn open(address: IpAddr) -> io::Result<Self> {
        let (tcp, udp) = (
            TcpListener::bind((address, 0))?,
            UdpSocket::bind((address, 0))?,
        );
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        Ok(Self { address, tcp, udp })
    }

    /// Where TCP is listened on.
    pub fn tcp(&self) -> SocketAddr {
        (self.address, self.tcp.local_addr().map_or(0, |a| a.port())).into()
    }

    /// Where datagrams are awaited.
    pub fn udp(&self) -> SocketAddr {
        (self.address, self.udp.local_addr().map_or(0, |a| a.port())).into()
    }

    /// Nothing arrived, and nothing arrives in a moment.
    pub fn saw_nothing(&self, seen: &str) -> Outcome {
        let mut buffer = [MaybeUninit::uninit(); 64];
        let datagrams = socket2::SockRef::from(&self.udp);
        let due = Instant::now() + ARRIVES;
        let arrived = wait(due, || match self.tcp.accept() {
            Ok((_, from)) => Ok(format!("a connection from {from} arrived")),
            Err(_) => datagrams
                .recv(&mut buffer)
                .map(|_| "a datagram arrived".to_owned()),
        });
        arrived.map_or_else(
            || Ok(format!("{seen}, nothing arrived")),
            |what| Err(format!("{seen}, but {what}")),
        )
    }

    /// One connection arrived.
    pub fn saw_one(&self, seen: String) -> Outcome {
        match wait(Instant::now() + AT_ONCE, || self.tcp.accept()) {
            Some(_) => Ok(seen),
            None => Err(format!("{seen}, but nothing arrived")),
        }
    }
}

/// Whether a connection that a gateway without a packet queue accepted is reset without a byte.
fn ends_at_once(mut stream: &TcpStream) -> bool {
    let heard = stream
        .set_read_timeout(Some(AT_ONCE))
        .and_then(|()| stream.read(&mut [0]));
    heard.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}
