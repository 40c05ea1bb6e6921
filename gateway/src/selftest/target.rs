//! Listeners of the machine that nothing may reach, and what a policy permits must.
//!
//! Anybody who reaches the machine reaches them, so what arrives is attributed: a connection is the gateway's only if the
//! gateway noted its port before it dialled ([`OwnDials`]), and a sandbox's by its address; a datagram is known by its
//! mark. What strangers send must neither fail a check nor stand for a twin; where they send so much that nothing else
//! can be told, that is said.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use ipnet::IpNet;

use super::AT_ONCE;
use super::frames::Marks;
use super::watch::wait;
use crate::kernel::sockets::listen_deep;
use crate::kernel::witness::LONGEST;
use crate::uplink::own::OwnDials;

/// So many strangers within one check are a flood: then a twin that does not come says nothing about the gateway.
const CROWD: usize = 100;

/// What came, if anything can be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Came {
    /// It did.
    Yes(String),
    /// It did not.
    No,
    /// Strangers were too many to tell.
    Crowded,
}

/// Listeners in the uplink namespace, on free ports of an address of the machine.
#[derive(Debug)]
pub struct Target {
    address: IpAddr,
    /// Where sandboxes' packets would come from.
    pools: Vec<IpNet>,
    own: Arc<OwnDials>,
    tcp: TcpListener,
    udp: UdpSocket,
}

impl Target {
    /// Opens them; `pools` are the addresses of sandboxes.
    pub fn open(address: IpAddr, pools: Vec<IpNet>, own: Arc<OwnDials>) -> io::Result<Self> {
        let (tcp, udp) = (
            TcpListener::bind((address, 0))?,
            UdpSocket::bind((address, 0))?,
        );
        listen_deep(&tcp)?;
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        own.watch(tcp.local_addr()?);
        Ok(Self {
            address,
            pools,
            own,
            tcp,
            udp,
        })
    }

    /// Whether the machine lets a connection and a datagram of its own through to them; if not, no sandbox's can come.
    pub fn is_reachable(&self) -> bool {
        let connects = || {
            let own = TcpStream::connect_timeout(&self.tcp(), AT_ONCE)?.local_addr()?;
            let sender = UdpSocket::bind((self.address, 0))?;
            sender.send_to(b"selftest", self.udp())?;
            Ok::<_, io::Error>(own)
        };
        let due = Instant::now() + AT_ONCE;
        // it must not be found there later
        let took = |own| {
            let accepted = || match self.tcp.accept()? {
                (_, from) if from == own => Ok(()),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            };
            wait(due, accepted).is_some()
        };
        connects().is_ok_and(took) && matches!(self.took_datagram(b"selftest"), Came::Yes(_))
    }

    /// Where TCP is listened on.
    pub fn tcp(&self) -> SocketAddr {
        (self.address, self.tcp.local_addr().map_or(0, |a| a.port())).into()
    }

    /// Where datagrams are awaited.
    pub fn udp(&self) -> SocketAddr {
        (self.address, self.udp.local_addr().map_or(0, |a| a.port())).into()
    }

    /// What has arrived that is no stranger's.
    pub fn arrived(&self, marks: &Marks) -> Came {
        let due = Instant::now() + AT_ONCE;
        while let Ok((_, from)) = self.tcp.accept() {
            if !self.is_strangers(from) {
                return Came::Yes(format!("a connection from {from} arrived"));
            }
            if Instant::now() >= due {
                return Came::Crowded;
            }
        }
        let mut buffer = [0; LONGEST];
        while let Ok((length, from)) = self.udp.recv_from(&mut buffer) {
            let got = buffer.get(..length).unwrap_or_default();
            if marks.found_in(got).is_some() {
                return Came::Yes(format!("a datagram from {from} arrived"));
            }
            if Instant::now() >= due {
                return Came::Crowded;
            }
        }
        Came::No
    }

    /// Whether a peer is neither the gateway nor a sandbox.
    fn is_strangers(&self, from: SocketAddr) -> bool {
        let of_sandbox = self.pools.iter().any(|net| net.contains(&from.ip()));
        !of_sandbox && !self.own.has(self.tcp(), from.port())
    }

    /// Takes one connection of the gateway's with these bytes, whoever else connects. It stays open until they came: a
    /// server that leaves at once gets none.
    pub fn took_connection(&self, bytes: &[u8]) -> Came {
        let mut held: Vec<(TcpStream, Vec<u8>)> = Vec::new();
        let mut strangers = 0;
        let due = Instant::now() + AT_ONCE;
        let came = || {
            while let Ok((stream, from)) = self.tcp.accept() {
                if self.is_strangers(from) {
                    strangers += 1;
                } else {
                    stream.set_nonblocking(true)?;
                    held.push((stream, Vec::new()));
                }
                if Instant::now() >= due {
                    break;
                }
            }
            held.retain_mut(|(stream, got)| more(stream, got, bytes));
            let whole = held.iter().any(|(_, got)| got == bytes);
            whole.then_some(()).ok_or(io::ErrorKind::WouldBlock.into())
        };
        told(wait(due, came), strangers)
    }

