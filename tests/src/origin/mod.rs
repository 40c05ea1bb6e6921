//! The servers of the lab's internet and LAN: threads in those namespaces, each with a log of what reached it.

mod http;
mod names;
mod plain;
mod secure;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};

pub use http::Request;
pub use names::{Reply, Zone, address};
pub(crate) use secure::config as secure_config;

use crate::log::Log;
use crate::namespace::Namespace;
use crate::tls::Authority;

/// One accepted connection.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// Unique within the lab.
    pub id: u64,
    /// The address and port that was dialled.
    pub local: SocketAddr,
    /// Who dialled.
    pub peer: SocketAddr,
}

/// Ports of the origins.
pub mod port {
    /// HTTP/1.
    pub const HTTP: u16 = 80;
    /// HTTP/1 on another port.
    pub const HTTP_ALT: u16 = 8080;
    /// TLS that answers one HTTP request.
    pub const TLS: u16 = 443;
    /// TLS on another port.
    pub const TLS_ALT: u16 = 8443;
    /// Sends back what it gets.
    pub const ECHO: u16 = 7;
    /// Speaks first, then echoes.
    pub const BANNER: u16 = 22;
    /// Accepts and says nothing.
    pub const MUTE: u16 = 4444;
    /// Sends without end once it got a byte.
    pub const FLOOD: u16 = 1919;
    /// Nothing listens.
    pub const CLOSED: u16 = 81;
    /// Echo over UDP, by address.
    pub const UDP_ECHO: u16 = 7;
}

/// What the banner server says first.
pub const BANNER: &str = "SSH-2.0-lab\r\n";

/// All origins of one lab and their logs.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Zone data; tests change it at any time.
    pub zone: Zone,
    /// Raw bytes of every DNS query that arrived, over either transport.
    pub queries: Log<Vec<u8>>,
    /// Every accepted TCP connection on any origin.
    pub accepted: Log<Accepted>,
    /// Server names of every ClientHello.
    pub server_names: Log<Option<String>>,
    /// Every request head, with its connection.
    pub requests: Log<Request>,
    /// Bytes that the plain servers received: connection, bytes.
    pub received: Log<(u64, Vec<u8>)>,
    /// Every UDP datagram that an echo origin got: peer, bytes.
    pub datagrams: Log<(SocketAddr, Vec<u8>)>,
    /// Connections that ended, with `true` for a reset.
    pub ended: Log<(u64, bool)>,
    stop: Arc<AtomicBool>,
    next: Arc<AtomicU64>,
}

impl Origins {
    /// Starts every origin in the internet and the LAN; returns once all listen.
    pub fn start(internet: &Namespace, lan: &Namespace, authority: &Authority) -> Self {
        let origins = Self::default();
        names::start(&origins, internet);
        for namespace in [internet, lan] {
            http::start(&origins, namespace);
            secure::start(&origins, namespace, authority);
            plain::start(&origins, namespace);
        }
        origins
    }

    /// Starts the DNS of the internet and nothing else.
    pub fn names_only(internet: &Namespace) -> Self {
        let origins = Self::default();
        names::start(&origins, internet);
        origins
    }

    /// Whether a DNS query that holds this text (any case) arrived after a mark.
    pub fn asked(&self, mark: usize, text: &str) -> bool {
        let needle = text.as_bytes();
        let holds = |q: &Vec<u8>| {
            q.windows(needle.len())
                .any(|w| w.eq_ignore_ascii_case(needle))
        };
        self.queries.since(mark).iter().any(holds)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends every origin thread.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn serve(
        &self,
        namespace: &Namespace,
        port: u16,
        serve: impl Fn(&Self, u64, TcpStream) + Send + Sync + 'static,
    ) {
        let listener = namespace.run(|| listen(port));
        let origins = self.clone();
        let serve = Arc::new(serve);
        namespace.spawn(move || {
            while let Some((stream, peer)) = origins.accept(&listener) {
                let id = origins.next.fetch_add(1, Ordering::Relaxed);
                let Ok(local) = stream.local_addr() else {
                    continue;
                };
                origins.accepted.push(Accepted {
                    id,
                    local: unmapped(local),
                    peer: unmapped(peer),
                });
                let (origins, serve) = (origins.clone(), serve.clone());
                std::thread::spawn(move || serve(&origins, id, stream));
            }
        });
    }

    fn accept(&self, listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
        use std::os::fd::AsFd;
        while !self.stopped() {
            let mut waiting = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut waiting, PollTimeout::from(100u8));
            if let Ok(accepted) = listener.accept() {
                let _ = accepted.0.set_nonblocking(false);
                return Some(accepted);
            }
        }
        None
    }
}

/// IPv4 peers of a dual-stack socket in their own form.
fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn listen(port: u16) -> TcpListener {
    let socket =
        Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)).expect("origin socket");
    socket.set_only_v6(false).expect("dual stack");
    socket.set_reuse_address(true).expect("reuse");
    socket.set_nonblocking(true).expect("non-blocking");
    let address: SocketAddr = (std::net::Ipv6Addr::UNSPECIFIED, port).into();
    socket
        .bind(&address.into())
        .unwrap_or_else(|e| panic!("origin port {port}: {e}"));
    socket.listen(1024).expect("listen");
    socket.into()
}
