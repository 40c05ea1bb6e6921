//! Who watches that nothing arrives: witnesses in the uplink and in another sandbox, and listeners of the machine.
//!
//! Frames are told apart by their marks alone, so that other traffic of a busy machine says nothing.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::AT_ONCE;
use super::frames::Marks;
use crate::kernel::witness::{LONGEST, Witness};
use crate::kernel::{KernelError, Ns};

/// Where the gateway's own connections begin.
const UPLINK: &str = "the uplink";

/// Every mark that was seen, and where.
#[derive(Debug)]
pub struct Watch {
    marks: Marks,
    witnesses: Vec<(&'static str, Witness)>,
    seen: BTreeSet<(u16, &'static str)>,
    /// Why there is none in the uplink, where that is not ours to watch.
    pub blind: Option<String>,
}

impl Watch {
    /// In the namespace of the calling thread, and in another sandbox's.
    pub fn open(marks: Marks, other: &Ns) -> Result<Self, KernelError> {
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
            witnesses,
            seen: BTreeSet::new(),
            blind,
        })
    }

    /// Reads what has come so far.
    pub fn look(&mut self) {
        let mut buffer = [0; LONGEST];
        for (place, witness) in &self.witnesses {
            while let Ok(frame) = witness.receive(&mut buffer) {
                if let Some(number) = self.marks.found_in(frame) {
                    self.seen.insert((number, place));
                }
            }
        }
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
        let counts = self
            .witnesses
            .iter_mut()
            .map(|(_, witness)| witness.missed());
        counts.sum()
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
#[derive(Debug)]
pub struct Target {
    address: IpAddr,
    tcp: TcpListener,
    udp: UdpSocket,
}

impl Target {
    /// Opens them.
    pub fn open(address: IpAddr) -> io::Result<Self> {
        let (tcp, udp) = (
            TcpListener::bind((address, 0))?,
            UdpSocket::bind((address, 0))?,
        );
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        Ok(Self { address, tcp, udp })
    }

    /// Whether the machine lets a connection and a datagram of its own through to them; if not, no sandbox's can come.
    pub fn is_reachable(&self) -> bool {
        let connects = || {
            drop(TcpStream::connect_timeout(&self.tcp(), AT_ONCE)?);
            let sender = UdpSocket::bind((self.address, 0))?;
            sender.send_to(b"selftest", self.udp())
        };
        connects().is_ok() && self.accepts().is_some() && self.took_datagram(b"selftest")
    }

    /// Where TCP is listened on.
    pub fn tcp(&self) -> SocketAddr {
        (self.address, self.tcp.local_addr().map_or(0, |a| a.port())).into()
    }

    /// Where datagrams are awaited.
    pub fn udp(&self) -> SocketAddr {
        (self.address, self.udp.local_addr().map_or(0, |a| a.port())).into()
    }

    /// What has arrived, if anything.
    pub fn arrived(&self) -> Option<String> {
        if let Ok((_, from)) = self.tcp.accept() {
            return Some(format!("a connection from {from} arrived"));
        }
        let mut buffer = [0; 64];
        let (_, from) = self.udp.recv_from(&mut buffer).ok()?;
        Some(format!("a datagram from {from} arrived"))
    }

    fn accepts(&self) -> Option<TcpStream> {
        wait(Instant::now() + AT_ONCE, || self.tcp.accept()).map(|(stream, _)| stream)
    }

    /// Takes one connection with these bytes. It stays open until they came: a server that leaves at once gets none.
    pub fn took_connection(&self, bytes: &[u8]) -> bool {
        let Some(mut stream) = self.accepts() else {
            return false;
        };
        let mut got = vec![0; bytes.len()];
        let read = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(Some(AT_ONCE)))
            .and_then(|()| stream.read_exact(&mut got));
        read.is_ok() && got == bytes
    }

    /// Takes one datagram with these bytes.
    pub fn took_datagram(&self, bytes: &[u8]) -> bool {
        let mut buffer = [0; 64];
        let received = wait(Instant::now() + AT_ONCE, || self.udp.recv_from(&mut buffer));
        received.is_some_and(|(length, _)| buffer.get(..length) == Some(bytes))
    }
}