    /// Takes one datagram with these bytes, whatever else comes.
    pub fn took_datagram(&self, bytes: &[u8]) -> Came {
        let mut buffer = [0; LONGEST];
        let mut strangers = 0;
        let due = Instant::now() + AT_ONCE;
        let came = || {
            while let Ok((length, _)) = self.udp.recv_from(&mut buffer) {
                if buffer.get(..length) == Some(bytes) {
                    return Ok(());
                }
                strangers += 1;
                if Instant::now() >= due {
                    break;
                }
            }
            Err(io::ErrorKind::WouldBlock.into())
        };
        told(wait(due, came), strangers)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.own.forget(self.tcp());
    }
}

fn told(came: Option<()>, strangers: usize) -> Came {
    match came {
        Some(()) => Came::Yes("it arrived".to_owned()),
        None if strangers >= CROWD => Came::Crowded,
        None => Came::No,
    }
}

/// Reads what has come; whether the connection may still be the one with these bytes.
fn more(stream: &mut TcpStream, got: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let mut buffer = [0; 64];
    match stream.read(&mut buffer) {
        Ok(0) => got == bytes,
        Ok(length) => {
            got.extend_from_slice(buffer.get(..length).unwrap_or_default());
            bytes.starts_with(got)
        }
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::net::TcpSocket;

    use super::*;

    fn target() -> Target {
        let pools = vec!["198.18.0.0/16".parse().unwrap()];
        Target::open([127, 0, 0, 1].into(), pools, Arc::default()).unwrap()
    }

    /// A connection as the dialler makes it.
    fn dialled(target: &Target) -> TcpStream {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let stream = runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            target.own.note(&socket, target.tcp()).unwrap();
            socket.connect(target.tcp()).await.unwrap()
        });
        let stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream
    }

    #[test]
    fn strangers_fail_no_check_however_soon_they_leave_and_the_gateways_own_connections_do() {
        let (target, marks) = (target(), Marks::new().unwrap());
        // gone before anybody could look whose it is
        drop(TcpStream::connect(target.tcp()).unwrap());
        let stays = TcpStream::connect(target.tcp()).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"selftest", target.udp()).unwrap();
        assert_eq!(target.arrived(&marks), Came::No);
        drop((dialled(&target), stays));
        let arrived = target.arrived(&marks);
        assert!(matches!(arrived, Came::Yes(what) if what.contains("connection")));
        sender.send_to(&marks.number(1), target.udp()).unwrap();
        let arrived = target.arrived(&marks);
        assert!(matches!(arrived, Came::Yes(what) if what.contains("datagram")));
        // a sandbox's own packet, from its own address
        let near = Target::open(
            [127, 0, 0, 1].into(),
            vec!["127.0.0.0/8".parse().unwrap()],
            Arc::default(),
        );
        let near = near.unwrap();
        drop(TcpStream::connect(near.tcp()).unwrap());
        assert!(matches!(near.arrived(&marks), Came::Yes(_)));
    }

    #[test]
    fn a_twin_is_found_behind_strangers_who_came_first_and_they_are_none() {
        let target = target();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"noise", target.udp()).unwrap();
        assert!(target.is_reachable());
        let mut noise = TcpStream::connect(target.tcp()).unwrap();
        noise.write_all(b"twin").unwrap();
        assert_eq!(target.took_connection(b"twin"), Came::No);
        let mut twin = dialled(&target);
        twin.write_all(b"twin").unwrap();
        sender.send_to(b"noise", target.udp()).unwrap();
        sender.send_to(b"twin", target.udp()).unwrap();
        assert!(matches!(target.took_connection(b"twin"), Came::Yes(_)));
        assert!(matches!(target.took_datagram(b"twin"), Came::Yes(_)));
    }

    #[test]
    fn a_flood_of_connections_and_datagrams_fails_nothing() {
        let (target, marks) = (target(), Marks::new().unwrap());
        let (to, udp) = (target.tcp(), target.udp());
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        let flood = std::thread::spawn(move || {
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            while !until.load(Ordering::Relaxed) {
                let _ = TcpStream::connect_timeout(&to, AT_ONCE);
                let _ = sender.send_to(b"noise", udp);
            }
        });
        assert!(!matches!(target.arrived(&marks), Came::Yes(_)));
        let mut twin = dialled(&target);
        twin.write_all(b"twin").unwrap();
        let came = target.took_connection(b"twin");
        assert_ne!(came, Came::No, "{came:?}");
        assert_ne!(target.took_datagram(b"never"), Came::Yes(String::new()));
        stop.store(true, Ordering::Relaxed);
        flood.join().unwrap();
    }
}
