//! Who watches that nothing arrives: witnesses in the uplink and in another sandbox, and listeners of the machine.
//!
//! Frames are told apart by their marks alone, so that other traffic of a busy machine says nothing.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::frames::Marks;
use super::{AT_ONCE, peers};
use crate::kernel::witness::{LONGEST, Witness};
use crate::kernel::{KernelError, Ns};

/// Where the gateway's own connections begin.
const UPLINK: &str = "the uplink";

/// Every mark that was seen, and where.
#[derive(Debug)]
pub struct Watch {
    marks: Marks,
    /// Where everything that a sandbox sends comes in, whatever becomes of it then.
    entry: Witness,
    entered: BTreeSet<u16>,
    witnesses: Vec<(&'static str, Witness)>,
    seen: BTreeSet<(u16, &'static str)>,
    /// Why there is none in the uplink, where that is not ours to watch.
    pub blind: Option<String>,
}

impl Watch {
    /// In the namespace of the calling thread and in another sandbox's; `entry` is where sandboxes' links end.
    pub fn open(marks: Marks, entry: &Ns, other: &Ns) -> Result<Self, KernelError> {
        let mut witnesses = vec![("another sandbox", other.run(Witness::open)?)];
        let mut blind = None;
        match Witness::open() {
            Ok(witness) => witnesses.push((UPLINK, witness)),
            // a gateway of an ordinary user has no rights over the machine's links
            Err(error)
                if error
                    .errno()
                    .is_some_and(|e| e == libc::EPERM || e == libc::EACCES) =>
            {
                blind = Some(crate::control::problems::chain(&error));
            }
            Err(error) => return Err(error),
        }
        Ok(Self {
            marks,
            entry: entry.run(Witness::open)?,
            entered: BTreeSet::new(),
            witnesses,
            seen: BTreeSet::new(),
            blind,
        })
    }

    /// Reads what has come so far.
    pub fn look(&mut self) {
        let mut buffer = [0; LONGEST];
        while let Ok(frame) = self.entry.receive(&mut buffer) {
            self.entered.extend(self.marks.found_in(frame));
        }
        for (place, witness) in &self.witnesses {
            while let Ok(frame) = witness.receive(&mut buffer) {
                if let Some(number) = self.marks.found_in(frame) {
                    self.seen.insert((number, place));
                }
            }
        }
    }

    /// Looks until all of these frames have come in, and then for a time; whether all have. A frame waits on its way in
    /// for as long as the machine has other work.
    pub fn look_for_all(&mut self, frames: &[Vec<u8>], time: Duration) -> bool {
        let due = Instant::now() + AT_ONCE;
        while !frames.iter().all(|frame| self.has_entered(frame)) && Instant::now() < due {
            self.look_for(Duration::from_millis(1));
        }
        self.look_for(time);
        frames.iter().all(|frame| self.has_entered(frame))
    }

    /// Whether a frame has come in, by its mark.
    pub fn has_entered(&self, frame: &[u8]) -> bool {
        let number = self.marks.found_in(frame);
        number.is_some_and(|number| self.entered.contains(&number))
    }

    /// Goes on looking for a time.
    pub fn look_for(&mut self, time: Duration) {
        let due = Instant::now() + time;
        while Instant::now() < due {
            self.look();
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.look();
    }

    /// Looks until a mark has come; where it was seen.
    pub fn wait_for(&mut self, number: u16) -> Option<&'static str> {
        let due = Instant::now() + AT_ONCE;
        loop {
            self.look();
            let place = self.seen(number);
            if place.is_some() || Instant::now() >= due {
                return place;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Where a mark was seen.
    pub fn seen(&self, number: u16) -> Option<&'static str> {
        self.seen
            .iter()
            .find(|(n, _)| *n == number)
            .map(|(_, place)| *place)
    }

    /// Where a frame was seen, by its mark.
    pub fn seen_of(&self, frame: &[u8]) -> Option<&'static str> {
        self.seen(self.marks.found_in(frame)?)
    }

    /// Whether a mark was seen in the uplink.
    pub fn went_out(&self, number: u16) -> bool {
        self.seen.contains(&(number, UPLINK))
    }

    /// How many frames no witness saw for want of room.
    pub fn missed(&mut self) -> io::Result<u64> {
        let places = self.witnesses.iter_mut().map(|(_, witness)| witness);
        let witnesses = places.chain([&mut self.entry]);
        witnesses.map(Witness::missed).sum()
    }
}

/// Tries a non-blocking act until it works or the time is up.
pub fn wait<T>(due: Instant, mut act: impl FnMut() -> io::Result<T>) -> Option<T> {
    loop {
        match act() {
            Ok(done) => return Some(done),
            Err(_) if Instant::now() < due => std::thread::park_timeout(Duration::from_millis(1)),
            Err(_) => return None,
        }
    }
}

/// Listeners in the uplink namespace, on free ports of an address of the machine.
///
/// Anybody who reaches the machine reaches them, so what arrives is looked at: only what this process or a sandbox can
/// have sent says anything about the gateway, and what strangers send must neither fail a check nor stand for a twin.
#[derive(Debug)]
pub struct Target {
    address: IpAddr,
    /// Where the gateway's own connections and sandboxes' packets would come from.
    near: Vec<IpNet>,
    tcp: TcpListener,
    udp: UdpSocket,
}

impl Target {
    /// Opens them; `near` are the machine's own addresses and the pools of sandboxes.
    pub fn open(address: IpAddr, near: Vec<IpNet>) -> io::Result<Self> {
        let (tcp, udp) = (
            TcpListener::bind((address, 0))?,
            UdpSocket::bind((address, 0))?,
        );
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        Ok(Self {
            address,
            near,
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
        connects().is_ok_and(took) && self.took_datagram(b"selftest")
    }

    /// Where TCP is listened on.
    pub fn tcp(&self) -> SocketAddr {
        (self.address, self.tcp.local_addr().map_or(0, |a| a.port())).into()
    }

    /// Where datagrams are awaited.
    pub fn udp(&self) -> SocketAddr {
        (self.address, self.udp.local_addr().map_or(0, |a| a.port())).into()
    }

    /// What has arrived that is no stranger's, if anything.
    pub fn arrived(&self, marks: &Marks) -> Option<String> {
        let due = Instant::now() + AT_ONCE;
        // open until it was judged: a peer that is hung up on would be gone
        while let Ok((_stream, from)) = self.tcp.accept() {
            if !self.is_strangers(from) {
                return Some(format!("a connection from {from} arrived"));
            }
            if Instant::now() >= due {
                return Some("more connections arrived than could be looked at".to_owned());
            }
        }
        let mut buffer = [0; LONGEST];
        while let Ok((length, from)) = self.udp.recv_from(&mut buffer) {
            let got = buffer.get(..length).unwrap_or_default();
            if marks.found_in(got).is_some() {
                return Some(format!("a datagram from {from} arrived"));
            }
            if Instant::now() >= due {
                return Some("more datagrams arrived than could be looked at".to_owned());
            }
        }
        None
    }

    /// Whether a peer is somebody of the network, or another process of the machine that has the connection open.
    fn is_strangers(&self, from: SocketAddr) -> bool {
        let near = self.near.iter().any(|net| net.contains(&from.ip()));
        !near || peers::is_anothers(from, self.tcp()).unwrap_or(false)
    }

    /// Takes one connection with these bytes, whoever else connects. It stays open until they came: a server that leaves
    /// at once gets none.
    pub fn took_connection(&self, bytes: &[u8]) -> bool {
        let mut held: Vec<(TcpStream, Vec<u8>)> = Vec::new();
        let came = || {
            while let Ok((stream, _)) = self.tcp.accept() {
                stream.set_nonblocking(true)?;
                held.push((stream, Vec::new()));
            }
            held.retain_mut(|(stream, got)| more(stream, got, bytes));
            let whole = held.iter().any(|(_, got)| got == bytes);
            whole.then_some(()).ok_or(io::ErrorKind::WouldBlock.into())
        };
        wait(Instant::now() + AT_ONCE, came).is_some()
    }

    /// Takes one datagram with these bytes, whatever else comes.
    pub fn took_datagram(&self, bytes: &[u8]) -> bool {
        let mut buffer = [0; LONGEST];
        let came = || match self.udp.recv_from(&mut buffer)? {
            (length, _) if buffer.get(..length) == Some(bytes) => Ok(()),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        };
        wait(Instant::now() + AT_ONCE, came).is_some()
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
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn target() -> Target {
        let near = vec!["127.0.0.0/8".parse().unwrap()];
        Target::open([127, 0, 0, 1].into(), near).unwrap()
    }

    /// Another process that has a connection open.
    fn stranger(to: SocketAddr) -> Child {
        let script = format!(
            "exec 3<>/dev/tcp/{}/{}; echo; read -r _",
            to.ip(),
            to.port()
        );
        let mut child = Command::new("bash")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = child.stdout.as_mut().unwrap().read_exact(&mut [0]);
        said.unwrap();
        child
    }

    fn end(mut child: Child) {
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn strangers_fail_no_check_and_connections_of_this_process_do() {
        let (target, marks) = (target(), Marks::new().unwrap());
        let stranger = stranger(target.tcp());
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"selftest", target.udp()).unwrap();
        assert_eq!(target.arrived(&marks), None);
        let own = TcpStream::connect(target.tcp()).unwrap();
        let arrived = target.arrived(&marks);
        assert!(arrived.is_some_and(|what| what.contains("connection")));
        drop(own);
        sender.send_to(&marks.number(1), target.udp()).unwrap();
        let arrived = target.arrived(&marks);
        assert!(arrived.is_some_and(|what| what.contains("datagram")));
        // from the network: nobody of it is near
        let far = Target {
            near: Vec::new(),
            ..target
        };
        drop(TcpStream::connect(far.tcp()).unwrap());
        assert_eq!(far.arrived(&marks), None);
        end(stranger);
    }

    #[test]
    fn a_twin_is_found_behind_strangers_who_came_first() {
        let target = target();
        let stranger = stranger(target.tcp());
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"noise", target.udp()).unwrap();
        assert!(target.is_reachable());
        let mut noise = TcpStream::connect(target.tcp()).unwrap();
        noise.write_all(b"twix").unwrap();
        let mut twin = TcpStream::connect(target.tcp()).unwrap();
        twin.write_all(b"twin").unwrap();
        sender.send_to(b"noise", target.udp()).unwrap();
        sender.send_to(b"twin", target.udp()).unwrap();
        assert!(target.took_connection(b"twin") && target.took_datagram(b"twin"));
        end(stranger);
    }
}
